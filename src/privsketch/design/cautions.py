"""What people should think about once more: of a domain and a budget, and of a whole design.

A domain and a budget are looked at where a person states them: `Design.plan`, `fit` of an
estimator, a command. Plans that are made on the way, for shares of a budget, for balls of
directions or to be compared, use `plan_design` and say nothing. Public facts alone, before
anything is spent.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

import numpy as np

from privsketch._base.errors import PrivsketchWarning
from privsketch._base.formats import as_line
from privsketch.design.forecast import MANY_COLUMNS
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget, delta_caution, epsilon_caution
from privsketch.facts.domain import Box, Domain
from privsketch.facts.schema import Schema, schema_of

# Widest over narrowest column from which on all others hardly count: in squared distances, which
# k-means adds up, the widest has a hundred times the weight then.
UNEVEN = 10.0
_ROUNDING = 1e-9  # of widths, which are differences of bounds: 28.1 - 18.1 is not quite ten
_LARGE_DELTA = 0.1  # times 1 / number of records; delta should be far below that


def uneven_columns(domain: Domain | Schema, names: Sequence[str] | None = None) -> str | None:
    """A sentence if columns of a box differ tenfold in width; None if not, and for balls."""
    if not isinstance(domain, Box) or domain.dim is None:
        return None
    widths = 2 * domain.half_widths
    wide, narrow = int(np.argmax(widths)), int(np.argmin(widths))
    if widths[wide] < UNEVEN * (1 - _ROUNDING) * widths[narrow]:
        return None
    names = domain.columns if names is None else names
    called = [
        f"column {place}" if names is None else as_line(names[place]) for place in (wide, narrow)
    ]
    return (
        f"columns differ tenfold or more in width, from {widths[narrow]:.4g} ({called[1]}) to "
        f"{widths[wide]:.4g} ({called[0]}), and distances are measured in their units: the widest "
        "decide what is near; if all should count alike, describe them by a schema (ps.Schema, "
        "--schema schema.json) or scale them by their bounds (ps.Box(..., columns=[...], "
        "scale=True))"
    )


def stated_cautions(
    domain: Domain | Schema,
    budget: Budget,
    n_records: object,
    names: Sequence[str] | None = None,
) -> list[str]:
    """What a domain and a budget make one think about once more.

    `n_records` is a public number, or None where nobody stated one. Columns of a schema, and of a
    box that is scaled, differ in width only where weights say so.
    """
    schema = schema_of(domain)
    unit = budget.unit if schema is None else schema.unit
    found = [
        epsilon_caution(budget.epsilon, unit.text),
        delta_caution(budget.delta, n_records),
    ]
    if schema is None:
        found.insert(0, uneven_columns(domain, names))
    return [text for text in found if text is not None]


def warn_of(cautions: Sequence[str]) -> None:
    """Each as a `PrivsketchWarning`, at the line outside of this package that asked."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    for text in cautions:
        warnings.warn(text, PrivsketchWarning, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "privsketch"


def cautions(design: Design) -> list[str]:
    """What people who plan this study should think about once more."""
    found = []
    told = design.forecast()
    if told.verdict == "rough":
        what = "components" if design.task == "pca" else "centers"
        found.append(
            f"{what} may be visibly off: more records or holders, a larger epsilon or fewer "
            f"{'of them' if design.task == 'pca' else 'clusters'} make the study better"
        )
    if told.verdict == "hopeless":
        found.append(
            "with so few records for this budget a fit would describe the noise; more "
            f"records, a larger epsilon, delta > 0 or fewer "
            f"{'components' if design.task == 'pca' else 'clusters'} help"
        )
    if design.schema is not None and not design.schema.is_smooth and design.task != "pca":
        found.append(
            "categories, flags and cycles are no Gaussians: k-means from a sketch of them costs "
            "some percent more than the forecast says, 1 to 9 in tables that were tried; methods "
            "that read the records again (privsketch cluster) do not"
        )
    stated = design.domain if design.schema is None else design.schema
    found += stated_cautions(stated, design.budget, design.n_records, design.columns)
    large = design.budget.delta * design.n_records >= _LARGE_DELTA
    if large and delta_caution(design.budget.delta, design.n_records) is None:
        found.append("delta should be far below 1 / number of records")
    if design.dim > MANY_COLUMNS and design.task != "pca":
        found.append(
            f"with more than {MANY_COLUMNS} columns learning is slow and often gets stuck; "
            "project the records first, by a public random matrix for instance"
        )
    return found
