"""A record becomes integers, and how far one record can move them.

Everything here is public: feature maps, their tables, random numbers that are the same on every
machine, and bounds on what one record contributes to a sum.
"""
