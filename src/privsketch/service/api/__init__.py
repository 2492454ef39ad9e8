"""REST: addresses below /api/v1, what they take and give."""
