"""Families of the second round: sizes, shapes and numbers of clusters stood before any run.

What tables have and those of first.py do not: answers out of a list, states that last, times of
day, the same record over and over, gaps that were filled, paths, vectors of length 1, people with
nothing to declare, dates in order, crowds within crowds, no groups at all, one case in a hundred,
genes, bounds by guess, marks that end at the top. They were run then, and are seen since.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from benchmarks.datasets import DataSet, Maker
from benchmarks.regret.families.family import Rng, made
from privsketch._base.types import Floats


def categories(n: int, k: int, options: tuple[int, ...]) -> Maker:
    """One answer out of a list to each question, a column of -1 or 1 for each answer."""

    def make(rng: Rng) -> Floats:
        label = rng.integers(k, size=n)
        parts = []
        for size in options:
            ends = rng.dirichlet(np.full(size, 0.6), k).cumsum(axis=1)[:, :-1]
            answer = (rng.random((n, 1)) > ends[label]).sum(axis=1)
            parts.append(2 * np.eye(size)[answer] - 1)
        return np.concatenate(parts, axis=1)

    return make


def regimes(n: int, k: int, dim: int) -> Maker:
    """Sensors of a machine that stays in a state, moves over to the next, and drifts."""

    def make(rng: Rng) -> Floats:
        states = np.repeat(rng.integers(k, size=n), rng.geometric(1 / 150, n))[: n + 29]
        levels = rng.uniform(-0.7, 0.7, (k, dim))[states]
        sums = np.concatenate([np.zeros((1, dim)), levels.cumsum(axis=0)])
        moved = (sums[30:] - sums[:-30]) / 30
        drift = rng.normal(0, 0.15 / np.sqrt(n), (n, dim)).cumsum(axis=0)
        return np.asarray(moved + drift + rng.normal(0, 0.03, (n, dim)))

    return make


def clock(n: int, kinds: int) -> Maker:
    """Hours and days of the week of visits, each as a point of a circle."""

    def make(rng: Rng) -> Floats:
        kind = rng.choice(kinds, n, p=rng.dirichlet(np.full(kinds, 2.0)))
        hour = rng.vonmises(rng.uniform(-np.pi, np.pi, kinds)[kind], 6)
        ends = rng.dirichlet(np.full(7, 0.7), kinds).cumsum(axis=1)[:, :-1]
        day = 2 * np.pi / 7 * (rng.random((n, 1)) > ends[kind]).sum(axis=1)
        return np.stack([np.cos(hour), np.sin(hour), np.cos(day), np.sin(day)], axis=1)

    return make


def catalogue(n: int, n_items: int, dim: int) -> Maker:
    """Purchases of some hundred things: the same records over and over, some of them often."""

    def make(rng: Rng) -> Floats:
        quality = rng.normal(size=(n_items, 1))
        items = 0.2 * quality * rng.normal(size=dim) + rng.normal(0, 0.25, (n_items, dim))
        popular = rng.lognormal(0, 1.3, n_items)
        return np.asarray(items[rng.choice(n_items, n, p=popular / popular.sum())])

    return make


def filled_gaps(n: int, k: int, dim: int) -> Maker:
    """Numbers of groups with gaps, in some columns and of some people many, filled with 0."""

    def make(rng: Rng) -> Floats:
        means = rng.uniform(-0.6, 0.6, (k, dim))
        records = means[rng.integers(k, size=n)] + rng.normal(0, 0.15, (n, dim))
        chance = rng.beta(1, 3, dim) * rng.gamma(1, 1, (n, 1))
        return np.where(rng.random((n, dim)) < chance, 0.0, records)

    return make


def walks(n: int, dim: int) -> Maker:
    """Paths that begin at 0 and go on by chance, some of them wildly."""

    def make(rng: Rng) -> Floats:
        step = rng.lognormal(np.log(0.06), 0.4, (n, 1))
        return np.asarray((step * rng.normal(size=(n, dim))).cumsum(axis=1))

    return make


def embeddings(n: int, k: int, dim: int) -> Maker:
    """Vectors of length 1 by topic, all of them on one side, with few strong directions."""

    def make(rng: Rng) -> Floats:
        turn, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
        strength = np.arange(1, dim + 1) ** -0.5
        topics = rng.normal(size=(k, dim)) * strength
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        found = 0.7 * rng.normal(size=dim) + topics[label]
        found = (found + 0.8 * rng.normal(size=(n, dim)) * strength) @ turn
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))

    return make


def claims(n: int, dim: int) -> Maker:
    """Money claimed of an insurer by kind: mostly nothing at all, now and then a lot."""

    def make(rng: Rng) -> Floats:
        chance = rng.dirichlet(np.full(dim, 3.0)) * dim
        happened = rng.random((n, dim)) < 0.08 * chance * rng.gamma(1, 1, (n, 1))
        amounts = rng.lognormal(rng.normal(-1, 0.4, dim), 0.8, (n, dim))
        return np.where(happened, amounts, 0.0) - 1

    return make


def dates(n: int) -> Maker:
    """Days of a year at which orders came, went out and were paid, one after the other."""

    def make(rng: Rng) -> Floats:
        season = rng.random(n) < 0.35
        came = np.where(season, rng.normal(320, 18, n), rng.uniform(0, 365, n))
        out = came + rng.geometric(0.25, n)
        paid = out + rng.choice([0, 14, 30, 60], n, p=(0.3, 0.2, 0.35, 0.15))
        days = np.stack([came, out, paid + rng.geometric(0.2, n)], axis=1)
        return np.asarray(2 * np.floor(days) / 455 - 1)  # a payment may take three months more

    return make


def crowds(n: int, depth: int) -> Maker:
    """Divide a square into four again and again, with random shares: dense at every scale."""

    def make(rng: Rng) -> Floats:
        share, corner = np.ones(1), np.zeros((1, 2))
        quarters = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        for _ in range(depth):
            share = (share[:, None] * rng.dirichlet(np.full(4, 1.5), len(share))).ravel()
            corner = (2 * corner[:, None] + quarters).reshape(-1, 2)
        cell = corner[rng.choice(len(share), n, p=share / share.sum())]
        return np.asarray(2 * (cell + rng.random((n, 2))) / 2**depth - 1)

    return make


def without_groups(n: int, dim: int) -> Maker:
    """Columns that hang together and have no groups: even, skewed, in five steps, yes or no."""

    def make(rng: Rng) -> Floats:
        loads = rng.uniform(-0.9, 0.9, (2, dim)) / np.sqrt(2)
        own = np.sqrt(1 - (loads**2).sum(axis=0))
        ranks = ndtr(rng.normal(size=(n, 2)) @ loads + own * rng.normal(size=(n, dim)))
        kinds = [
            2 * ranks - 1,
            -0.4 * np.log1p(-ranks) - 1,
            np.floor(5 * ranks) / 2 - 1,
            np.where(ranks > 0.7, 1.0, -1.0),
        ]
        return np.stack([kinds[j % 4][:, j] for j in range(dim)], axis=1)

    return make


def rare_cases(n: int, k: int, dim: int) -> Maker:
    """One wide group, and others of a hundredth of all records each, off to a side."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=[1 - 0.01 * (k - 1)] + [0.01] * (k - 1))
        bulk = rng.normal(size=(n, dim)) @ rng.normal(0, 0.18 / np.sqrt(dim), (dim, dim))
        bulk += rng.normal(0, 0.05, (n, dim))
        means = rng.choice([-0.6, 0.0, 0.6], (k, dim), p=(0.25, 0.5, 0.25))
        small = means[label] + rng.normal(0, 0.06, (n, dim))
        return np.where(label[:, None] == 0, bulk, small)

    return make


