"""All machine code: loops that NumPy is too slow for, each beside its definition."""
