"""Reports: one self-contained HTML file from a model and its sketch. Reads no record."""
