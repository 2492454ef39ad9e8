"""Targets, their cells, results on disk, and the pages about them."""
