"""K-means from a sketch: cluster centers at no further privacy cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError, PrivsketchError, require_count
from privsketch._base.formats import as_line
from privsketch._base.plugins import failure_of, find_plugin, plugin_names
from privsketch._base.settings import Setting, keywords, require_call, settings_of
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.design.cautions import warn_of
from privsketch.design.forecast import missed_directions
from privsketch.design.size import supported_clusters
from privsketch.design.validity import require_cells, require_features
from privsketch.features.frequencies import public_seed
from privsketch.features.stream import Purpose, public_generator
from privsketch.learning.cells.boxes import boxes_of
from privsketch.learning.cells.decoder import kmeans_of_cells
from privsketch.learning.cells.number import count_in_cells
from privsketch.learning.concerns import doubtful_number, hidden_clusters, unsupported_clusters
from privsketch.learning.kmeans.density import Clusters, atoms_as_clusters, cluster_density
from privsketch.learning.kmeans.joint import decode_joint
from privsketch.learning.kmeans.model import model_of
from privsketch.learning.kmeans.number import count_in_waves
from privsketch.learning.kmeans.ompr import decode_ompr
from privsketch.learning.kmeans.products import cluster_products, errors_of_products, least_errors
from privsketch.learning.modes import ClusterCount
from privsketch.learning.problem import (
    Atoms,
    Problem,
    checked_sketch,
    cost,
    in_all_coordinates,
    problem_of,
)
from privsketch.learning.uncertainty import Solution, assess_fit, uniform_deviations
from privsketch.models.clusters import DECODERS, ClusterModel
from privsketch.sketching.sketch import Sketch

# Rarely reached: the searches stop at the first that explains the sketch.
# python -m benchmarks constants learning MAX_KMEANS_SEARCHES
MAX_KMEANS_SEARCHES = 6
LARGE_SEARCH = 10**7  # clusters x features x columns above which a search takes many seconds
Decoder = Callable[..., Any]
_POSITIONAL = ("problem", "n_clusters", "rng")  # parameters of a decoder
MAX_WEIGHT = 2.0**63  # of a cluster in records: sums have 64 bits
MAX_WIDTH = 1e100  # of a cluster: its square is a finite float
DEFAULT_MAX_CLUSTERS = 20  # benchmarks/trust.py measures n_clusters="auto" with it


def learn_kmeans(
    sketch: Sketch,
    n_clusters: int | str | None = None,
    *,
    max_clusters: int | None = None,
    decoder: str | Decoder = "joint",
    n_init: int | None = None,
    random_state: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> ClusterModel:
    """Learn cluster centers from a sketch. Charges nothing.

    Parameters
    ----------
    sketch : Sketch
        Sketch of one holder, or the merged sketches of several.
    n_clusters : int or "auto", optional
        Number of clusters; by default, the number that the design was planned for. "auto" estimates
        the number of groups that valleys part in the density of the records, at no cost.
    max_clusters : int, optional
        Largest number that "auto" considers. By default, the number that the sketch supports, but
        at most twice the planned one.
    decoder : {"joint", "cl-ompr"}, str or callable
        "joint" fits all clusters together, with their width; "cl-ompr" is the greedy search of the
        papers, for clusters without width. Sketches of cells have their own decoder. Other
        names are looked up among the entry points `privsketch.decoders`. A callable is a decoder
        of your own, ``decode(problem, n_clusters, rng, *, n_init)``: `find_decoder` says what it
        gets and returns, and the page "Research" has an example.
    n_init : int, optional
        Maximum number of independent searches, which stop at the first that explains the sketch up
        to noise and sampling. The default is 6, or 2 for very large sketches. Sketches of cells
        ignore it.
    random_state : int, optional
        Public seed of the searches; by default, that of the design.
    options : mapping, optional
        Settings of the decoder: keyword parameters that it has besides `n_init`.

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
    design = checked_sketch(sketch).design
    if n_clusters is None:
        n_clusters = design.n_components
    check_choices(n_clusters, max_clusters, decoder, n_init)
    if n_clusters != "auto":
        return _learned(sketch, int(n_clusters), decoder, n_init, random_state, options)
    number = _number_of_clusters(sketch, max_clusters, random_state)
    model = _learned(sketch, number.n_clusters, decoder, n_init, random_state, options)
    visible = partial(visible_energy, sketch, model)
    hidden = hidden_clusters(sketch, model.n_clusters, model.n_records, visible)
    return replace(model, concerns=(*hidden, *doubtful_number(number), *model.concerns))