def genotypes(n: int, k: int, dim: int, apart: float) -> Maker:
    """0, 1 or 2 copies of genes in populations that drifted apart; some people are of several."""

    def make(rng: Rng) -> Floats:
        shared = rng.uniform(0.1, 0.9, dim)
        spread = (1 - apart) / apart
        often = rng.beta(shared * spread, (1 - shared) * spread, (k, dim))
        pure = np.eye(k)[rng.integers(k, size=n)]
        origin = np.where(rng.random((n, 1)) < 0.2, rng.dirichlet(np.ones(k), n), pure)
        return np.asarray(rng.binomial(2, np.clip(origin @ often, 0, 1)) - 1.0)

    return make


def guessed_bounds(n: int, k: int, dim: int, too_wide: float) -> Maker:
    """Draw groups in columns of which every second has far too wide bounds."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        widths = rng.uniform(0.05, 0.2, (k, 1))[label]
        records = rng.uniform(-0.7, 0.7, (k, dim))[label] + widths * rng.normal(size=(n, dim))
        narrow = np.arange(dim) % 2 == 1
        moved = rng.uniform(-0.5, 0.5, dim)
        return np.where(narrow, records / too_wide + moved, records)

    return make


def marks(n: int, dim: int) -> Maker:
    """Draw marks of pupils of two schools, 0 to 100 in steps of 5, many of them at the top."""

    def make(rng: Rng) -> Floats:
        school = rng.random((n, 1)) < 0.4
        ability = np.where(school, 90.0, 65.0) + rng.normal(0, 12, (n, 1))
        points = ability + rng.normal(0, 8, dim) + rng.normal(0, 9, (n, dim))
        return np.asarray(np.clip(np.round(points / 5) * 5, 0, 100) / 50 - 1)

    return make


FAMILIES: list[DataSet] = [
    made(
        "categories",
        8,
        24,
        categories(9_000, 8, (2, 3, 4, 4, 5, 6)),
        "6 questions, a column for each answer",
    ),
    made("regimes", 6, 6, regimes(15_000, 6, 6), "6 sensors of a machine, and its states"),
    made("clock", 14, 4, clock(12_000, 5), "hours and days of the week as points of circles"),
    made("catalogue", 25, 5, catalogue(20_000, 500, 5), "500 things that are bought again"),
    made("filled gaps", 5, 10, filled_gaps(5_000, 5, 10), "groups, gaps filled with 0"),
    made("walks", 6, 30, walks(2_500, 30), "paths of 30 steps by chance"),
    made("embeddings", 12, 48, embeddings(12_000, 12, 48), "vectors of length 1 by topic"),
    made("claims", 6, 4, claims(25_000, 4), "mostly nothing, now and then a lot"),
    made("dates", 7, 3, dates(3_000), "days of orders, of dispatch and of payment"),
    made("crowds", 30, 2, crowds(30_000, 7), "dense places at any scale"),
    made("without groups", 4, 8, without_groups(2_000, 8), "columns of four kinds, no groups"),
    made("rare cases", 4, 12, rare_cases(10_000, 4, 12), "three groups of 1 % each"),
    made("genotypes", 3, 60, genotypes(1_200, 3, 60, 0.15), "60 genes of three populations"),
    made("guessed bounds", 5, 6, guessed_bounds(4_000, 5, 6, 8), "every other bound is too wide"),
    made("marks", 2, 6, marks(200, 6), "marks of 200 pupils, many at the top"),
]
