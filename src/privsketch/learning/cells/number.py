"""The number of clusters of noisy counts: the mixture with the most evidence, and its valleys.

As for waves (`learning/kmeans/number.py`), Schwarz' criterion chooses one of the fits of a path of
decreasing sizes, and `learning/modes.py` counts the groups of its components that valleys part.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._base.threads import one_thread
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.fit import Components, Fit, expected_counts, likelihood_of
from privsketch.learning.cells.partition import partition_of
from privsketch.learning.cells.path import search
from privsketch.learning.cells.sparse import merged
from privsketch.learning.modes import ClusterCount, Mixture, count_clusters
from privsketch.learning.problem import Atoms
from privsketch.learning.uncertainty import MAX_RESIDUAL_EXCESS


def count_in_cells(boxes: Boxes, max_clusters: int, rng: np.random.Generator) -> ClusterCount:
    """Return the number of clusters of noisy counts, at most `max_clusters`."""
    with one_thread():
        per_unknown = math.log(max(boxes.n_boxes, 2))
        boxes, _ = merged(boxes)

        def schwarz(fit: Fit) -> float:
            return 2 * fit.value + _unknowns(fit) * per_unknown

        fits = search(boxes, max_clusters, rng, min_size=1)
        largest = max(max_clusters, min(fit.components.size for fit in fits))
        best = min((fit for fit in fits if fit.components.size <= largest), key=schwarz)
        parts, partition = best.components, partition_of(boxes)
        law = likelihood_of(boxes, expected_counts(partition, parts))
        price = _unknowns(best) / parts.size * per_unknown

        def loss(change: Atoms) -> float:
            weights, widths = np.append(change.weights, 0.0), np.sqrt(change.variances)
            moved = Components(weights, change.centers, widths, change.shares)
            counts = expected_counts(partition, moved)
            return float(law.information @ np.square(counts)) / price

        atoms = Atoms(parts.weights[:-1], parts.centers, parts.widths**2, parts.shares)
        means = boxes.means(parts.centers, parts.shares)
        mixture = Mixture(atoms, means, boxes.variances(parts.widths**2, parts.shares), loss)
        # What the largest allowed number leaves, others may explain.
        misfit = _misfit(boxes, min(fits, key=schwarz).components)
        number = count_clusters(mixture, misfit / price)
    return number


def _misfit(boxes: Boxes, components: Components) -> float:
    """Return the squared misfit beyond noise and sampling, or 0 if these explain all of it."""
    expected = expected_counts(partition_of(boxes), components)
    law = likelihood_of(boxes, expected)
    excess = float(law.information @ (np.square(boxes.counts - expected) - law.variance))
    tails = 3 * boxes.variance**2 / boxes.n_noises + np.maximum(expected, 0.0)  # of Laplace noise
    spread = math.sqrt(float(law.information**2 @ (2 * law.variance**2 + tails)))
    return excess if excess > MAX_RESIDUAL_EXCESS * spread else 0.0


def _unknowns(fit: Fit) -> int:
    return fit.n_unknowns + fit.components.size
