"""Errors of studies: broken rules of a sealed study, and requests that a collector refuses."""

from __future__ import annotations

from privsketch import PrivsketchError


class StudyError(PrivsketchError):
    """A rule of a sealed study would be broken: another list, a second use, a stranger."""

    kind = "integrity"


class CollectorError(PrivsketchError):
    """A collector refused a request, or did not answer it.

    Parameters
    ----------
    text : str
        The message.
    refusal : str
        Why, in a word: "token", "role", "unknown", "slow", "conflict", "size", "kind", "content",
        "closed", "often", "storage" or "answer".
    """

    kind = "data"

    def __init__(self, text: str, refusal: str = "answer") -> None:
        super().__init__(text)
        self.refusal = refusal
