"""Shared foundations: errors, file formats, plugins, threads, elementary functions, array types.

Nothing here depends on records, noise or models.
"""
