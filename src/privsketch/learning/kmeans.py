"""K-means from a sketch: cluster centres at no further privacy cost."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from privsketch.design import require_features
from privsketch.errors import ParameterError
from privsketch.features.frequencies import public_seed
from privsketch.learning.diagnosis import concerns, expected_residual
from privsketch.learning.joint import decode_joint
from privsketch.learning.lloyd import cluster_density
from privsketch.learning.model import DECODERS, Floats, KMeansModel, nearest
from privsketch.learning.ompr import decode_ompr
from privsketch.learning.problem import Mixture, Problem, Solution
from privsketch.sketches import Sketch

DEFAULT_STARTS = 3
LARGE = 10**7  # clusters x features x columns; a search then takes many seconds


def learn_kmeans(
    sketch: Sketch,
    n_clusters: int | None = None,
    *,
    decoder: str = "joint",
    n_starts: int | None = None,
    random_state: int | None = None,
) -> KMeansModel:
    """Cluster centres from a sketch. Charges nothing.

    Parameters
    ----------
    sketch : Sketch
        One holder's sketch, or several merged.
    n_clusters : int, optional
        As many as the design was planned for if left out.
    decoder : {"joint", "cl-ompr"}
        "joint" fits all clusters together, with their width; "cl-ompr" is the greedy
        search of the papers, with clusters of no width.
    n_starts : int, optional
        Independent searches; the one that explains the sketch best is kept. Three if
        left out, one for very large sketches.
    random_state : int, optional
        Public seed of the searches; the design's own if left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> X = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 5000, axis=0)
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = ps.learn_kmeans(ps.sketch(X, design), n_clusters=2)
    >>> bool(np.allclose(np.sort(model.centers, axis=0), [[-0.5, -0.5], [0.5, 0.5]], atol=0.05))
    True
    """
    if not isinstance(sketch, Sketch):
        raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
    design = sketch.design
    if n_clusters is None:
        n_clusters = design.n_components
    if n_starts is None:
        size = design.n_components * design.n_features * design.dim
        n_starts = DEFAULT_STARTS if size <= LARGE else 1
    for name, value in (("n_clusters", n_clusters), ("n_starts", n_starts)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ParameterError(f"{name}={value!r}: expected an integer of at least 1")
    require_features(int(n_clusters), design.dim, design.n_features, "n_clusters")
    if decoder not in DECODERS:
        raise ParameterError(
            f"decoder={decoder!r}: expected one of {', '.join(map(repr, DECODERS))}"
        )
    seed = design.frequencies.seed if random_state is None else public_seed(random_state)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, _PURPOSE_DECODER], np.uint64)))
    problem = kmeans_problem(sketch)
    decode = decode_joint if decoder == "joint" else decode_ompr
    solution = decode(problem, int(n_clusters), rng, n_starts=int(n_starts))
    return _as_model(sketch, problem, solution, decoder, rng)


_PURPOSE_DECODER = 2  # features/frequencies.py uses 0 and 1


def kmeans_problem(sketch: Sketch) -> Problem:
    """The sketch as decoders see it: coordinates relative to the domain's centre."""
    half_widths = sketch.design.domain.half_widths
    return Problem(
        frequencies=sketch.design.radians(),
        moments=sketch.moments(),
        noise_variance=sketch.noise_variance,
        low=-half_widths,
        high=half_widths,
    )


def _as_model(
    sketch: Sketch,
    problem: Problem,
    solution: Solution,
    decoder: str,
    rng: np.random.Generator,
) -> KMeansModel:
    domain, density = sketch.design.domain, solution.density
    centers, served = solution.centers, solution.weights
    if decoder == "joint":
        # Means of a mixture are not k-means centres where clusters overlap.
        centers, served = cluster_density(solution, rng, problem.low, problem.high)
    weights, axis_widths = _shares(served), _spread_around(centers, density)
    total = float(density.weights.sum())
    origin = domain.center_vector
    fit = KMeansModel(
        centers=domain.project(centers + origin),
        weights=weights,
        width=math.sqrt(float(weights @ np.square(axis_widths).mean(axis=1))),
        residual=0.0,
        expected_residual=1.0,
        n_records=total,
        axis_widths=axis_widths,
        mixture_weights=_shares(density.weights),
        mixture_means=density.centers + origin,
        mixture_widths=density.axis_widths,
        decoder=decoder,
        design_fingerprint=sketch.design.fingerprint,
        receipt=sketch.receipt,
        columns=sketch.design.columns,
    )
    left_over = np.abs(sketch.moments() - fit.moments(sketch)) ** 2
    fit = replace(
        fit,
        residual=float(left_over.sum()),
        expected_residual=expected_residual(fit, sketch),
    )
    return replace(fit, concerns=concerns(fit, sketch))


def _shares(weights: Floats) -> Floats:
    """Weights that sum to 1; equal ones for a sketch in which nothing was found."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def _spread_around(centers: Floats, density: Mixture) -> Floats:
    """Standard deviation along the axes of what is nearest to each centre, (k, dim)."""
    label = nearest(density.centers, centers)
    squares = np.square(density.axis_widths) + np.square(density.centers - centers[label])
    weights = density.weights + 1e-300  # a component of no weight still has a width
    mass = np.bincount(label, weights, len(centers))
    sums = np.stack([np.bincount(label, weights * column, len(centers)) for column in squares.T])
    return np.asarray(np.sqrt(sums / np.maximum(mass, 1e-300)).T)
