"""Releases of ours in other libraries' own terms: a sketch as one of OpenDP's measurements."""
