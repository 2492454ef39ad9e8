"""`privsketch schema`: its commands, and the page of `schema edit`."""
