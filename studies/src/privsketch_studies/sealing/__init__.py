"""Sealed studies: holders cast ballots, tellers publish tallies, and only the total shows.

A ballot is a holder's noisy sums, cut into shares of which all but one say nothing; every teller
gets one of them under a key of its own. What tellers publish adds up to the sum over all holders.
"""
