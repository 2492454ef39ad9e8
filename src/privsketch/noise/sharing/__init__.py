"""The noise of a total that nobody sees the terms of: holders add parts of it, or tellers wholes.

Where only the sum over holders is ever shown, the noise of one release is enough for all of them.
Who adds it, how much of it, for how many that take part, and what everybody risks: public facts of
a study, and the draws. How a sum is computed without showing its terms is another matter.
"""
