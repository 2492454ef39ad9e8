"""Choices made before any record is read, from public facts alone."""
