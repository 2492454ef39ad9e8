"""Curves of the constants in `privsketch.features`."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.constants import Curve
from privsketch.features.quadratic import quartic_bounds

_SIZES = ((200, 12), (800, 24), (2400, 40), (3200, 80))  # vectors and columns


def _bounds() -> dict[str, float]:
    """Measure time and bound for vectors of different lengths, for which bounds differ."""
    rng, facts = np.random.default_rng(0), {}
    for n_vectors, dim in _SIZES:
        vectors = rng.normal(size=(n_vectors, dim)) / np.sqrt(dim)
        start = time.process_time()
        bound = quartic_bounds(vectors).s4
        facts[f"S4 ({n_vectors}, {dim})"] = bound
        facts[f"seconds ({n_vectors}, {dim})"] = time.process_time() - start
    return facts


CURVES = (
    Curve(
        "privsketch.features.quadratic.MAX_DUAL",
        (0, 100, 300, 1000),
        _bounds,
        "Bound S4 on normal vectors, and the time it takes. Noise grows in proportion to S4.",
    ),
    Curve(
        "privsketch.features.quadratic.MAX_SPLIT",
        (100, 400, 1000, 2500, 4000),
        _bounds,
        "Bound S4 on normal vectors, and the time it takes. Noise grows in proportion to S4.",
    ),
)
