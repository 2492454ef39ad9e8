"""Families of the first round: nothing of ours was run on them before the rules stood.

They were run once then, and are seen since. They are meant to be what tables are and the mixtures
of datasets.py, cells.py and worlds.py are not: lattices, clusters of clusters, curves, flags,
counts, shares, factors. Two have relatives there: Zipf's sizes (the cities of cells.py) and
Student's tails, which are heavier here.
"""

from __future__ import annotations

import numpy as np

from benchmarks.datasets import DataSet, Maker
from benchmarks.regret.families.family import Rng, made
from privsketch._base.types import Floats


def _zipf(k: int, rng: Rng) -> Floats:
    """Labels' probabilities 1, 1/2, 1/3, ... in random order."""
    weights = rng.permutation(1 / np.arange(1, k + 1))
    return np.asarray(weights / weights.sum())


def zipf_sizes(n: int, k: int, dim: int) -> Maker:
    """Round clusters whose sizes follow Zipf's law."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=_zipf(k, rng))
        return np.asarray(rng.uniform(-0.7, 0.7, (k, dim))[label] + rng.normal(0, 0.07, (n, dim)))

    return make


def lattice(n: int, side: int, dim: int, outliers: float) -> Maker:
    """Clusters on the sites of a lattice, and a share of records anywhere."""

    def make(rng: Rng) -> Floats:
        sites = rng.integers(side, size=(n, dim)) / (side - 1) * 1.4 - 0.7
        records = sites + rng.normal(0, 0.06, (n, dim))
        far = rng.random(n) < outliers
        records[far] = rng.uniform(-1, 1, (int(far.sum()), dim))
        return np.asarray(records)

    return make


def laplace_clusters(n: int, k: int, dim: int) -> Maker:
    """Clusters with Laplace noise along the axes, of widths of their own."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        widths = rng.uniform(0.03, 0.12, (k, dim))
        return np.asarray(
            rng.uniform(-0.6, 0.6, (k, dim))[label] + rng.laplace(0, 1, (n, dim)) * widths[label]
        )

    return make


def student_clusters(n: int, k: int, dim: int, degrees: float) -> Maker:
    """Clusters with Student's tails, the same for all columns of a record."""

    def make(rng: Rng) -> Floats:
        tails = np.sqrt(degrees / rng.chisquare(degrees, (n, 1)))
        means = rng.uniform(-0.6, 0.6, (k, dim))[rng.integers(k, size=n)]
        return np.asarray(means + 0.07 * tails * rng.normal(size=(n, dim)))

    return make


def clusters_of_clusters(n: int, outer: int, inner: int, dim: int) -> Maker:
    """Draw a few distant groups, each of several near ones."""

    def make(rng: Rng) -> Floats:
        far = rng.uniform(-0.65, 0.65, (outer, 1, dim))
        near = (far + rng.normal(0, 0.12, (outer, inner, dim))).reshape(-1, dim)
        label = rng.choice(len(near), n, p=rng.dirichlet(np.full(len(near), 2.0)))
        return np.asarray(near[label] + rng.normal(0, 0.025, (n, dim)))

    return make


