"""What is asked of a table before a study.

`draft` begins a schema from names and types alone; `check` is a look for the holder's own eyes, of
which nothing may be published; `bounds` buys bounds for a schema with a share of the budget.
"""
