"""Sealed studies: holders cast ballots, tellers publish tallies, and only the total is known.

A ballot has a holder's noisy sums, cut into shares of which all but one reveal nothing. Each teller
gets one share, encrypted for it. The tallies add up to the sum over all holders.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
