"""Sketches of several sources beside each other: who is unlike the others, does a unit explain it?

Everything here is a function of public sketches, and costs nothing.
"""
