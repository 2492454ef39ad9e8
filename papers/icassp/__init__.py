"""Differentially private compressive k-means (ICASSP 2019): Figures 2 and 3."""
