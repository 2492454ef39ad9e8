"""What all releases of a holder have cost together: limits, entries and totals in one file.

Everything here is exact: costs are fractions, and what was reserved is spent.
"""
