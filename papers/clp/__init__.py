"""Compressive learning with privacy guarantees (2021): Figures 4 to 8."""