def visible_energy(sketch: Sketch, model: ClusterModel, n_clusters: int) -> float:
    """Return the energy of one of `n_clusters` equal clusters as wide as the model's.

    It is relative to the standard deviation of the noise of a residual, the sum of squares of all
    numbers. Infinite where a forecast alone says what is visible: for cells, and for labels.
    """
    density = model.density
    if sketch.design.cells is not None or density is None or sketch.noise_variance == 0:
        return math.inf
    problem = problem_of(sketch)
    if problem.layout is not None:
        return math.inf
    shares = density.mixture_weights / density.mixture_weights.sum()
    variances = shares @ np.square(density.mixture_widths)
    envelope = np.exp(-np.square(problem.frequencies) @ variances).sum()
    noise = problem.noise_variance * math.sqrt(4 * len(problem.frequencies))
    return float((max(model.n_records, 0.0) / n_clusters) ** 2 * envelope / noise)


def _learned(
    sketch: Sketch,
    number: int,
    decoder: str | Decoder,
    n_init: int | None,
    random_state: int | None,
    options: Mapping[str, Any] | None,
) -> ClusterModel:
    """Learn clusters after the parameters were checked."""
    design, rng = sketch.design, _generator(sketch, random_state)
    if design.cells is not None:
        if options:
            raise ParameterError("options: the decoder of cells has none; leave them out")
        if decoder != "joint":
            raise ParameterError("decoder", decoder, "a sketch of cells has its own decoder")
        return kmeans_of_cells(sketch, number, rng)
    problem = problem_of(sketch)
    require_features(number, design.dim, design.n_features, "n_clusters")
    warn_of(unsupported_clusters(number, design))
    if n_init is None:
        size = number * design.n_features * design.dim
        n_init = MAX_KMEANS_SEARCHES if size <= LARGE_SEARCH else 2
    is_named = isinstance(decoder, str)
    decode, decoder, origin = find_decoder(decoder)
    settings = decoder_settings(decode)
    chosen = keywords(settings, {} if options is None else options, f"`decoder={decoder!r}`")
    # The matrix products are small: threads would cost more than they gain.
    with one_thread():
        if decoder != "joint":  # others take coordinates of labels for numbers
            problem = problem.without_blocks()
        whose = f"decoder {decoder!r} of {origin}" if is_named else "your decoder"
        try:
            solution = decode(problem, number, rng, n_init=int(n_init), **chosen)
        except Exception as error:  # it may show: decoders see released numbers only
            if origin is None or not is_named or isinstance(error, PrivsketchError):
                raise
            raise failure_of(f"decoder {decoder!r}", origin, decode, error) from error
        if origin is not None:
            solution = _checked_solution(problem, number, solution, whose, rng)
        model = _as_model(sketch, problem, solution, decoder, origin, rng)
    missed = missed_directions(design)
    if missed is not None:  # the sketch fits well, whatever lies along them
        concerns = (missed, *model.concerns)
        model = replace(model, concerns=concerns, cost_ratio=None, standard_errors=None)
    if origin is not None and not solution.atoms.weights.any():
        no_records = f"{whose} gave no cluster any records: weights are equal shares"
        model = replace(model, concerns=(*model.concerns, no_records))
    return model


