"""What is believed about components before the sketch speaks, and what all of them share.

Under log loss the best answer is not the most likely covariance but its posterior mean: a variance
that is too small by a factor costs as many nats as the factor, one that is too large its logarithm.
For a Gaussian known from n records with scatter S, the posterior mean under Jeffreys' prior is
S / (n - d - 1). It is where the likelihood times det^((d + 1) / 2) is largest. The same power of
the determinant keeps variances that a sketch does not tell from zero at the least that it tells.

Without any signal, components are like the Gaussian W of all records: covariances have a Wishart
law with mode W, and means the law of records. So a mixture of a drowned sketch is that Gaussian.

Covariances borrow strength from each other if noise leaves them uncertain. Empirical Bayes (Efron
and Morris 1975) shrinks entries of their logarithms towards the mean of all components, and these
means towards a common variance and no correlation. The variance of the errors is known from the
fit; variances between components and between entries are estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.types import Bits, Floats
from privsketch.learning.mixture.gaussians import Gaussians, entries, logarithms, spectral_ratios

MIN_ENTRIES = 3  # fewer do not determine a variance between components
MAX_LOG_STEP = 30.0  # between log eigenvalues: a guard against overflow
VARIANCE_GRID = np.geomspace(1e-4, 1e2, 61)  # variances between components, of logarithms


@dataclass(frozen=True)
class Prior:
    """Prior of means and covariances; that of weights and shares is flat.

    Attributes
    ----------
    precision : (n_log_entries, n_log_entries) float64
        Of a normal law of the log entries; zeros for entries without one.
    centers : (n_log_entries,) float64
        Its centers.
    power : float
        Power of the determinants of the covariances; 0 for no prior of components at all.
    whole : Gaussians or None
        One full Gaussian: the law of means, and the mode of the covariances. Without it means are
        free, and covariances wide.
    """

    precision: Floats
    centers: Floats
    power: float
    whole: Gaussians | None

    def penalty(self, gaussians: Gaussians) -> float:
        """Return minus twice the logarithm of the density, up to a constant."""
        logs = logarithms(gaussians)
        excess = logs.ravel() - self.centers
        value = float(excess @ (self.precision @ excess))
        value -= 2 * self.power * float(logs[:, on_diagonal(gaussians)].sum())
        if self.whole is None:
            return value
        inverse, scale = self._scales(gaussians, self.whole)
        steps = gaussians.means - self.whole.means
        traces = (gaussians.covariances * scale).sum()
        return value + float(((steps @ inverse) * steps).sum() + 2 * self.power * traces)

    def add_to(self, information: Floats, pull: Floats, gaussians: Gaussians) -> None:
        """Add curvature and slope of half the penalty to those of half a cost, in place.

        Variables are weights, means, free shares and log entries.
        """
        logs = logarithms(gaussians)
        size, dim = gaussians.means.shape
        first, diagonal = len(pull) - logs.size, on_diagonal(gaussians)
        corner = information[first:, first:]
        corner += self.precision + self.power * curvatures(gaussians)
        pull[first:] += self.precision @ (logs.ravel() - self.centers)
        pull[first:] -= self.power * np.tile(diagonal, len(logs))
        if self.whole is None:
            return
        inverse, scale = self._scales(gaussians, self.whole)
        pull[size : size * (dim + 1)] += ((gaussians.means - self.whole.means) @ inverse).ravel()
        for k in range(size):
            place = slice(size + k * dim, size + (k + 1) * dim)
            information[place, place] += inverse
        if gaussians.has_matrices:
            vectors, ratio = spectral_ratios(gaussians.covariances)
            back = vectors.transpose(0, 2, 1)
            slopes = entries(vectors @ (ratio * (back @ scale @ vectors)) @ back)
            slopes = slopes * np.where(diagonal, 1.0, 2.0)
        else:
            slopes = gaussians.covariances * scale
        pull[first:] += self.power * slopes.ravel()

    @staticmethod
    def _scales(gaussians: Gaussians, whole: Gaussians) -> tuple[Floats, Floats]:
        """Return inverses of the covariance of all records, and of the mode of covariances.

        The mode is a matrix, or a variance for each column or for all.
        """
        inverse = np.linalg.inv(whole.covariances[0])
        if gaussians.has_matrices:
            return inverse, inverse
        variances = np.diag(whole.covariances[0])
        if gaussians.covariance_type == "spherical":
            variances = variances.mean(keepdims=True)
        return inverse, 1 / variances


def curvatures(gaussians: Gaussians) -> Floats:
    """Return the curvature by the log entries that the power of a determinant leaves at a mode.

    Moments are nearly linear in a small variance v, and their information about log v is v^2 / t^2
    for an error t of v. Where the power c balances a cost (v - u)^2 / (2 t^2), its curvature by
    log v is v^2 / t^2 + c: information, and c. For matrices that is c tr(S^-1 d^2 S) at S. In the
    basis of S an entry between log eigenvalues h apart has 2 (cosh h - 1) / h^2 times the curvature
    of one on the diagonal: to turn a thin cloud is to widen it.
    """
    if not gaussians.has_matrices:
        return np.eye(gaussians.covariances.size)
    size, dim = len(gaussians.covariances), gaussians.dim
    rows, columns = np.tril_indices(dim)
    values, vectors = np.linalg.eigh(gaussians.covariances)
    logs = np.log(np.maximum(values, 1e-300))
    steps = np.clip(logs[:, :, None] - logs[:, None, :], -MAX_LOG_STEP, MAX_LOG_STEP)
    near = np.abs(steps) < 1e-4
    safe = np.where(near, 1.0, steps)
    roots = np.sqrt(np.where(near, 1.0, 2 * (np.cosh(safe) - 1) / safe**2))
    basis = np.zeros((len(rows), dim, dim))
    basis[np.arange(len(rows)), rows, columns] = 1.0
    basis[np.arange(len(rows)), columns, rows] = 1.0
    result = np.zeros((size * len(rows), size * len(rows)))
    for k in range(size):
        turned = (vectors[k].T @ basis @ vectors[k] * roots[k]).reshape(len(rows), -1)
        place = slice(k * len(rows), (k + 1) * len(rows))
        result[place, place] = turned @ turned.T
    return result


def on_diagonal(gaussians: Gaussians) -> Bits:
    """Return which log entries of a covariance are on its diagonal, (q,)."""
    if not gaussians.has_matrices:
        return np.ones(gaussians.covariances.shape[1], dtype=bool)
    rows, columns = np.tril_indices(gaussians.dim)
    return np.asarray(rows == columns)


def make_prior(
    gaussians: Gaussians, whole: Gaussians | None = None, *, is_flat: bool = False
) -> Prior:
    """Return the prior of components like these without a law of log entries."""
    n = entries(gaussians.covariances).size
    power = (gaussians.dim + 1) / 2 if gaussians.has_matrices else 1.0
    return Prior(np.zeros((n, n)), np.zeros(n), 0.0 if is_flat else power, whole)


def with_hierarchy(
    prior: Prior, gaussians: Gaussians, errors: Floats, half_widths: Floats
) -> Prior:
    """Return a prior with an empirical law of the entries of the logarithms of the covariances.

    Parameters
    ----------
    gaussians : Gaussians
        The fit.
    errors : (p, p)
        Covariance of the errors of its variables (see `gauss_newton`).
    half_widths : (dim,)
        Half-widths of the domain, in whose units variances of columns are comparable.
    """
    logs = logarithms(gaussians)
    values = logs.ravel()
    first = len(errors) - len(values)
    errors = errors[first:, first:]
    diagonal = np.ones(logs.shape[1], dtype=bool)
    units = 2 * np.log(half_widths)
    if logs.shape[1] == 1:
        units = 2 * np.log(np.mean(half_widths, keepdims=True))
    if gaussians.has_matrices:
        rows, columns = np.tril_indices(gaussians.dim)
        diagonal = rows == columns
        units = np.where(diagonal, 2 * np.log(half_widths)[rows], 0.0)
    n_units = len(logs)
    precision, centers = np.zeros((len(values), len(values))), values.copy()
    for has_mean in (True, False):
        group = np.flatnonzero(np.tile(diagonal == has_mean, n_units))
        if len(group) < MIN_ENTRIES:
            continue
        offsets = np.tile(units[diagonal == has_mean], n_units)
        block = errors[np.ix_(group, group)]
        law = hierarchy(values[group] - offsets, block, n_units, has_mean=has_mean)
        precision[np.ix_(group, group)] = law.precision
        centers[group] = law.mean + offsets
    return replace(prior, precision=precision, centers=centers)


@dataclass(frozen=True)
class Hierarchy:
    """Normal law of entries, each with a mean of its own for all components."""

    mean: float  # of all
    precision: Floats


def hierarchy(values: Floats, errors: Floats, n_units: int, *, has_mean: bool) -> Hierarchy:
    """Return the law of entries that `values` estimate, component by component.

    An entry varies between components about its mean, and means of entries vary about a mean of
    all. Differences between components have the first variance alone, and tell it.
    """
    n_entries = len(values) // n_units
    n_free = (n_units - 1) * n_entries
    if n_free < MIN_ENTRIES:
        mean, variance = between(values, errors, has_mean=has_mean)
        return Hierarchy(mean, np.eye(len(values)) / variance)
    contrasts = np.kron(_contrasts(n_units), np.eye(n_entries))  # (n_free, n)
    inner = contrasts @ errors @ contrasts.T
    _, within = between(contrasts @ values, inner, has_mean=False)
    same = np.tile(np.eye(n_entries), (n_units, 1))
    solved = np.linalg.solve(errors + within * np.eye(len(values)), np.column_stack([same, values]))
    covariance = np.linalg.inv(same.T @ solved[:, :-1])
    means = covariance @ (same.T @ solved[:, -1])
    mean, across = float(np.mean(means)) if has_mean else 0.0, float(VARIANCE_GRID[-1])
    if n_entries >= MIN_ENTRIES:
        mean, across = between(means, (covariance + covariance.T) / 2, has_mean=has_mean)
    shared = across / (within + n_units * across)
    precision = (np.eye(len(values)) - shared * (same @ same.T)) / within
    return Hierarchy(mean, precision)


def _contrasts(n: int) -> Floats:
    """Return orthonormal differences of n numbers, (n - 1, n)."""
    rows = np.tril(np.ones((n - 1, n))) - np.eye(n - 1, n, 1) * np.arange(1, n)[:, None]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def between(values: Floats, errors: Floats, *, has_mean: bool) -> tuple[float, float]:
    """Return the most likely mean and variance of quantities that `values` estimate.

    Errors are normal with the covariance `errors`. In its eigenbasis all values are independent.
    The mean is 0 unless `has_mean`; restricted likelihood accounts for its uncertainty.
    """
    spectrum, basis = np.linalg.eigh(errors)
    spectrum = np.maximum(spectrum, 0.0)
    turned, ones = basis.T @ values, basis.T @ np.ones(len(values))
    variances = VARIANCE_GRID[:, None] + spectrum
    weight = (ones**2 / variances).sum(axis=1)
    means = (ones * turned / variances).sum(axis=1) / weight
    if not has_mean:
        means = np.zeros(len(VARIANCE_GRID))
    scores = np.log(variances).sum(axis=1)
    scores += ((turned - means[:, None] * ones) ** 2 / variances).sum(axis=1)
    if has_mean:
        scores += np.log(weight)
    best = int(np.argmin(scores))
    return float(means[best]), float(VARIANCE_GRID[best])
