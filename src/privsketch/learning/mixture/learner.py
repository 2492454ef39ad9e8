"""Gaussian mixtures from a sketch: weights, means and covariances at no further cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch._base.types import Floats
from privsketch.design.forecast import missed_directions
from privsketch.design.recipe import Design
from privsketch.design.size import (
    COVARIANCE_TYPES,
    CovarianceType,
    mixture_unknowns,
    require_searchable_mixture,
)
from privsketch.design.validity import require_cells, unknown_harmonics
from privsketch.facts.columns import Date, Number
from privsketch.facts.layout import layout_of
from privsketch.facts.schema import Schema
from privsketch.features.frequencies import public_seed
from privsketch.features.stream import Purpose, public_generator
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.learning.cells.boxes import boxes_of
from privsketch.learning.cells.mixture import decode_mixture_of_cells
from privsketch.learning.concerns import (
    coordinates_cut,
    counting_bounds,
    missing_records,
    noise_decided_sketch,
    on_the_edge,
    source_concerns,
)
from privsketch.learning.kmeans.model import shares
from privsketch.learning.mixture.decoder import (
    MAX_MIXTURE_SEARCHES,
    MixtureSolution,
    decode_mixture,
)
from privsketch.learning.mixture.gaussians import Gaussians
from privsketch.learning.problem import Problem, checked_sketch, dither_of, problem_of
from privsketch.learning.uncertainty import uniform_deviations
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.sketching.sketch import Sketch

MISFIT = 1.5  # residual over its expectation above which the mixture is doubtful
MAX_OUTSIDE_SHARE = 0.05  # share of the mixture outside the domain that is worth a concern
LARGE_SEARCH = 10**7  # parameters x features from which on a search takes many seconds


def learn_gaussian_mixture(
    sketch: Sketch,
    n_components: int | None = None,
    *,
    covariance_type: CovarianceType = "full",
    n_init: int | None = None,
    random_state: int | None = None,
) -> GaussianMixtureModel:
    """Learn a Gaussian mixture from a sketch. Charges nothing.

    Parameters
    ----------
    sketch : Sketch
        One holder's sketch, or several merged.
    n_components : int, optional
        The number that the design was planned for if left out.
    covariance_type : {"full", "tied", "diag", "spherical"}
        As in scikit-learn: a matrix for each component, one for all, variances along the
        axes, or one variance for each component.
    n_init : int, optional
        Maximum number of searches; the first one that explains the sketch is the last. Five if left
        out, one for very large sketches.
    random_state : int, optional
        Public seed of the searches; the design's own if left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> from privsketch.learning.mixture.learner import learn_gaussian_mixture
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)) * 0.1 + rng.choice([-0.5, 0.5], size=(20_000, 1))
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = learn_gaussian_mixture(ps.sketch(X, design), 2, covariance_type="spherical")
    >>> bool(np.allclose(np.sqrt(model.covariances), 0.1, atol=0.02))
    True
    """
    design = checked_sketch(sketch).design
    if n_components is None:
        n_components = design.n_components
    n_unknowns = check_choices(design, n_components, covariance_type, n_init)
    n_components = int(n_components)
    if n_init is None:
        n_init = MAX_MIXTURE_SEARCHES if n_unknowns * design.n_features <= LARGE_SEARCH else 1
    seed = design.frequencies.seed if random_state is None else public_seed(random_state)
    rng = public_generator(seed, Purpose.MIXTURE_DECODER)
    if design.cells is not None:
        solution = decode_mixture_of_cells(boxes_of(sketch), n_components, covariance_type, rng)
        return _as_model(sketch, solution, covariance_type)
    solution = decode_mixture(
        mixture_problem(sketch),
        n_components,
        covariance_type,
        rng,
        n_init=int(n_init),
        project=design.domain.centered().project,
        dither=_dither(sketch),
    )
    return _as_model(sketch, solution, covariance_type)


def check_choices(
    design: Design, n_components: int, covariance_type: CovarianceType, n_init: int | None
) -> int:
    """Raise for choices that fit no sketch of this design; return the number of unknowns."""
    require_one_of("covariance_type", covariance_type, COVARIANCE_TYPES)
    n_components = require_searchable_mixture(n_components)
    if n_init is not None:
        require_count("n_init", n_init)
    layout = None if design.cells else layout_of(design.schema, design.domain.center_vector)
    n_numbers = design.dim if layout is None else len(layout.numbers)
    n_unknowns = mixture_unknowns(n_components, n_numbers, covariance_type) + 1
    if layout is not None:
        n_unknowns += n_components * (len(layout.sides) - len(layout.blocks))
    if design.cells is not None:
        require_cells(n_components, design.n_features, "n_components")
    if n_unknowns > design.n_values:
        raise ParameterError(
            f"`n_components={n_components}` with `covariance_type={covariance_type!r}` has "
            f"{n_unknowns} unknowns in {design.dim} columns, the sketch {design.n_values} "
            "numbers; ask for fewer components or a simpler covariance_type, or plan a design "
            f"with n_features={4 * n_unknowns}"
        )
    return n_unknowns


def mixture_problem(sketch: Sketch) -> Problem:
    """Return the sketch as a problem whose noise includes the scatter of signs."""
    problem = problem_of(sketch)
    if not problem.one_bit:
        return problem
    count = sketch.n_records
    n_records = float(np.max(np.abs(problem.moments))) if count is None else max(count, 0.0)
    scatter = n_records * problem.repetition * SIGN_VARIANCE / 2
    return replace(problem, noise_variance=problem.noise_variance + scatter)


def _dither(sketch: Sketch) -> Floats | None:
    design = sketch.design
    if not design.mapping.dithered:
        return None
    if design.mapping.origin is not None:
        raise unknown_harmonics(design)
    return dither_of(design)


def _as_model(
    sketch: Sketch, solution: MixtureSolution, covariance_type: CovarianceType
) -> GaussianMixtureModel:
    design, gaussians = sketch.design, solution.gaussians
    model = GaussianMixtureModel(
        weights=shares(gaussians.weights),
        means=solution.means + design.domain.center_vector,
        covariances=gaussians.covariances,
        covariance_type=covariance_type,
        standard_errors=np.minimum(
            solution.standard_errors, uniform_deviations(design.domain.half_widths)
        ),
        residual=solution.chi_square,
        expected_residual=float(solution.degrees_of_freedom),
        n_records=float(gaussians.weights.sum()),
        design_fingerprint=design.fingerprint,
        receipt=sketch.receipt,
        columns=design.columns,
        schema=design.schema,
    )
    layout = layout_of(design.schema, design.domain.center_vector)
    if layout is not None and gaussians.dim < design.dim:
        matrices = np.zeros((*model.means.shape, design.dim))
        matrices[:, layout.numbers[:, None], layout.numbers] = gaussians.matrices()
        full = replace(model, covariances=matrices, covariance_type="full")
        model = replace(model, covariances=_with_blocks(full, gaussians, covariance_type))
    elif covariance_type == "tied":
        model = replace(model, covariances=gaussians.covariances[0])
    elif covariance_type == "spherical":
        model = replace(model, covariances=gaussians.covariances[:, 0])
    missed = missed_directions(design)
    blind = () if missed is None else (missed,)
    texts = (*source_concerns(sketch), *blind, *_concerns(model, sketch, solution))
    return replace(model, concerns=texts)


def _with_blocks(
    full: GaussianMixtureModel, gaussians: Gaussians, covariance_type: CovarianceType
) -> Floats:
    """Return covariances of a type in all coordinates; `full` has matrices for the numbers."""
    matrices = full.covariance_matrices()
    if covariance_type == "full":
        return matrices
    if covariance_type == "tied":
        return np.asarray(np.tensordot(full.weights, matrices, 1))
    variances = np.diagonal(matrices, axis1=1, axis2=2)
    if covariance_type == "diag":
        return variances.copy()
    return gaussians.covariances[:, 0] if gaussians.dim else variances.mean(axis=1)


def _outside_bounds(model: GaussianMixtureModel, widths: Floats, schema: Schema) -> list[str]:
    """Return a concern if much of the mixture lies outside the bounds of numbers and dates.

    Labels do not count: Gaussians around them always reach beyond their corners.
    """
    tail_shares = {}
    for column, coordinates in schema.places():
        if isinstance(column, Number | Date):
            means, spread = model.means[:, coordinates.start], widths[:, coordinates.start]
            tails = ndtr((means - column.weight) / spread)
            if counting_bounds(schema.box, schema)[0, coordinates.start]:
                tails += ndtr((-column.weight - means) / spread)
            tail_shares[column.name] = float(model.weights @ tails)
    names = [name for name, share in tail_shares.items() if share > MAX_OUTSIDE_SHARE]
    if not names:
        return []
    return [
        f"{max(tail_shares.values()):.0%} of the mixture lies outside the bounds of "
        f"{', '.join(names)}, to which values were moved: they may be too narrow"
    ]


def _concerns(
    model: GaussianMixtureModel, sketch: Sketch, solution: MixtureSolution
) -> tuple[str, ...]:
    """Return reasons to doubt the mixture, in words."""
    design, size = sketch.design, model.n_components
    texts = noise_decided_sketch(sketch, size, model.n_records, "component")
    by_noise = bool(texts)
    if not by_noise:
        texts += on_the_edge(
            model.means, model.weights, design.domain, design.schema, design.columns
        )
    texts += missing_records(model.n_records, sketch)
    ratio = model.misfit
    if ratio is not None and ratio > MISFIT:
        texts.append(
            f"the misfit is {ratio:.1f} times what noise and sampling leave on average: the "
            "records are not such a mixture (more components or another covariance_type may "
            "be), or the search got stuck (try more starts)"
        )
    widths = np.sqrt(np.diagonal(model.covariance_matrices(), axis1=1, axis2=2))
    schema = sketch.design.schema
    axes = slice(None) if schema is None else coordinates_cut(schema)  # labels may have no width
    vague = int((model.standard_errors > widths)[:, axes].any(axis=1).sum())
    if vague and not by_noise:
        texts.append(
            f"the mean of {vague} of {model.n_components} components is known no better than to "
            "its width: the sketch may not support as many components"
        )
    if schema is not None and not by_noise:
        texts += _outside_bounds(model, widths, schema)
    elif solution.outside_share > MAX_OUTSIDE_SHARE and not by_noise:
        texts.append(
            f"{solution.outside_share:.0%} of the mixture lies outside the domain, whose edge "
            "the records were moved to: the domain may be too narrow"
        )
    return tuple(texts)
