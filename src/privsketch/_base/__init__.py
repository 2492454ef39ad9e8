"""What every other folder uses: errors, file formats, threads, elementary functions, array types.

Nothing here knows about records, noise or models.
"""
