"""Regression and classification from second moments."""
