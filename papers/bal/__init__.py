"""Differentially private clustering in high dimension (2017): Figure 2."""
