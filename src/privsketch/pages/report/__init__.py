"""One HTML file from a model and its sketch, or from a model and its receipt."""
