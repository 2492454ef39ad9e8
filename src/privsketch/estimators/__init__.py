"""Faces of scikit-learn: fit, predict, transform, score."""
