"""The same sums on many processes or machines; noise is drawn once, by the caller."""
