"""What families of records have in common: all of them lie in [-1, 1]^d.

Each is drawn anew for every repetition, parameters of its shape included.
"""

from __future__ import annotations

import numpy as np

import privsketch as ps
from benchmarks.datasets import DataSet, Maker

Rng = np.random.Generator


def in_the_box(make: Maker) -> Maker:
    """Clip records to [-1, 1]."""
    return lambda rng: np.clip(make(rng), -1, 1)


def made(name: str, k: int, dim: int, make: Maker, about: str) -> DataSet:
    """Return a family as a data set."""
    return DataSet(name, k, ps.Box(-1, 1, dim=dim), in_the_box(make), about)
