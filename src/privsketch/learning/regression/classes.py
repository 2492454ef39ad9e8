"""Classes of a label: each against the rest, calibrated, and looked at in groups of records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from privsketch._base.types import Floats
from privsketch.facts.labels import Labelled
from privsketch.learning.regression.calibration import (
    LabelMoments,
    calibrated,
    correlated_sum,
    simulated_records,
)
from privsketch.learning.regression.inference import LinearFit, fit_linear
from privsketch.learning.regression.view import View, share_of

MIN_GROUP = 5.0  # standard deviations of its noise that the size of a group needs
MAX_GROUP_ERROR = 0.1  # of the share of a class in a group that is worth a look


@dataclass(frozen=True, eq=False)
class Part:
    """One class against the rest: a regression of its label, and its calibration.

    Attributes
    ----------
    row : int
        Coordinate of the label; the label is `offset + scale z`, about the center.
    scale, offset : float
    fit : LinearFit
    share, share_error : float
        Released share of the class, and its standard error.
    scores : (n,) float64
        Scores of simulated records about their mean.
    alpha, beta : float
        Calibration.
    """

    row: int
    scale: float
    offset: float
    fit: LinearFit
    share: float
    share_error: float
    scores: Floats
    alpha: float
    beta: float

    def label_vector(self, size: int) -> Floats:
        """Return the label as a function of (1, z), (size,)."""
        vector = np.zeros(size)
        vector[0], vector[self.row + 1] = self.offset, self.scale
        return vector


def parts_of(view: View, column: Labelled) -> list[Part]:
    """Return the regressions of all labels of the target, or of the second of two."""
    records = simulated_records(view.moments, view.on, view.sketch.design.frequencies.seed)
    if column.is_line:
        return [_part(view, view.target_place, 1 / column.weight, 0.5, records)]
    size = len(column.labels)
    places = [1] if size == 2 else range(size)
    return [
        _part(view, view.target_place + place, 1 / column.corner, 1 / size, records)
        for place in places
    ]


def _part(view: View, row: int, scale: float, offset: float, records: Floats) -> Part:
    """Return the regression of one label, and the curve from its scores to probabilities."""
    problem = view.problem(row)
    fit = fit_linear(problem)
    share, error = share_of(view.moments, row, scale, offset)
    least = min(max(error, 0.5 / view.moments.n_records), 0.5)
    by_column = _by_column(view, scale * fit.coef)
    covariance = by_column.T @ problem.clear_covariance @ by_column
    seed = view.sketch.design.frequencies.seed
    scores = correlated_sum(records @ by_column, covariance, seed)
    label = LabelMoments(
        share=min(max(share, least), 1 - least),
        variance=scale**2 * fit.explained,
        covariance=scale**2 * fit.covered,
        error=scale**2 * fit.covered_error,
    )
    scaled, alpha, beta = calibrated(scores - scores.mean(), label)
    return Part(row, scale, offset, fit, share, error, scaled, alpha, beta)


def _by_column(view: View, coef: Floats) -> Floats:
    """Return the coefficients (k,) of each column apart, (k, n_columns)."""
    sizes = [place.stop - place.start for place in map(view.moments.places, view.on)]
    return np.asarray(coef[:, np.newaxis] * np.repeat(np.eye(len(sizes)), sizes, axis=0))


def shares_of(parts: list[Part]) -> tuple[Floats, Floats]:
    """Return the released shares of all classes, between 0 and 1, and their errors."""
    shares = np.clip([part.share for part in parts], 0.0, 1.0)
    errors = np.array([part.share_error for part in parts])
    if len(parts) == 1:
        return np.append(1 - shares, shares), np.append(errors, errors)
    return shares, errors


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of records with a label of a predictor, and how often they have each class.

    Attributes
    ----------
    names : tuple of str
    predictions, shares, errors : (n_parts, n_groups) float64
        Mean probability of a class in a group, its released share there, and the standard error of
        that.
    """

    names: tuple[str, ...]
    predictions: Floats
    shares: Floats
    errors: Floats


def groups_of(view: View, parts: list[Part]) -> Groups:
    """Return groups by the labels of the predictors that enough records have.

    The number of records with a label and a class is a linear function of the released sums, as is
    their mean score; the spread of scores around it is that of the simulated records.
    """
    moments = view.moments
    kept: list[tuple[str, Floats]] = []
    for name, vector in _label_vectors(view):
        error = math.sqrt(float(moments.variance[0] @ np.square(vector)))
        if moments.matrix[0] @ vector >= MIN_GROUP * max(error, 1.0):
            kept.append((name, vector))
    vectors = np.array([vector for _, vector in kept]).reshape(len(kept), moments.dim + 1)
    found = np.array([_in_groups(view, part, vectors) for part in parts])
    told = np.flatnonzero(found[:, 2].max(axis=0, initial=0.0) <= MAX_GROUP_ERROR)
    return Groups(tuple(kept[place][0] for place in told), *found[:, :, told].transpose(1, 0, 2))


def _label_vectors(view: View) -> list[tuple[str, Floats]]:
    """Return labels of the predictors as functions of (1, z), 1 for records that have them."""
    moments, found = view.moments, []
    for column in () if view.schema is None else view.schema.columns:
        if not isinstance(column, Labelled):
            continue
        place = moments.places(column.name)
        for number, label in enumerate(column.labels):
            vector = np.zeros(moments.dim + 1)
            if column.is_line:
                vector[0], vector[place.start + 1] = 0.5, (2 * number - 1) / column.weight
            else:
                row = place.start + number + 1
                vector[0], vector[row] = 1 / len(column.labels), 1 / column.corner
            found.append((f"{column.name}={label}", vector))
    return found


def _in_groups(view: View, part: Part, vectors: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a class's mean probability in groups, its released share there, and the error."""
    moments, fit = view.moments, part.fit
    sizes = vectors @ moments.matrix[0]
    score = np.zeros(moments.dim + 1)
    score[view.rows] = part.scale * fit.coef
    score[0] = -part.scale * float(fit.mean[:-1] @ fit.coef)
    means = vectors @ moments.matrix @ score / sizes
    odds = part.alpha + part.beta * (part.scores[np.newaxis] + means[:, np.newaxis])
    label = part.label_vector(moments.dim + 1)
    shares = vectors @ moments.matrix @ label / sizes
    noise = np.einsum("gi,ij,gj->g", vectors, moments.noise_along(label), vectors)
    noise = noise + shares**2 * (np.square(vectors) @ moments.variance[0])
    sampling = np.maximum(shares * (1 - shares), 0.0) * moments.repetition / sizes
    errors = np.sqrt(np.maximum(noise, 0.0) / sizes**2 + sampling)
    return expit(odds).mean(axis=1), shares, errors
