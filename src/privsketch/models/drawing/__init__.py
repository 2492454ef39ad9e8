"""Pictures of models and sketches, in the units of the table; matplotlib is imported on use."""
