"""Tools of maintainers, which no wheel contains."""
