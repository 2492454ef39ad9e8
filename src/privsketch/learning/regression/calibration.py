"""Probabilities from a linear score, calibrated by released numbers alone.

Least squares on a label finds the direction of a logistic regression; scale and offset are those of
shares, not of log odds. With p = sigmoid(alpha + beta s), the equations of logistic regression are

    mean p = share of the label,    mean s p = covariance of s and the label.

Both right sides are known from the sketch. The left ones need the law of s: it is simulated from
the released marginal laws of the columns and scaled to the known variance of s. Draws fill the
quantiles of each column evenly, in a public random order. What the columns add to the score is then
ordered so that its ranks have the released correlations (Iman and Conover, 1982): the sum of
columns that say nearly the same has another law than that of independent ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, expit, ndtri

from privsketch._base.types import Floats
from privsketch.facts.columns import Column
from privsketch.facts.labels import Labelled
from privsketch.features.stream import PublicStream, Purpose
from privsketch.learning.moments import Moments

MAX_COLUMNS = 2**15  # of a schema: public streams of draws have numbers below, of orders above
N_DRAWS = 4000  # of scores: their error is far below that of any released number
MIN_SHARE = 1e-4  # least share of a label among the draws
NEWTON_STEPS = 60
MIN_CONCENTRATION = 0.01  # least parameter of a beta law: two ends with nothing between
MAX_EXPLAINED = 0.95  # of the variance of a label that a score may explain
MAX_COVARIANCE = 0.97  # relative to that of scores that part the classes, where beta is infinite


@dataclass(frozen=True)
class LabelMoments:
    """What the sketch says about a label and its score.

    Attributes
    ----------
    share : float
        Share of the records with the label, above 0 and below 1.
    variance : float
        Variance of the score.
    covariance, error : float
        Covariance of score and label, and its standard error.
    """

    share: float
    variance: float
    covariance: float
    error: float


def calibrated(scores: Floats, label: LabelMoments) -> tuple[Floats, float, float]:
    """Return scores (n,) of the right variance, and alpha and beta that calibrate them.

    A posterior mean has the same covariance with the label as variance, up to one half; the
    released covariance has a known error. Their average is weighted by precision. It lies between 0
    and the covariance of scores that part the classes, so the mean of a normal law that ends there
    is taken: noise alone does not make predictions certain.
    """
    share = label.share
    variance = min(max(label.variance, 1e-9), MAX_EXPLAINED * share * (1 - share))
    scaled = scores * math.sqrt(variance / max(float(scores.var()), 1e-300))
    precision, of_variance = 1 / max(label.error, 1e-12) ** 2, 4 / variance**2
    covariance = (label.covariance * precision + variance * of_variance) / (precision + of_variance)
    above = scaled[scaled >= np.quantile(scaled, 1 - share)]
    largest = MAX_COVARIANCE * max(share * float(above.mean()), 1e-12)
    covariance = _between(covariance, 1 / math.sqrt(precision + of_variance), largest)
    return scaled, *matched(scaled, share, covariance)


def _between(mean: float, deviation: float, largest: float) -> float:
    """Return the mean of a normal law of which only the part between 0 and `largest` counts."""
    low, high = (min(max(mean + side * 8 * deviation, 0.0), largest) for side in (-1, 1))
    values = np.linspace(low, high, 401)
    exponents = -0.5 * np.square((values - mean) / deviation)
    weights = np.exp(exponents - exponents.max())
    return float(weights @ values / weights.sum())


def matched(scores: Floats, share: float, covariance: float) -> tuple[float, float]:
    """Solve mean p = share and mean s p = covariance for p = sigmoid(alpha + beta s), by Newton.

    Steps are cut to 2 in alpha, and to half of beta.
    """
    alpha = math.log(share / (1 - share))
    beta = covariance / max(float(scores.var()), 1e-12) / (share * (1 - share))
    spread = float(scores.std())
    for _ in range(NEWTON_STEPS):
        p = expit(alpha + beta * scores)
        weights = p * (1 - p) + 1e-9
        cross, square = float((weights * scores).mean()), float((weights * scores**2).mean())
        hessian = np.array([[float(weights.mean()), cross], [cross, square]])
        missing = np.array([share - p.mean(), covariance - (scores * p).mean()])
        step = np.linalg.solve(hessian + 1e-12 * np.eye(2), missing)
        cut = min(2 / max(abs(step[0]), 1e-9), 0.5 * abs(beta) / max(abs(step[1]), 1e-12) + 1e-9)
        step *= min(1.0, cut)
        alpha, beta = alpha + float(step[0]), beta + float(step[1])
        if abs(step[0]) + abs(step[1]) * spread < 1e-9:
            break
    return alpha, beta


def simulated_records(moments: Moments, on: Sequence[str], seed: int) -> Floats:
    """Return draws of the columns `on`, (N_DRAWS, n_coordinates), independent of each other.

    Columns have their released means, and numbers their released variances: a beta law between
    their bounds. Coordinates are about the center of the domain.
    """
    parts = []
    columns = {} if moments.schema is None else {c.name: c for c in moments.schema.columns}
    for number, name in enumerate(on):
        place = moments.places(name)
        order = np.argsort(PublicStream(seed, Purpose.CALIBRATION, number).uniform(N_DRAWS))
        quantiles = ((np.arange(N_DRAWS) + 0.5) / N_DRAWS)[order]
        column = columns.get(name)
        if isinstance(column, Labelled):
            parts.append(_labels(column, moments, place, quantiles))
            continue
        for coordinate in range(place.start, place.stop):
            half = _half_width(moments, column)
            parts.append(_numbers(moments, coordinate, half, quantiles)[:, np.newaxis])
            quantiles = quantiles[order]
    return np.concatenate(parts, axis=1)


def correlated_sum(parts: Floats, covariance: Floats, seed: int) -> Floats:
    """Return sums (n,) of parts (n, m), whose columns are ordered to have a covariance (m, m).

    Values stay; normal numbers that have the correlations give the order (Iman and Conover, 1982).
    """
    n, size = parts.shape
    ranks = np.empty((n, size))
    for number in range(size):
        order = PublicStream(seed, Purpose.CALIBRATION, MAX_COLUMNS + number).uniform(n)
        ranks[np.argsort(order), number] = ndtri((np.arange(n) + 0.5) / n)
    variances = np.diag(covariance)
    deviations = np.sqrt(np.maximum(variances, max(1e-12 * variances.max(), 1e-300)))
    values, axes = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    root = (axes * np.sqrt(np.maximum(values, 0.0))) @ axes.T
    white = np.linalg.inv(np.linalg.cholesky(ranks.T @ ranks / n)).T  # so many are never dependent
    places = np.argsort(ranks @ white @ root, axis=0)
    total = np.zeros(n)
    for place, part in zip(places.T, parts.T, strict=True):
        total[place] += np.sort(part)
    return total


def label_shares(column: Labelled, moments: Moments, place: slice) -> Floats:
    """Return released shares of the labels, (n_labels,): not negative, with sum 1."""
    mean = moments.matrix[0, 1:][place] / moments.n_records + moments.center[place]
    return np.asarray(column.shares(mean[np.newaxis])[0])


def _labels(column: Labelled, moments: Moments, place: slice, quantiles: Floats) -> Floats:
    shares = np.maximum(label_shares(column, moments, place), MIN_SHARE)
    ends = np.cumsum(shares / shares.sum())
    labels = np.minimum(np.searchsorted(ends, quantiles), len(ends) - 1)
    return np.asarray(column.encode(labels.astype(np.float64)).T - moments.center[place])


def _half_width(moments: Moments, column: Column | None) -> float:
    return moments.radius if column is None else column.radius


def _numbers(moments: Moments, place: int, half: float, quantiles: Floats) -> Floats:
    """Return draws of a number of released mean and variance between -half and half."""
    n_records, row = moments.n_records, place + 1
    mean = min(max(moments.matrix[0, row] / n_records / half, -0.999), 0.999)
    square = moments.matrix[row, row] / n_records / half**2
    variance = min(max(square - mean**2, 1e-3), 0.999 * (1 - mean**2))
    concentration = (1 - mean**2) / variance - 1
    first, second = ((1 + sign * mean) / 2 * concentration for sign in (1, -1))
    first, second = max(first, MIN_CONCENTRATION), max(second, MIN_CONCENTRATION)
    return np.asarray((2 * betaincinv(first, second, quantiles) - 1) * half)
