"""From records to exact integer sums."""
