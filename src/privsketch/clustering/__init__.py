"""Clustering methods for one holder: they read the records several times, on one budget."""
