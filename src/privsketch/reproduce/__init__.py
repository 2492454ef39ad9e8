"""The papers' experiments, run again and set beside what was printed.

A target is one figure or table: `privsketch reproduce` lists them. Records are synthetic and
public, so what a release costs is stated and nothing is spent. docs/papers has the results.
"""
