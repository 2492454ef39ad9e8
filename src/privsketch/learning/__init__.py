"""Learners: from a sketch alone to a model. Nothing here can read a record."""
