"""Slow evidence: accuracy, speed and memory, ours and others'. `python -m benchmarks` lists it."""

import warnings
from contextlib import suppress

with suppress(ModuleNotFoundError):  # a peer's environment has its own packages and not ours
    from privsketch._base.errors import PrivsketchWarning

    # Budgets that hide nothing, to see what is left without noise, are meant here.
    warnings.filterwarnings("ignore", category=PrivsketchWarning)
