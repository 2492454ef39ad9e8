"""A sketch to a model; nothing here can reach a record."""
