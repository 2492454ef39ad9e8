"""Privacy via the Johnson-Lindenstrauss transform (2013): its figures and Table 1."""
