"""Private release of projected records: Algorithms 1 and 2 of JLL, corrected.

Every record is projected to a few dimensions and gets noise of its own, so that any learning
algorithm can be used afterwards. Noise hides one record behind the domain, not behind the other
records: it does not shrink with their number. docs/projection.md says what is protected.
"""
