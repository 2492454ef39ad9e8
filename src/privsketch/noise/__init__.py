"""Sensitivity and budget become exact integer noise and a receipt.

Every draw passes through `noise.mechanism`; shares of one budget and the account that pays
with them live here too.
"""
