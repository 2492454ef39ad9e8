"""Families of the third round: sizes, shapes and numbers of clusters stood before any run.

What tables have and those of the first two rounds do not: money as it is, blends of a few kinds
and nothing pure, cores with halos, counts by hour, columns that copy others and columns that never
change, bounds ten times too wide all around, columns with tails of their own, a closed curve in six
columns, many groups of unlike sizes, groups that differ in three of thirty columns, answers between
"no" and "yes" by people who like extremes or avoid them, and a fan.
"""

from __future__ import annotations

import numpy as np

from benchmarks.datasets import DataSet, Maker
from benchmarks.regret.families.family import Rng, made
from privsketch._base.types import Floats


def payments(n: int, k: int, dim: int) -> Maker:
    """Money by kind, 0 to 20,000 as it is: exponential or log-normal columns, some pay nothing."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 2.0)))
        scale = rng.lognormal(6.5, 1.0, (k, dim))[label]
        spread = rng.normal(0, 0.7, (n, dim))
        random = np.where(np.arange(dim) % 2 == 0, rng.exponential(1, (n, dim)), np.exp(spread))
        pays = rng.random((n, dim)) < rng.beta(3, 1, (k, dim))[label]
        return np.asarray(np.round(scale * random * pays, 2) / 10_000 - 1)

    return make


def blends(n: int, k: int, dim: int) -> Maker:
    """Blends of k substances seen in many channels with noise: no group is apart from others."""

    def make(rng: Rng) -> Floats:
        channel = np.arange(dim) / dim
        places, widths = rng.random((k, 3, 1)), rng.uniform(0.02, 0.1, (k, 3, 1))
        heights = rng.uniform(0.2, 1, (k, 3, 1))
        spectra = (heights * np.exp(-(((channel - places) / widths) ** 2))).sum(axis=1)
        parts = rng.dirichlet(rng.uniform(0.3, 1.5, k), n)
        amount = rng.lognormal(0, 0.15, (n, 1))
        return np.asarray(1.2 * amount * parts @ spectra - 0.9 + rng.normal(0, 0.03, (n, dim)))

    return make


def cores_and_halos(n: int, k: int, dim: int) -> Maker:
    """Tight groups, each in the middle of a wide one that runs into its neighbours."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        inside = rng.random((n, 1)) < rng.uniform(0.3, 0.8, (k, 1))[label]
        width = np.where(inside, 0.015, rng.uniform(0.12, 0.3, (k, 1))[label])
        return np.asarray(
            rng.uniform(-0.6, 0.6, (k, dim))[label] + width * rng.normal(size=(n, dim))
        )

    return make


def hours(n: int, k: int) -> Maker:
    """Draw counts of calls in twelve times of a day, up to 60; at night mostly none."""

    def make(rng: Rng) -> Floats:
        time = np.arange(12)
        peaks = rng.uniform(3, 11, (k, 1))
        shape = 0.05 + np.exp(-(((time - peaks) / rng.uniform(0.7, 2.5, (k, 1))) ** 2))
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        busy = rng.uniform(3, 20, k)[label, None] * rng.gamma(2.5, 1 / 2.5, (n, 1))
        closed = rng.random((n, 12)) < 0.2
        return np.where(closed, 0, rng.poisson(busy * shape[label])) / 30 - 1

    return make


def copies(n: int, k: int) -> Maker:
    """Three columns of groups, each three times with 1 % of noise, and four that never change."""

    def make(rng: Rng) -> Floats:
        label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 4.0)))
        once = rng.uniform(-0.6, 0.6, (k, 3))[label] + rng.normal(0, 0.12, (n, 3))
        thrice = np.tile(once, 3) + rng.normal(0, 0.01, (n, 9))
        return np.concatenate([thrice, np.tile([-1.0, -0.3, 0.0, 1.0], (n, 1))], axis=1)

    return make


def too_wide(n: int, k: int, dim: int, factor: float) -> Maker:
    """Draw groups somewhere in a box whose sides are all `factor` times too long."""

    def make(rng: Rng) -> Floats:
        weights = rng.dirichlet(np.full(k, 2.0))
        label = rng.choice(k, n, p=weights)
        widths = rng.uniform(0.03, 0.12, (k, dim))[label]
        records = rng.uniform(-0.8, 0.8, (k, dim))[label] + widths * rng.normal(size=(n, dim))
        return np.asarray(records / factor + rng.uniform(-0.7, 0.7, dim))

    return make


def own_tails(n: int, k: int, dim: int) -> Maker:
    """Draw groups whose columns have Student's tails of two degrees each; bounds cut few off."""

    def make(rng: Rng) -> Floats:
        means = rng.normal(0, 0.2, (k, dim))[rng.integers(k, size=n)]
        return np.asarray(means + rng.uniform(0.02, 0.06, dim) * rng.standard_t(2, (n, dim)))

    return make


