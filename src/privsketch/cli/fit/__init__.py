"""Commands that turn the table of one holder into a private model."""
