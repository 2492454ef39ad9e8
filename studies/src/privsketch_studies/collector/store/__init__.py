"""The database of a collector: its tables, transactions and migrations."""
