"""Noise: calibration, exact samplers, and the one function all noise passes through."""
