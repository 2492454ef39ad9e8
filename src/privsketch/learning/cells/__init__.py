"""Clusters from noisy counts over boxes: a density that explains them, and its k-means centers."""
