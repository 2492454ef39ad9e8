"""Records to a sketch, and sketches to a sum."""
