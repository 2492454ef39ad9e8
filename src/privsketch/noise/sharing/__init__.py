"""Noise of a total whose terms nobody sees: holders add parts of it, or tellers add whole ones.

Only the sum over holders is shown, so the noise of one release suffices for all of them. This
folder plans who adds it, how much, for how many participants, and at what risk for each party, and
draws it. Other code computes the sum without showing its terms.
"""
