"""Our own way: directions, a sketch along them, and rounds over residuals."""
