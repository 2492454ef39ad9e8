"""The collector: a service that holds studies, their members and what these hand in.

Studies are open, with sketches that it adds up, or sealed, with files that it keeps and cannot
read. What routes and pages show comes from plain functions here; SQL is theirs alone.
"""