def spiral(n: int, turns: float) -> Maker:
    """Draw a spiral in the plane, denser at its middle."""

    def make(rng: Rng) -> Floats:
        t = rng.uniform(0, 1, n)
        angle = 2 * np.pi * turns * t + rng.uniform(0, 2 * np.pi)
        points = 0.9 * t[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return np.asarray(points + rng.normal(0, 0.02, (n, 2)))

    return make


def tracks(n: int, n_people: int) -> Maker:
    """Positions of people who walk between home, work and a few shops of a town."""

    def make(rng: Rng) -> Floats:
        homes = np.clip(rng.normal(0, 0.45, (n_people, 2)), -0.95, 0.95)
        works = rng.normal(0, 0.12, (n_people, 2)) + rng.choice([-0.2, 0.25], (n_people, 1))
        shops = rng.uniform(-0.6, 0.6, (6, 2))
        who = rng.integers(n_people, size=n)
        places = np.stack([homes[who], works[who], shops[rng.integers(6, size=n)]])
        begin, end = rng.choice(3, n, p=(0.6, 0.3, 0.1)), rng.choice(3, n, p=(0.4, 0.4, 0.2))
        there = np.where(rng.random((n, 1)) < 0.7, 0.0, rng.random((n, 1)))  # mostly they stay
        rows = np.arange(n)
        walked = (1 - there) * places[begin, rows] + there * places[end, rows]
        return np.asarray(walked + rng.normal(0, 0.004, (n, 2)))

    return make


def flags_and_numbers(n: int, k: int, n_flags: int, n_numbers: int) -> Maker:
    """Draw groups with probabilities of flags (-1 or 1) and means of numbers."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 4.0)))
        chances = rng.beta(0.5, 0.5, (k, n_flags))[label]
        flags = np.where(rng.random((n, n_flags)) < chances, 1.0, -1.0)
        means = rng.uniform(-0.5, 0.5, (k, n_numbers))[label]
        return np.concatenate([flags, means + rng.normal(0, 0.15, (n, n_numbers))], axis=1)

    return make


def sparse_counts(n: int, k: int, dim: int) -> Maker:
    """Draw counts of words by topic, mostly 0, as logarithms; 0 to 100 a word."""

    def make(rng: Rng) -> Floats:
        topics = rng.dirichlet(np.full(dim, 0.15), k)
        length = rng.lognormal(2.5, 0.6, (n, 1))
        counts = rng.poisson(topics[rng.integers(k, size=n)] * length)
        return np.asarray(2 * np.log1p(counts) / np.log1p(100) - 1)

    return make


def factors(n: int, k: int, rank: int, dim: int) -> Maker:
    """Draw groups of a few hidden factors, observed in many columns with noise."""

    def make(rng: Rng) -> Floats:
        hidden = rng.normal(size=(k, rank))[rng.integers(k, size=n)]
        hidden = hidden + 0.35 * rng.normal(size=(n, rank))
        seen = hidden @ rng.normal(size=(rank, dim)) / np.sqrt(rank)
        return np.asarray(0.3 * seen + rng.normal(0, 0.08, (n, dim)))

    return make


def spending(n: int, k: int, dim: int) -> Maker:
    """Amounts a month of households by kind, 0 to 10,000, as logarithms; some buy nothing."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=_zipf(k, rng))
        levels = rng.normal(4, 1, dim) + rng.normal(0, 0.8, (k, dim))
        size = rng.normal(0, 0.5, (n, 1))  # rich households buy more of everything
        amounts = np.exp(levels[label] + size + rng.normal(0, 0.5, (n, dim)))
        amounts[rng.random((n, dim)) < rng.beta(1, 5, (k, dim))[label]] = 0
        return np.asarray(2 * np.log1p(amounts) / np.log1p(10_000) - 1)

    return make


def daily_curves(n: int, k: int) -> Maker:
    """Use of power in 24 hours: peaks at hours of a kind of customer."""

    def make(rng: Rng) -> Floats:
        hours = np.arange(24)
        peaks, heights = rng.uniform(0, 24, (k, 2, 1)), rng.uniform(0.3, 1, (k, 2, 1))
        apart = np.abs((hours - peaks + 12) % 24 - 12)
        shapes = (heights * np.exp(-((apart / 3) ** 2))).sum(axis=1)
        level = rng.lognormal(-0.2, 0.3, (n, 1))
        curves = level * (0.2 + shapes[rng.integers(k, size=n)]) + rng.normal(0, 0.1, (n, 24))
        return np.asarray(curves - 1)

    return make


def shares(n: int, k: int, dim: int) -> Maker:
    """Shares that add up to 1, 0 to 1 a column."""

    def make(rng: Rng) -> Floats:
        mean = rng.dirichlet(np.ones(dim), k)[rng.integers(k, size=n)]
        parts = rng.gamma(25 * mean + 1e-3)
        return np.asarray(2 * parts / parts.sum(axis=1, keepdims=True) - 1)

    return make


def latent_classes(n: int, k: int, dim: int) -> Maker:
    """Yes or no to many questions (-1 or 1), by class."""

    def make(rng: Rng) -> Floats:
        chances = rng.uniform(0.05, 0.95, (k, dim))[rng.integers(k, size=n)]
        return np.where(rng.random((n, dim)) < chances, 1.0, -1.0)

    return make


def two_populations(n: int, dim: int) -> Maker:
    """Two overlapping groups, one three times as large and as wide as the other."""

    def make(rng: Rng) -> Floats:
        small = rng.random((n, 1)) < 0.25
        apart = rng.normal(size=dim)
        means = np.where(small, 0.35, -0.15) * apart / np.linalg.norm(apart)
        return np.asarray(means + np.where(small, 0.08, 0.24) * rng.normal(size=(n, dim)))

    return make


def one_column(n: int) -> Maker:
    """Draw a column with two modes, peaks at round numbers and a long tail."""

    def make(rng: Rng) -> Floats:
        lumps = rng.normal(np.where(rng.random(n) < 0.6, -0.7, -0.3), 0.06)
        found = np.where(rng.random(n) < 0.25, rng.exponential(0.35, n) - 0.6, lumps)
        heaps = rng.random(n) < 0.3
        found[heaps] = np.round(found[heaps] * 10) / 10
        return np.asarray(found[:, None])

    return make


def boxes(n: int, k: int, dim: int) -> Maker:
    """Boxes of all sizes filled evenly, as many records in each."""

    def make(rng: Rng) -> Floats:
        middles = rng.uniform(-0.8, 0.8, (k, dim))
        sides = rng.lognormal(-2.8, 0.6, (k, dim))
        label = rng.integers(k, size=n)
        return np.asarray(middles[label] + sides[label] * rng.uniform(-1, 1, (n, dim)))

    return make


def shells(n: int, dim: int) -> Maker:
    """Three spheres, one in the other: no cluster has its middle where records are."""

    def make(rng: Rng) -> Floats:
        points = rng.normal(size=(n, dim))
        radius = rng.choice([0.2, 0.5, 0.9], (n, 1), p=(0.2, 0.3, 0.5))
        radius = radius + rng.normal(0, 0.02, (n, 1))
        return np.asarray(radius * points / np.linalg.norm(points, axis=1, keepdims=True))

    return make


FAMILIES: list[DataSet] = [
    made("Zipf sizes", 40, 10, zipf_sizes(20_000, 40, 10), "clusters of sizes 1, 1/2, 1/3, ..."),
    made("lattice", 16, 2, lattice(9_000, 4, 2, 0.05), "4 x 4 sites, 5 % of records anywhere"),
    made("Laplace", 6, 10, laplace_clusters(8_000, 6, 10), "Laplace noise around 6 means"),
    made("Student", 9, 5, student_clusters(15_000, 9, 5, 2.5), "tails of 2.5 degrees"),
    made(
        "clusters of clusters",
        16,
        9,
        clusters_of_clusters(8_000, 4, 4, 9),
        "4 groups of 4 tight groups",
    ),
    made("spiral", 12, 2, spiral(4_000, 2.5), "two turns and a half in the plane"),
    made("tracks", 20, 2, tracks(20_000, 200), "positions of 200 people in a town"),
    made(
        "flags and numbers",
        5,
        12,
        flags_and_numbers(6_000, 5, 6, 6),
        "6 columns of -1 or 1, 6 of numbers",
    ),
    made("words", 8, 20, sparse_counts(7_000, 8, 20), "logarithms of counts, most of them 0"),
    made("factors, 24 columns", 6, 24, factors(10_000, 6, 3, 24), "3 factors in 24 columns"),
    made("factors, 15 columns", 3, 15, factors(2_000, 3, 2, 15), "2 factors in 15 columns"),
    made("spending", 10, 9, spending(30_000, 10, 9), "log-normal amounts and many zeros"),
    made("daily curves", 4, 24, daily_curves(3_000, 4), "use of power in 24 hours"),
    made("shares", 6, 7, shares(5_000, 6, 7), "7 shares that add up to 1"),
    made("latent classes", 3, 30, latent_classes(4_000, 3, 30), "30 answers, yes or no"),
    made("two populations", 2, 3, two_populations(300, 3), "300 records of two groups"),
    made("one column", 7, 1, one_column(2_000), "lumps, heaps at round numbers, a tail"),
    made("boxes", 12, 3, boxes(10_000, 12, 3), "12 boxes of all sizes, filled evenly"),
    made("shells", 10, 3, shells(10_000, 3), "three spheres, one in the other"),
]
