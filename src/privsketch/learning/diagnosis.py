"""How far clusters can be trusted: reasons to doubt, in words.

Everything here is computed from the sketch and the model: free post-processing.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._typing import Floats
from privsketch.design.forecast import HOPELESS
from privsketch.domain import Ball, Domain
from privsketch.models.clusters import KMeansModel
from privsketch.sketching.sketch import Sketch

EDGE = 0.999  # of the way from the centre of the domain
MISFIT = 1.5  # misfit over expectation above which the clusters do not explain the sketch


def no_knowledge(half_widths: Floats) -> Floats:
    """Standard deviations of a point that may be anywhere in the domain."""
    return np.asarray(half_widths / math.sqrt(3))


def on_the_edge(centers: Floats, weights: Floats, domain: Domain) -> list[str]:
    """A concern if clusters or components sit where records outside the domain end up."""
    offsets = np.abs(centers - domain.center_vector)
    if isinstance(domain, Ball):
        outward = np.linalg.norm(offsets, axis=1) / domain.radius
    else:
        outward = (offsets / domain.half_widths).max(axis=1)
    share = float(weights[outward > EDGE].sum())
    if share < 0.01:
        return []
    return [
        f"{share:.0%} of the records are around centres on the edge of the domain, where records "
        "outside of it end up: it is too narrow, or the records are in other units"
    ]


def missing_records(n_records: float, sketch: Sketch) -> list[str]:
    """A concern if a fit accounts for far fewer or more records than the sketch counts."""
    count = sketch.n_records
    if count is None:
        return []
    away = abs(n_records - count)
    if away < 0.1 * count or away < 10 * math.sqrt(sketch.noise_variance):
        return []
    return [
        f"the fit accounts for {max(n_records, 0.0):.0f} of about {count:.0f} records: more "
        "clusters or components, or a wider domain, may account for the others"
    ]


def concerns(model: KMeansModel, sketch: Sketch) -> tuple[str, ...]:
    """Reasons to doubt the clusters, in words."""
    found = []
    noise = math.sqrt(sketch.noise_variance) * model.n_clusters / max(model.n_records, 1.0)
    if noise > HOPELESS:
        found.append(
            f"the noise per number is {noise:.0%} of a cluster of average size: the centres may "
            "describe the noise"
        )
    on_edge = on_the_edge(model.centers, model.weights, sketch.design.domain)
    found += on_edge
    found += missing_records(model.n_records, sketch)
    ratio = model.residual / model.expected_residual
    if ratio > MISFIT and model.residual > model.expected_residual + 4 * model.residual_spread:
        found.append(
            f"the misfit is {ratio:.1f} times what noise and sampling leave: more clusters, "
            "clusters of other shapes, or a search that got stuck (try more starts); centres can "
            "still be good"
        )
    finest = sketch.design.frequencies.scales[0]
    mean = model.weights @ model.centers
    spread = math.sqrt(float(np.mean(model.weights @ np.square(model.centers - mean))))
    extent = math.hypot(spread, model.width)
    if extent < 1.5 * finest and noise <= HOPELESS and not on_edge:
        found.append(
            f"all records lie within about {extent:.2g} of each other, and the design resolves "
            f"{finest:.2g}: the domain may be far too wide for them"
        )
    return tuple(found)
