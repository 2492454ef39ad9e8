"""K-means of sparse records with many columns."""
