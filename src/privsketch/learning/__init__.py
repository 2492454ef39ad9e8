"""Learning: a sketch becomes a model. Nothing here reads records."""
