"""A design for principal components: second moments or quadratic features, how many, which noise.

Both release linear functions of the matrix C = sum (x - c)(x - c)'. Second moments are all
of its d (d + 1) / 2 entries; m quadratic features determine it if its rank is low. Which is
better depends on how noise grows: Gaussian noise hardly grows with the number of entries,
so the matrix wins while it is affordable; Laplace noise grows with dim for the matrix and
with m / dim for unions of orthonormal bases, so features win for low ranks. The choice
is by the predicted loss of planning/pca_error.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privsketch.budget import Budget
from privsketch.design import Design, require_components
from privsketch.domain import Ball, Domain
from privsketch.errors import ParameterError
from privsketch.features.frequencies import NO_LAW, Frequencies, draw_frequencies, public_seed
from privsketch.features.maps import feature_map
from privsketch.features.masks import Masks
from privsketch.features.moments import moment_count
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import CountMode
from privsketch.planning.pca_forecast import predicted_loss

LARGEST_MATRIX = 512  # columns: beyond, a matrix has more than 130,000 entries
MOST_FEATURES = 6000
LARGEST_BASES = 512  # columns: beyond, drawing orthonormal bases takes minutes
SIZES = (2, 2.5, 3, 4, 6, 9)  # candidates, in features per component and column


@dataclass(frozen=True)
class Choice:
    """A design and the share of the components' variance that it is expected to lose."""

    design: Design
    lost: float


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
    require_components(n_components, dim)
    kinds: list[NoiseKind] = ["gaussian"] if budget.delta > 0 else ["laplace", "cube"]
    if noise is not None:
        kinds = [noise]
    recipes = list(
        _recipes(domain, n_components, public_seed(seed), n_features, map_name, law, masks)
    )
    found: list[Choice] = []
    refused: ParameterError | None = None
    for name, recipe in recipes:
        for kind in kinds:
            try:
                design = Design(
                    task="pca",
                    n_components=n_components,
                    domain=domain,
                    budget=budget,
                    feature_map=name,
                    frequencies=recipe,
                    noise=kind,
                    count=count or ("public" if budget.neighbours == "replace" else "released"),
                    n_records=n_records,
                    columns=columns,
                    masks=masks,
                    mean=mean,
                )
            except ParameterError as error:
                refused = error
                continue
            found.append(Choice(design, predicted_loss(design)))
    if not found:
        raise refused or ParameterError(f"feature_map={map_name!r}: nothing to choose from")
    return min(found, key=lambda choice: choice.lost).design


def _recipes(
    domain: Domain,
    n_components: int,
    seed: int,
    n_features: int | None,
    map_name: str | None,
    law: str | None,
    masks: Masks | None,
) -> Iterator[tuple[str, Frequencies]]:
    """Feature maps with their vectors, from few features to many."""
    dim = len(domain.half_widths)
    names = [map_name] if map_name is not None else ["second-moments", "quadratic"]
    only_features = n_features is not None or law not in (None, NO_LAW)
    only_features = only_features or (masks is not None and masks.features != "all")
    for name in names:
        chosen = feature_map(name)
        if chosen.name == "second-moments":
            if map_name is None and (only_features or dim > LARGEST_MATRIX):
                continue
            yield name, _draw(domain, NO_LAW, moment_count(dim), seed)
        elif not chosen.has_table and isinstance(domain, Ball):
            bases = law or ("orthobases" if dim <= LARGEST_BASES else "normal")
            for size in [n_features] if n_features is not None else _sizes(n_components, dim):
                yield name, _draw(domain, bases, size, seed)
        else:  # the design explains what is wrong
            yield name, _draw(domain, chosen.laws[0], n_features or dim, seed)


def _sizes(n_components: int, dim: int) -> list[int]:
    """Whole bases: the noise of a part of one is that of all of it."""
    bases = {max(2, round(factor * n_components)) for factor in SIZES}
    affordable = [b * dim for b in sorted(bases) if b * dim <= max(MOST_FEATURES, 3 * dim)]
    return affordable or [2 * n_components * dim]


def _draw(domain: Domain, law: str, n_features: int, seed: int) -> Frequencies:
    return draw_frequencies(
        domain, law=law, n_features=n_features, scales=(1.0, 1.0), seed=seed, dithered=False
    )
