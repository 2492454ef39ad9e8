"""The ledger: what all releases of a holder cost together, with limits, in one file.

All arithmetic is exact: costs are fractions. A reserved cost is spent.
"""
