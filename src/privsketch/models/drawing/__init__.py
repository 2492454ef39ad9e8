"""Numbers drawn on axes, in the units of the table; matplotlib is imported when it is needed."""