def find_decoder(choice: str | Decoder) -> tuple[Decoder, str, str | None]:
    """Return a decoder, its name and its origin; decoders of this library have no origin.

    A callable is a decoder itself. It is named after its module and its function, and receipts say
    that the caller gave it. A package registers a decoder under a name in its pyproject.toml; names
    of this library take precedence::

        [project.entry-points."privsketch.decoders"]
        hierarchical = "my_package.decoders:decode_hierarchical"

    A decoder is a callable ``decode(problem, n_clusters, rng, *, n_init)``:

    problem : Problem
        The sketch: frequencies, noisy moments, noise variance, and the box of the centers.
    n_clusters : int
        Number of centers to return, at least 1.
    rng : numpy.random.Generator
        Public random stream. The result must depend on the arguments only.
    n_init : int
        Maximum number of independent searches, at least 1.

    Further keyword parameters with defaults are its settings, which people can state (`options` of
    `learn_kmeans`, --option of the command line).

    It returns an object with these attributes; a `Solution` has them all:

    centers : (n_clusters, dim) array
        Centers in the coordinates of the problem, relative to the domain's center.
    weights : (n_clusters,) array
        Number of records in each cluster, at least 0.
    axis_widths : (n_clusters, dim) array, optional
        Standard deviations of the clusters along each axis; 0 if left out.

    The residual of the model is computed here, not by the decoder. Standard errors and the cost
    ratio need studies of a decoder with known records: there are none for decoders of others.
    """
    if not isinstance(choice, str) and callable(choice):
        require_call(choice, "decoder: your decoder", *_POSITIONAL, keyword=["n_init"])
        name = _name_of(choice)
        return choice, name, f"{name}, given by the caller"
    if isinstance(choice, str) and choice in DECODERS:
        return (decode_joint if choice == "joint" else decode_ompr), choice, None
    plugin = find_plugin("decoders", choice) if isinstance(choice, str) else None
    if plugin is None:
        names = (*DECODERS, *plugin_names("decoders"))
        expected = f"expected one of {', '.join(map(repr, names))}, or a callable"
        raise ParameterError("decoder", choice, expected)
    if not callable(plugin.part):
        raise ParameterError(
            "decoder",
            choice,
            f"{plugin.origin} registers {type(plugin.part).__name__}, which is not callable; "
            "a decoder is a function of problem, n_clusters, rng and n_init",
        )
    what = f"decoder {choice!r} of {plugin.origin}"
    require_call(plugin.part, what, *_POSITIONAL, keyword=["n_init"])
    return plugin.part, choice, plugin.origin


def decoder_settings(decode: Decoder) -> dict[str, Setting]:
    """Return the settings that a decoder declares: its keyword parameters besides `n_init`."""
    return settings_of(decode, without=("n_init",))


def _name_of(decode: Decoder) -> str:
    """Return module and name of a function, or of the class of another callable."""
    named = decode if hasattr(decode, "__qualname__") else type(decode)
    return as_line(f"{named.__module__}.{named.__qualname__}")


def _checked_solution(
    problem: Problem, n_clusters: int, result: Any, whose: str, rng: np.random.Generator
) -> Solution:
    """Check the result of a decoder that is not ours; add its residual and uncertainty."""
    shape = (n_clusters, len(problem.low))
    try:
        centers = _real(result.centers).reshape(shape)
        weights = _real(result.weights).reshape(n_clusters)
        widths = _real(getattr(result, "axis_widths", 0.0))
        widths = np.broadcast_to(widths, shape) if widths.any() else np.zeros((1, 1))
        is_valid = all(np.isfinite(array).all() for array in (centers, weights, widths))
    except (AttributeError, TypeError, ValueError):
        is_valid = False
    if not is_valid or not _are_weights(weights) or not _are_widths(widths):
        advice = "correct it" if whose == "your decoder" else "report this to its authors"
        raise ParameterError(
            f"decoder: {whose} must return finite real centers of shape {shape}, {n_clusters} "
            f"weights in records, from 0 to 2^63, and perhaps axis_widths of at least 0; {advice}, "
            "or use `decoder='joint'`"
        )
    centers = np.clip(centers, problem.low, problem.high)
    atoms = Atoms(weights, centers, widths**2).in_order()
    return Solution(
        atoms=atoms,
        density=atoms,
        residual=cost(problem.target(), atoms),
        uncertainty=assess_fit(problem, atoms, 1.0, rng, fit_variances=widths.size > 1),
    )


def _real(values: Any) -> Floats:
    """Return an array of a decoder; refuse complex numbers, of which a part would be lost."""
    array = np.array(values)
    if array.dtype.kind == "c":
        raise TypeError("complex")
    return array.astype(np.float64)


def _are_widths(widths: Floats) -> bool:
    return bool(((widths >= 0) & (widths <= MAX_WIDTH)).all())


def _are_weights(weights: Floats) -> bool:
    return bool(((weights >= 0) & (weights <= MAX_WEIGHT)).all())


