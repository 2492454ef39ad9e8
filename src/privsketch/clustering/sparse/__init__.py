"""Sparse records of many columns."""
