"""How many clusters a mixture has: groups of components that valleys part.

A mixture that explains a sketch may need several components for one cluster, which is skewed, has
heavy tails or edges. Two groups of components are two clusters if a valley parts them: a share of
the records of either lies above it, and the release itself shows it. If records of one group filled
the valley, the fit would lose more than a component has to gain, and more than the mixture leaves
unexplained. So it would if one Gaussian of any direction took the place of both, less what that has
fewer unknowns. Groups that are not parted become one, beginning with those that are parted least.

The valley is looked for along the line on which the two groups differ most (Fisher's discriminant),
where Gaussians are Gaussians in one variable. Two round clusters of equal size are parted if 3.3
standard deviations or more lie between their means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.learning.problem import Atoms

# Least share of a cluster's records above the valley to the next one. From a tenth to a half hardly
# anything changes: python -m benchmarks constants learning LEAST_ABOVE
LEAST_ABOVE = 0.25
LINE_PLACES, LINE_REACH = 400, 4.0  # of a line; beyond the means, in standard deviations
RIDGE = 1e-9  # of a covariance, relative to its trace and to the squared distance of two groups


@dataclass(frozen=True)
class ClusterCount:
    """Number of clusters of a sketch.

    Attributes
    ----------
    n_clusters : int
        Groups that are parted by more than noise, sampling and the misfit of the mixture explain.
    most : int
        Groups that are parted by more than noise and sampling explain.
    explained : bool
        Whether noise and sampling account for all that the mixture leaves.
    """

    n_clusters: int
    most: int
    explained: bool


@dataclass(frozen=True)
class Mixture:
    """A mixture, with means and variances in all coordinates, (size, dim).

    `loss` is how much worse the mixture fits with a change, atoms of positive and negative weights.
    It is in units of what a component has to gain. `loss_of_one` is the same if one Gaussian, of
    this mean and full covariance, takes the place of some components; None where it is not known.
    """

    atoms: Atoms
    means: Floats
    variances: Floats
    loss: Callable[[Atoms], float]
    loss_of_one: Callable[[Indices, Floats, Floats], float] | None = None


def count_clusters(mixture: Mixture, misfit: float) -> ClusterCount:
    """Return the number of clusters of a mixture that leaves a misfit, in the units of `loss`."""
    number = _count(mixture, 1 + misfit)
    most = _count(mixture, 1.0) if misfit > 0 else number
    return ClusterCount(number, max(number, most), misfit <= 0)


def _count(mixture: Mixture, least_loss: float) -> int:
    """Return the number of groups that valleys part, at least 1."""
    groups = [np.array([index]) for index in np.flatnonzero(mixture.atoms.weights > 0)]
    parted = np.full((len(groups), len(groups)), math.inf)
    for first in range(len(groups)):
        for second in range(first):
            parted[first, second] = parting(mixture, groups[first], groups[second], least_loss)
    while len(groups) > 1 and parted.min() < 1:
        first, second = (int(index) for index in np.unravel_index(parted.argmin(), parted.shape))
        groups[second] = np.append(groups[second], groups.pop(first))
        parted = np.delete(np.delete(parted, first, axis=0), first, axis=1)
        for other, group in enumerate(groups):
            if other != second:
                place = max(other, second), min(other, second)
                parted[place] = parting(mixture, group, groups[second], least_loss)
    return max(len(groups), 1)


def parting(mixture: Mixture, first: Indices, second: Indices, least_loss: float = 1.0) -> float:
    """Return how clearly a valley parts two groups of components; 1 and more count."""
    weights = mixture.atoms.weights
    left, left_spread = _moments(mixture, first)
    right, right_spread = _moments(mixture, second)
    spread, step = left_spread + right_spread, right - left
    distance = float(step @ step)
    if not distance > 0:
        return 0.0
    spread[np.diag_indices_from(spread)] += RIDGE * (np.trace(spread) + distance)
    direction = np.linalg.solve(spread, step)
    direction /= np.linalg.norm(direction)
    members = np.append(first, second)
    places = mixture.means[members] @ direction
    widths = np.sqrt(mixture.variances[members] @ direction**2)
    reach = LINE_REACH * widths
    line = np.linspace((places - reach).min(), (places + reach).max(), LINE_PLACES)
    widths = np.maximum(widths, line[1] - line[0])  # narrower ones would fall between its places
    heights = np.exp(-np.square((line[:, None] - places) / widths) / 2) / widths
    heights *= weights[members]
    densities = [half.sum(axis=1) for half in np.split(heights, [len(first)], axis=1)]
    begin, end = sorted(int(density.argmax()) for density in densities)
    bottom = begin + int((densities[0] + densities[1])[begin : end + 1].argmin())
    valley = densities[0][bottom] + densities[1][bottom]
    above = [float(np.maximum(each - valley, 0.0).sum() / each.sum()) for each in densities]
    parted = min(above) / LEAST_ABOVE
    if parted < 1:
        return parted
    way = float(np.clip((line[bottom] - left @ direction) / (step @ direction), 0, 1))
    sides = (above[0], first, second, way), (above[1], second, first, 1 - way)
    for share, group, other, part in sides:
        change = _moved(mixture, group, other, share * float(weights[group].sum()), part)
        parted = min(parted, mixture.loss(change) / least_loss)
    if mixture.loss_of_one is not None:
        one = mixture.loss_of_one(members, *_moments(mixture, members))
        parted = min(parted, one / least_loss)
    return parted


def _moved(mixture: Mixture, group: Indices, other: Indices, records: float, part: float) -> Atoms:
    """Return the change if records of a group went a part of the way to another one."""
    atoms = mixture.atoms
    values = np.hstack([atoms.centers, atoms.shares])
    start, end = (_mean(atoms, values, each) for each in (group, other))
    dim = atoms.centers.shape[1]
    variances = atoms.axis_variances() + np.square(atoms.centers - start[:dim])
    places = np.stack([start, start + part * (end - start)])
    return Atoms(
        np.array([-records, records]),
        places[:, :dim],
        np.tile(_mean(atoms, variances, group), (2, 1)),
        places[:, dim:],
    )


def _mean(atoms: Atoms, values: Floats, group: Indices) -> Floats:
    return np.asarray(atoms.weights[group] @ values[group] / atoms.weights[group].sum())


def _moments(mixture: Mixture, group: Indices) -> tuple[Floats, Floats]:
    """Return mean and covariance of a group of components, in all coordinates."""
    mean = _mean(mixture.atoms, mixture.means, group)
    offsets = mixture.means[group] - mean
    shares = mixture.atoms.weights[group] / mixture.atoms.weights[group].sum()
    covariance = (shares[:, None] * offsets).T @ offsets
    covariance[np.diag_indices_from(covariance)] += shares @ mixture.variances[group]
    return mean, covariance
