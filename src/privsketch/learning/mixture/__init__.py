"""Gaussian mixtures from a sketch."""
