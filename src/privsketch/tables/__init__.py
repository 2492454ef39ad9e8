"""Tables of many kinds to blocks of records, and released rows to files."""
