"""Released rows: projected records with noise, and what can be learned from them.

Distances, clusters and neighbours are computed from released rows alone.
"""
