"""A design for principal components: second moments or quadratic features, how many, which noise.

Both release linear functions of the matrix C = sum (x - c)(x - c)'. Second moments are all
of its d (d + 1) / 2 entries; m quadratic features determine it if its rank is low. Which is
better depends on how noise grows: Gaussian noise hardly grows with the number of entries,
so the matrix wins while it is affordable; Laplace noise grows with dim for the matrix and
with m / dim for unions of orthonormal bases, so features win for low ranks. Candidates are
ranked by the predicted loss of design/pca/error.py, with noise estimated from their sizes
alone; only the best one is drawn and calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from privsketch.budget import Budget
from privsketch.design.pca.error import UNEVEN_SHARE, lost_variance
from privsketch.design.recipe import Design, require_components
from privsketch.domain import Domain
from privsketch.errors import ParameterError
from privsketch.features.frequencies import NO_LAW, Frequencies, draw_frequencies, public_seed
from privsketch.features.maps import feature_map
from privsketch.features.masks import Masks
from privsketch.features.moments import DIAGONAL, OFF_DIAGONAL, moment_count
from privsketch.noise.calibration import kappa_discrete
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import CountMode

LARGEST_MATRIX = 512  # columns: beyond, a matrix has more than 130,000 entries
MOST_FEATURES = 6000
LARGEST_BASES = 512  # columns: beyond, drawing orthonormal bases takes minutes
SIZES = (2, 2.5, 3, 4, 6, 9)  # candidates, in features per component and column


@dataclass(frozen=True)
class PCACandidate:
    """A feature map, the law of its vectors, how many, and the kind of noise."""

    map_name: str
    law: str
    n_features: int
    noise: NoiseKind


def plan_pca(
    *,
    n_components: int,
    domain: Domain,
    budget: Budget,
    n_records: float,
    seed: int | None,
    n_features: int | None,
    map_name: str | None,
    noise: NoiseKind | None,
    masks: Masks | None,
    law: str | None,
    count: CountMode | None,
    mean: str,
    columns: tuple[str, ...] | None,
) -> Design:
    """The candidate of least predicted loss; what is given stays as given."""
    dim = len(domain.half_widths)
    require_components(n_components, dim, n_values=moment_count(dim))
    kinds: list[NoiseKind] = ["gaussian"] if budget.delta > 0 else ["laplace"]
    if budget.delta == 0 and mean == "omitted" and (masks is None or masks.features == "all"):
        kinds.append("cube")
    if noise is not None:
        kinds = [noise]
    best = min(
        _candidates(dim, n_components, n_features, map_name, law, masks, kinds),
        key=lambda candidate: estimated_loss(candidate, dim, n_components, n_records, budget),
    )
    return Design(
        task="pca",
        n_components=n_components,
        domain=domain,
        budget=budget,
        feature_map=best.map_name,
        frequencies=_draw(domain, best.law, best.n_features, public_seed(seed)),
        noise=best.noise,
        count=count or ("public" if budget.neighbours == "replace" else "released"),
        n_records=n_records,
        columns=columns,
        masks=masks,
        mean=mean,
    )


def estimated_loss(
    candidate: PCACandidate, dim: int, n_components: int, n_records: float, budget: Budget
) -> float:
    """Predicted loss with noise estimated from sizes alone, for a ball of radius 1."""
    m, epsilon = candidate.n_features, budget.epsilon
    is_matrix = candidate.map_name == "second-moments"
    replace = budget.neighbours == "replace"
    if candidate.noise == "gaussian":
        # S4 lies near 1 + sqrt(3 m / (d (d + 2))): 15 % above to 10 % below for 20 to 100 columns.
        norm = 1.0 if is_matrix else 1 + math.sqrt(3 * m / (dim * (dim + 2)))
        norm *= math.sqrt(2) if replace else 1.0
        variance = (kappa_discrete(epsilon, budget.delta) * norm) ** 2
    elif candidate.noise == "laplace":
        norm = 1 + OFF_DIAGONAL / DIAGONAL * (dim - 1) / 2 if is_matrix else m / dim
        if candidate.law == "normal":
            norm *= (1 + math.sqrt(dim / m)) ** 2
        variance = 2 * ((2 if replace else 1) * norm / epsilon) ** 2
    else:
        variance = (m + 1) * (m + 2) / 3 / epsilon / epsilon
    return lost_variance(
        dim,
        n_components,
        n_records,
        map=candidate.map_name,
        n_features=None if is_matrix else m,
        noise=candidate.noise,
        variance=variance * (DIAGONAL / OFF_DIAGONAL) ** 2 if is_matrix else variance,
        diagonal_variance=variance if is_matrix else None,
        uneven_share=UNEVEN_SHARE,
    )


def _candidates(
    dim: int,
    n_components: int,
    n_features: int | None,
    map_name: str | None,
    law: str | None,
    masks: Masks | None,
    kinds: list[NoiseKind],
) -> Iterator[PCACandidate]:
    """Feature maps with numbers of features and kinds of noise, from few features to many."""
    only_features = n_features is not None or law not in (None, NO_LAW)
    only_features = only_features or (masks is not None and masks.features != "all")
    for name in [map_name] if map_name is not None else ["second-moments", "quadratic"]:
        chosen = feature_map(name)
        if chosen.has_table:
            raise ParameterError(
                f"feature_map={name!r} with task='pca': expected 'quadratic' or 'second-moments'"
            )
        if name == "second-moments":
            if map_name is None and (only_features or dim > LARGEST_MATRIX):
                continue
            if law not in (None, NO_LAW) or n_features not in (None, moment_count(dim)):
                raise ParameterError(
                    "feature_map='second-moments' has dim (dim + 1) / 2 features and no "
                    "frequencies; leave n_features and frequencies out"
                )
            sizes, vectors = [moment_count(dim)], NO_LAW
        else:
            vectors = law or ("orthobases" if dim <= LARGEST_BASES else "normal")
            if vectors not in chosen.laws:
                raise ParameterError(
                    f"frequencies={vectors!r} with feature_map='quadratic': expected "
                    "'orthobases' or 'normal'"
                )
            sizes = [n_features] if n_features is not None else _sizes(n_components, dim)
        for size in sizes:
            for kind in kinds:
                yield PCACandidate(name, vectors, size, kind)


def _sizes(n_components: int, dim: int) -> list[int]:
    """Whole bases: the noise of a part of one is that of all of it."""
    bases = {max(2, round(factor * n_components)) for factor in SIZES}
    affordable = [b * dim for b in sorted(bases) if b * dim <= max(MOST_FEATURES, 3 * dim)]
    return affordable or [2 * n_components * dim]


def _draw(domain: Domain, law: str, n_features: int, seed: int) -> Frequencies:
    return draw_frequencies(
        domain, law=law, n_features=n_features, scales=(1.0, 1.0), seed=seed, dithered=False
    )
