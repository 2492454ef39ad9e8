"""Principal components from a sketch."""
