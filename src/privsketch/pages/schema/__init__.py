"""A form for a schema, as a page without scripts."""
