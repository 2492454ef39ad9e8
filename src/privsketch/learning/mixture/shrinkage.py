"""Covariances that borrow strength from each other where the sketch alone is vague.

The variances of a mixture's components are of a kind. Where noise leaves each of them
uncertain, their logarithms are drawn towards their common mean, and the correlations
towards none, by what makes the estimates most likely: empirical Bayes (Efron and Morris
1975). The variance of the errors is known from the fit, the variance between components
is estimated, and where errors are small beside it nothing happens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privsketch._typing import Floats
from privsketch.learning.mixture.gauss_newton import Prior, logarithms
from privsketch.learning.mixture.gaussians import Gaussians

MIN_ENTRIES = 3  # fewer say nothing about their variance
GRID = np.geomspace(1e-4, 1e2, 61)  # variances between components, of logarithms


def log_variance_prior(gaussians: Gaussians, errors: Floats, half_widths: Floats) -> Prior:
    """Beliefs about the entries of the logarithms of the covariances.

    Parameters
    ----------
    gaussians : Gaussians
        The fit.
    errors : (p, p)
        Covariance of the errors of its variables (see `gauss_newton`).
    half_widths : (dim,)
        Of the domain: variances of columns are comparable in units of these.
    """
    logs = logarithms(gaussians)
    values = logs.ravel()
    errors = errors[-len(values) :, -len(values) :]
    diagonal = np.ones(logs.shape[1], dtype=bool)
    units = np.full(logs.shape[1], 2 * np.log(np.mean(half_widths)))
    if logs.shape[1] > 1:
        units = 2 * np.log(half_widths)
    if gaussians.has_matrices:
        rows, columns = np.tril_indices(gaussians.dim)
        diagonal = rows == columns
        units = np.where(diagonal, 2 * np.log(half_widths)[rows], 0.0)
    own = np.tile(diagonal, len(logs))
    offsets = np.tile(units, len(logs))
    precisions, centers = np.zeros(len(values)), values.copy()
    for group, has_mean in ((own, True), (~own, False)):
        chosen = np.flatnonzero(group)
        if len(chosen) >= MIN_ENTRIES:
            block = errors[np.ix_(chosen, chosen)]
            mean, variance = between(values[chosen] - offsets[chosen], block, has_mean=has_mean)
            precisions[chosen] = 1 / variance
            centers[chosen] = mean + offsets[chosen]
    return Prior(precisions, centers)


def between(values: Floats, errors: Floats, *, has_mean: bool) -> tuple[float, float]:
    """Mean and variance of what `values` estimate with normal errors: most likely ones.

    In the eigenbasis of the errors' covariance all values are independent. The mean is 0
    unless `has_mean`; its uncertainty is accounted for (restricted likelihood).
    """
    spectrum, basis = np.linalg.eigh(errors)
    spectrum = np.maximum(spectrum, 0.0)
    turned, ones = basis.T @ values, basis.T @ np.ones(len(values))
    variances = GRID[:, None] + spectrum
    weight = (ones**2 / variances).sum(axis=1)
    means = (ones * turned / variances).sum(axis=1) / weight
    if not has_mean:
        means = np.zeros(len(GRID))
    scores = np.log(variances).sum(axis=1)
    scores += ((turned - means[:, None] * ones) ** 2 / variances).sum(axis=1)
    if has_mean:
        scores += np.log(weight)
    best = int(np.argmin(scores))
    return float(means[best]), float(GRID[best])


def shrinking_step(gaussians: Gaussians, errors: Floats, prior: Prior) -> Floats:
    """(p,) the step from a fit to what its errors and the prior together make most likely.

    The linear form of a fit with the prior, for fits whose cost is not in units of the
    errors.
    """
    logs = logarithms(gaussians).ravel()
    believed: NDArray[np.intp] = np.flatnonzero(prior.precisions > 0)
    if not len(believed):
        return np.zeros(len(errors))
    columns = believed + len(errors) - len(logs)
    cross = errors[:, columns]
    inner = cross[columns] + np.diag(1 / prior.precisions[believed])
    gap = logs[believed] - prior.centers[believed]
    return np.asarray(-cross @ np.linalg.solve(inner, gap))
