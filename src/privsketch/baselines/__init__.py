"""Methods of others, with correct privacy, to compare with and to use where they are better.

Each reads records as `clustering` does and gives the same kind of result, with a receipt.
"""
