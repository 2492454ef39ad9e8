"""The public recipe that all holders share, its planners, and forecasts from public facts."""
