"""Learn from sensitive records without keeping them.

Each holder reads its records once and publishes a sketch: a short vector of noisy
integer sums that is differentially private by construction. Sketches add up; from the
sum alone anyone learns clusters, Gaussian mixtures or principal components.

The public names are listed in `__init__.pyi`.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

__version__ = "0.2.0.dev0"
_get_public, _list_public, __all__ = lazy_loader.attach_stub(__name__, __file__)
# Names of the distribution privsketch-studies that used to be here.
_IN_STUDIES = frozenset(
    [
        "Ballot",
        "Card",
        "CheckedBallots",
        "ClosedList",
        "CollectorError",
        "SealedStudy",
        "StudyError",
        "Tally",
        "check_ballots",
        "join",
        "seal",
        "tally",
    ]
)


def __getattr__(name: str) -> Any:
    if name in _IN_STUDIES:
        from privsketch._base.errors import MovedError

        raise MovedError(
            f"privsketch.{name}: part of the distribution privsketch-studies; install it (pip "
            f"install privsketch-studies) and use privsketch_studies.{name}"
        )
    return _get_public(name)


def __dir__() -> list[str]:
    return sorted([*_list_public(), "__version__"])
