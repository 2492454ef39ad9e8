"""Synthetic records in [-1, 1]^d by generators that no rule or constant was made on."""
