"""Slow evidence: accuracy, speed and memory, ours and others'. `python -m benchmarks` lists it."""

import warnings

from privsketch._base.errors import PrivsketchWarning

# Budgets that hide nothing, to see what is left without noise, are meant here.
warnings.filterwarnings("ignore", category=PrivsketchWarning)
