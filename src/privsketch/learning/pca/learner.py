"""Principal components from a sketch, at no further privacy cost."""

from __future__ import annotations

import math
from dataclasses import replace

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch.design.pca import HOPELESS_LOSS
from privsketch.design.recipe import Design
from privsketch.design.validity import pca_unknowns, require_components
from privsketch.features.frequencies import public_seed
from privsketch.features.stream import Purpose, public_generator
from privsketch.learning.concerns import source_concerns
from privsketch.learning.pca.decoder import PCA_METHODS, PCASolution, decode_pca
from privsketch.learning.pca.problem import problem_of_pca
from privsketch.models.components import PCAModel
from privsketch.sketching.sketch import Sketch

MISFIT = 1.5  # residual over its expectation above which the remaining variance is uneven
MAX_LOST_SHARE = 0.05  # share of the variance lost to noise that is worth a concern
EDGE_SHARE = 0.98  # share of the largest possible total variance: records are on the edge
CENTRAL_RADIUS = 0.03  # root mean square distance from the center over the radius of the domain
TOO_FEW = "noise decided the components: there are too few records to say anything"


def learn_pca(
    sketch: Sketch,
    n_components: int | str | None = None,
    *,
    method: str = "auto",
    random_state: int | None = None,
) -> PCAModel:
    """Learn principal components from a sketch. Charges nothing.

    They are about the mean of the records if the design releases it (`mean="released"`),
    else about the center of the domain; the model says which.

    Parameters
    ----------
    sketch : Sketch
        Sketch of a design with task="pca", "regression" or "classification": one holder's, or
        several merged.
    n_components : int or "auto", optional
        The number that the design was planned for if left out, where it has one. "auto" counts
        the components that stand out of the noise, at most twice the planned number or three more.
    method : {"auto", "burer-monteiro", "convex"}
        How a matrix is fitted to what was released. "auto" takes the eigenvectors of
        second moments with Gaussian noise, and a fit of low rank otherwise; "convex" needs
        no search, and is less precise.
    random_state : int, optional
        Public seed of the simulations that tell components from noise; the design's own if
        left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> from privsketch.learning.pca.learner import learn_pca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 4)) * [0.3, 0.1, 0.02, 0.02]
    >>> design = ps.Design.plan(task="pca", n_components=2, domain=ps.Ball(dim=4, radius=1.0),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = learn_pca(ps.sketch(X, design))
    >>> bool(np.allclose(np.abs(model.components), np.eye(4)[:2], atol=0.05))
    True
    """
    if not isinstance(sketch, Sketch):
        raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
    design = sketch.design
    problem = problem_of_pca(sketch)
    if n_components is None:
        n_components = _planned_number(design)
    check_choices(n_components, method)
    number = None if isinstance(n_components, str) else int(n_components)
    if number is not None:
        require_components(number, design.dim, design.n_values)
    seed = design.frequencies.seed if random_state is None else public_seed(random_state)
    solution = decode_pca(
        problem,
        number,
        public_generator(seed, Purpose.PCA_DECODER),
        method=method,
        planned_components=design.n_components or design.dim,
    )
    return _as_model(sketch, solution)


def _planned_number(design: Design) -> int:
    """Return the number of components that a design was planned for; some have none."""
    if design.n_components == 0:
        raise ParameterError(
            f"n_components: the design is for `task={design.task!r}` and says no number; state it, "
            "or 'auto'"
        )
    return design.n_components


def check_choices(n_components: int | str, method: str) -> None:
    """Raise for choices that fit no sketch, before one is made."""
    if not isinstance(n_components, str) or n_components != "auto":
        require_count("n_components", n_components, "an integer of at least 1, or 'auto'")
    require_one_of("method", method, PCA_METHODS)


def _as_model(sketch: Sketch, solution: PCASolution) -> PCAModel:
    center = sketch.design.domain.center_vector
    model = PCAModel(
        components=solution.components,
        explained_variance=solution.explained_variance,
        standard_errors=solution.standard_errors,
        mean=center if solution.mean is None else center + solution.mean,
        centered=solution.mean is not None,
        total_variance=solution.total_variance,
        noise_variance=solution.noise_variance,
        lost_variance=solution.lost_variance,
        n_standing_out=solution.standing_out,
        residual=solution.residual,
        expected_residual=solution.expected_residual,
        n_records=max(float(sketch.assumed_records), 0.0),
        method=solution.method,
        design_fingerprint=sketch.design.fingerprint,
        receipt=sketch.receipt,
        columns=sketch.design.columns,
        schema=sketch.design.schema,
    )
    found = (TOO_FEW,) if solution.too_few else _concerns(model, sketch)
    return replace(model, concerns=(*source_concerns(sketch), *found))


def _concerns(model: PCAModel, sketch: Sketch) -> tuple[str, ...]:
    """Return reasons to doubt the components, in words."""
    texts = []
    radius = float(sketch.design.domain.half_widths[0])
    size, standing = model.n_components, model.n_standing_out
    is_hopeless = model.lost_variance > HOPELESS_LOSS
    if standing < size:
        missing = size - standing
        which = "the component" if size == 1 else f"{missing} of {size} components"
        do_not = "does not" if missing == 1 else "do not"
        texts.append(f"{which} {do_not} stand out of the noise, and may describe it")
        if standing == 0 or is_hopeless:
            pronoun = "it" if missing == 1 else "they"
            texts[-1] = f"noise decided {which}: {pronoun} {do_not} stand out of the noise"
    if model.lost_variance > MAX_LOST_SHARE and standing > 0:
        decided = "noise decided the components: it" if is_hopeless else "the noise"
        texts.append(
            f"{decided} is expected to cost {model.lost_variance:.0%} of the variance that the "
            "best components hold"
        )
    if sketch.n_records is None:
        texts.append(
            "the sketch has no number of records: variances are those of "
            f"{model.n_records:.0f}, the number it was planned for"
        )
    if not model.centered and model.total_variance > EDGE_SHARE * radius**2:
        text = (
            "nearly all records lie on the edge of the domain, where those outside of it end up: "
            "it is too narrow, or the records are in other units"
        )
        reason = "; or there are more of them than planned" if sketch.n_records is None else ""
        texts.append(text + reason)
    if not model.centered and standing and model.total_variance < (CENTRAL_RADIUS * radius) ** 2:
        texts.append(
            "all records lie very near the center of the domain: a smaller radius would need far "
            "less noise"
        )
    if model.misfit > _max_misfit(model, sketch) and sketch.design.feature_map == "quadratic":
        texts.append(
            f"records vary in more directions than a few (misfit {model.misfit:.1f}): second "
            'moments, feature_map="second-moments", tell components of such records better '
            "than features"
        )
    return tuple(texts)


def _max_misfit(model: PCAModel, sketch: Sketch) -> float:
    """Return the largest misfit that few values beyond the unknowns may have by chance."""
    design = sketch.design
    unknowns = pca_unknowns(max(model.n_components, model.n_standing_out), design.dim)
    free = max(design.n_values - unknowns, 1)
    of_squares = 5 if design.noise == "laplace" else 2  # variance of a square: kurtosis 6, or 3
    return max(MISFIT, 1 + 3 * math.sqrt(of_squares / free))
