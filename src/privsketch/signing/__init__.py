"""Who made a file: key pairs, detached signatures, and the public keys that somebody trusts.

A signature says that the holder of a key has put their name to these bytes. It does not say that
what is in them is true.
"""
