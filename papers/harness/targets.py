"""All targets by name. A paper lists its own in a module of its short name; it is added here."""

from __future__ import annotations

from collections.abc import Sequence

from papers.bal import targets as bal_targets
from papers.clp import targets as clp_targets
from papers.harness.results import Target
from papers.icassp import targets as icassp_targets
from papers.jll import targets as jll_targets
from privsketch._base.errors import ParameterError

TARGETS = (
    *icassp_targets.TARGETS,
    *clp_targets.TARGETS,
    *jll_targets.TARGETS,
    *bal_targets.TARGETS,
)
EVERY = "all"


def find_targets(names: Sequence[str]) -> list[Target]:
    """Targets by their names, by a paper's short name or "all"; each one once, as asked for."""
    found = [target for name in names for target in _named(name)]
    return list(dict.fromkeys(found))


def _named(name: str) -> list[Target]:
    found = [target for target in TARGETS if name in (target.name, target.short_paper, EVERY)]
    if not found:
        papers = dict.fromkeys(target.short_paper for target in TARGETS)
        known = ", ".join([EVERY, *papers, *(target.name for target in TARGETS)])
        raise ParameterError(f"target={name!r}: expected one of {known}")
    return found
