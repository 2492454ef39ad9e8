"""Slow evidence: accuracy, speed and memory, ours and others'. `python -m benchmarks` lists it."""