def ring(n: int, dim: int) -> Maker:
    """Draw a closed curve through all columns, uneven along its way, with noise around it."""

    def make(rng: Rng) -> Floats:
        angle = rng.vonmises(rng.uniform(-np.pi, np.pi), 0.6, n)[:, None] * np.arange(1, 4)
        waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        strength = np.tile([0.45, 0.25, 0.12], 2)
        turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
        curve = (strength * waves) @ turn[:, :dim]
        return np.asarray(curve + rng.normal(0, 0.02, (n, dim)))

    return make


def many(n: int, k: int, dim: int) -> Maker:
    """Many groups of unlike sizes and widths, some of them one over the other."""

    def make(rng: Rng) -> Floats:
        weights = rng.lognormal(0, 1, k)
        label = rng.choice(k, n, p=weights / weights.sum())
        widths = rng.lognormal(np.log(0.05), 0.6, (k, 1))[label]
        return np.asarray(
            rng.uniform(-0.8, 0.8, (k, dim))[label] + widths * rng.normal(size=(n, dim))
        )

    return make


def few_that_tell(n: int, k: int, dim: int, telling: int) -> Maker:
    """Draw groups that differ in a few columns; the others are alike and of any shape."""

    def make(rng: Rng) -> Floats:
        label = rng.integers(k, size=n)
        shapes = [
            rng.normal(0, 0.15, (n, dim)),
            rng.exponential(0.15, (n, dim)) - 1,
            rng.uniform(-0.3, 0.3, (n, dim)),
            rng.binomial(4, 0.15, (n, dim)) / 2 - 1,
        ]
        records = np.stack([shapes[j % 4][:, j] for j in range(dim)], axis=1)
        means = rng.permuted(np.tile(np.linspace(-0.7, 0.7, k)[:, None], telling), axis=0)
        there = rng.choice(dim, telling, replace=False)
        records[:, there] = means[label] + rng.normal(0, 0.08, (n, telling))
        return records

    return make


def answers(n: int, k: int, dim: int) -> Maker:
    """Answers 1 to 5 to questions, by class; people differ in how far from the middle they go."""

    def make(rng: Rng) -> Floats:
        opinion = rng.normal(0, 1.0, (k, dim))[rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))]
        style = rng.lognormal(0, 0.5, (n, 1))
        inclined = 0.4 * rng.normal(size=(n, 1))  # some agree with everything
        felt = style * (opinion + rng.normal(0, 0.7, (n, dim))) + inclined
        return np.digitize(felt, [-1.5, -0.5, 0.5, 1.5]) / 2 - 1

    return make


def fan(n: int) -> Maker:
    """Ages and incomes in thousands: the older, the wider apart; 18 to 98 and 0 to 500."""

    def make(rng: Rng) -> Floats:
        age = np.clip(np.floor(18 + rng.gamma(3.5, 7.5, n)), 18, 98)
        spread = 0.15 + 0.5 * np.minimum(age - 18, 40) / 40
        income = np.round(np.exp(3.2 + 0.02 * np.minimum(age, 60) + spread * rng.normal(size=n)))
        income[age > 66] = np.round(0.5 * income[age > 66])
        return np.stack([(age - 58) / 40, income / 250 - 1], axis=1)

    return make


FAMILIES: list[DataSet] = [
    made("payments", 6, 6, payments(25_000, 6, 6), "money of six kinds as it is, many zeros"),
    made("blends", 5, 64, blends(5_000, 5, 64), "blends of 5 substances in 64 channels"),
    made(
        "cores and halos",
        8,
        5,
        cores_and_halos(12_000, 8, 5),
        "tight groups in the middle of wide ones",
    ),
    made("calls", 5, 12, hours(4_000, 5), "counts of calls in twelve times of a day"),
    made("copies", 4, 13, copies(900, 4), "three columns three times, and four constant ones"),
    made("too wide", 12, 4, too_wide(8_000, 12, 4, 10), "all bounds are ten times too wide"),
    made("own tails", 3, 7, own_tails(2_000, 3, 7), "tails of two degrees in each column"),
    made("ring", 16, 6, ring(9_000, 6), "a closed curve in six columns"),
    made("forty in 3 columns", 40, 3, many(30_000, 40, 3), "groups of unlike sizes and widths"),
    made("forty in 8 columns", 40, 8, many(25_000, 40, 8), "groups of unlike sizes and widths"),
    made(
        "few that tell",
        4,
        30,
        few_that_tell(6_000, 4, 30, 3),
        "four groups that differ in 3 of 30 columns",
    ),
    made("answers", 3, 14, answers(400, 3, 14), "answers 1 to 5 of 400 people of three kinds"),
    made("fan", 2, 2, fan(160), "ages and incomes of 160 people"),
]
