"""Clusters from a sketch: decoders, their errors, and the number of clusters."""
