"""Comparison of sources by their sketches: which one differs, and whether a unit explains it.

Everything here is computed from public sketches and costs nothing.
"""
