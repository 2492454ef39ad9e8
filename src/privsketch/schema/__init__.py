"""What is public about a table: kinds and bounds of its columns, missing values, persons.

A schema is written by people, never read off records. `columns` has the kinds, each of which turns
values into coordinates and back, `table` puts them together, `units` says results in the units of
the table.
"""