def check_choices(
    n_clusters: int | str,
    max_clusters: int | None,
    decoder: str | Decoder = "joint",
    n_init: int | None = None,
) -> None:
    """Raise an error for options that suit no sketch, before one is made."""
    if not isinstance(n_clusters, str) or n_clusters != "auto":
        require_count("n_clusters", n_clusters, "an integer of at least 1, or 'auto'")
        if max_clusters is not None:
            raise ParameterError("max_clusters", max_clusters, "only with `n_clusters='auto'`")
    if max_clusters is not None:
        require_count("max_clusters", max_clusters)
    if n_init is not None:
        require_count("n_init", n_init)
    find_decoder(decoder)


def _generator(sketch: Sketch, random_state: int | None) -> np.random.Generator:
    """Return the public random numbers of a search, those of the design by default."""
    seed = sketch.design.frequencies.seed if random_state is None else public_seed(random_state)
    return public_generator(seed, Purpose.KMEANS_DECODER)


def _number_of_clusters(
    sketch: Sketch, max_clusters: int | None, random_state: int | None
) -> ClusterCount:
    """Return the number of clusters of a sketch; it supports `max_clusters`, or is refused."""
    design, rng = sketch.design, _generator(sketch, random_state)
    if design.cells is not None:
        largest = min(2 * design.n_components, design.n_features)
        largest = largest if max_clusters is None else max_clusters
        require_cells(largest, design.n_features, "max_clusters")
        return count_in_cells(boxes_of(sketch), largest, rng)
    if max_clusters is None:
        supported = supported_clusters(design.dim, design.n_features)
        max_clusters = max(1, min(supported, 2 * design.n_components))
    require_features(max_clusters, design.dim, design.n_features, "max_clusters")
    return count_in_waves(problem_of(sketch), int(max_clusters), rng)


def _as_model(
    sketch: Sketch,
    problem: Problem,
    solution: Solution,
    decoder: str,
    origin: str | None,
    rng: np.random.Generator,
) -> ClusterModel:
    limits = problem.low, problem.high
    if solution.layout is not None:
        centers, records = cluster_products(solution, solution.layout, limits, rng)
        errors = errors_of_products(solution, solution.layout, centers, limits, rng)
        least = least_errors(solution.layout, problem.high - problem.low)
    else:
        # Means of a mixture are not k-means centers if clusters overlap.
        is_joint = decoder == "joint"
        clusters = (
            cluster_density(solution, rng, *limits)
            if is_joint
            else atoms_as_clusters(solution.atoms)
        )
        centers, records, least = clusters.centers, clusters.records, np.zeros(len(problem.low))
        errors = _errors_of_gaussians(clusters, solution)
    expected = solution.expected_residual, solution.uncertainty.cost_spread
    return model_of(
        sketch,
        centers=centers,
        records=records,
        density=in_all_coordinates(solution.density, solution.layout),
        shifts=None if errors is None else _shifts(errors, records, solution, problem, least),
        residual=(solution.residual, *expected),
        decoder=decoder,
        plugin=origin,
    )


def _shifts(
    errors: Floats, records: Floats, solution: Solution, problem: Problem, least: Floats
) -> Floats:
    """Return standard deviations of the means of clusters, (k, dim), by noise and sampling.

    A misfit of the mixture counts as further noise. The center of an empty cluster may be anywhere
    in the domain.
    """
    errors = errors * math.sqrt(max(solution.residual / solution.expected_residual, 1.0))
    errors[records <= 0] = np.inf
    return np.minimum(np.hypot(errors, least), uniform_deviations(problem.high))


def _errors_of_gaussians(clusters: Clusters, solution: Solution) -> Floats | None:
    """Return errors of the centers, (k, dim), by noise and sampling; None for a too large fit.

    A center is the mean of its cluster's shares of the mixture's components. It moves with their
    means, and with their weights if their means differ from it.
    """
    density = solution.density
    records = np.maximum(clusters.records, 1e-300)[:, None]
    shares = clusters.masses / records  # (k, p) share of a component in a cluster
    per_weight = clusters.masses / np.maximum(density.weights, 1e-300) / records
    offsets = clusters.means - clusters.centers[:, None, :]
    by_weights = np.moveaxis(per_weight[:, :, None] * offsets, 2, 1)  # (k, dim, p)
    return solution.uncertainty.errors(by_weights, shares)
