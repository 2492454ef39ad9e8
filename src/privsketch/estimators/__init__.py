"""Estimators with the interface of scikit-learn: fit, predict, transform, score."""
