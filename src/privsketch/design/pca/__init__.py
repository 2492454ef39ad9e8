"""Designs for principal components: planned, and their errors foretold."""
