"""Pages for people: the report of a model, and the comparison of several sources."""
