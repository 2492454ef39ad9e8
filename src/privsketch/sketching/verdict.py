"""What a comparison of the parts of a total said, as the header of the total keeps it.

It is public, and somebody else may have written it: a reader believes only its form. It reveals
nothing beyond the parts, of which it is a function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from privsketch._base.errors import ParameterError
from privsketch._base.formats import as_line

MAX_ALARMS = 100  # alarms in a verdict; further ones are left out
MAX_ALARM_TEXT = 300  # characters
MAX_SHOWN_ALARMS = 5  # alarms that a description or a model shows
MAX_SHOWN_NAME = 60  # characters of a source's name beside an alarm
MIN_SOURCES = 3  # sources from which on a comparison can say which of them is wrong
# Why sources were not compared. Files have the words on the left.
REASONS = {
    "few": f"a comparison needs {MIN_SOURCES} sketches",
    "many": "there are too many sketches to compare them by default",
    "sealed": "parts of a sealed study could not be compared",
    "skipped": "nobody compared them",
}


@dataclass(frozen=True)
class Alarm:
    """A source that looks wrong, and why, in one line.

    Attributes
    ----------
    source : str
        Name of the source; the first one if it was compared as a total of several.
    text : str
        At most 300 printable characters.
    """

    source: str
    text: str

    def __post_init__(self) -> None:
        if not (isinstance(self.source, str) and isinstance(self.text, str)):
            raise ParameterError("alarm: source and text must be texts")
        if not 1 <= len(self.text) <= MAX_ALARM_TEXT or as_line(self.text) != self.text:
            raise ParameterError(
                f"alarm: the text must be 1 to {MAX_ALARM_TEXT} printable characters"
            )

    @classmethod
    def about(cls, sources: Sequence[str], text: str) -> Alarm:
        """Return an alarm about a source, or a total of several, cutting a text that is long."""
        if len(sources) > 1:
            text = f"with {len(sources) - 1} more as one total: {text}"
        return cls(sources[0], _shortened(as_line(text), MAX_ALARM_TEXT))

    def describe(self) -> str:
        """Return the alarm on one line."""
        return f"{_shortened(as_line(self.source), MAX_SHOWN_NAME)}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What a comparison of the parts of a total said.

    Attributes
    ----------
    alarms : tuple of Alarm
        Sources that look wrong; those of totals that were merged before come first.
    compared : tuple of str
        Names of the sources whose own sketches were compared, in the order of the total.
    reasons : tuple of str
        Why the other sources were not compared: sorted keys of `REASONS`. Empty if all were.
    """

    alarms: tuple[Alarm, ...] = ()
    compared: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.alarms) > MAX_ALARMS or len(set(self.alarms)) < len(self.alarms):
            raise ParameterError(f"verdict: expected at most {MAX_ALARMS} alarms, each once")
        if not set(self.reasons) <= set(REASONS) or list(self.reasons) != sorted(set(self.reasons)):
            raise ParameterError("verdict: unknown or unsorted reasons")

    def require_fits(self, sources: Sequence[str]) -> None:
        """Refuse a verdict that cannot be about a total of these sources."""
        names = list(dict.fromkeys(sources))
        compared = set(self.compared)
        if tuple(name for name in names if name in compared) != self.compared:
            raise ParameterError("verdict: it compares other sources than those of the total")
        if not {alarm.source for alarm in self.alarms} <= set(names):
            raise ParameterError("verdict: an alarm is about no source of the total")
        if bool(self.reasons) != (len(compared) < len(names)):
            raise ParameterError("verdict: the reasons do not go with the sources")

    def describe(self, sources: Sequence[str]) -> list[str]:
        """Return lines about a total of these sources: alarms first."""
        alarms = [f"ALARM       {text}" for text in self.alarm_texts()]
        return [*alarms, self.describe_compared(sources)]

    def describe_compared(self, sources: Sequence[str]) -> str:
        """Return a line about how many of these sources were compared, and why not all."""
        n_sources = len(set(sources))
        if not self.reasons:
            return f"compared    all {n_sources} sources"
        why = "; ".join(REASONS[reason] for reason in self.reasons)
        return f"compared    {len(self.compared)} of {n_sources} sources: {why}"

    def alarm_texts(self) -> list[str]:
        """Return a line for each of the first alarms, and one for the number of the others."""
        texts = [alarm.describe() for alarm in self.alarms[:MAX_SHOWN_ALARMS]]
        more = len(self.alarms) - MAX_SHOWN_ALARMS
        return [*texts, *([f"{more} more sources look wrong"] if more > 0 else [])]

    def concerns(self) -> tuple[str, ...]:
        """Return the alarms as reasons to doubt a model of the total."""
        return tuple(f"a source looks wrong: {text}" for text in self.alarm_texts())

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain JSON values."""
        return {
            "alarms": [{"source": alarm.source, "text": alarm.text} for alarm in self.alarms],
            "compared": list(self.compared),
            "reasons": list(self.reasons),
        }

    @classmethod
    def from_json(cls, value: Any, sources: Sequence[str]) -> Verdict:
        """Return the verdict of a total of these sources; raise ParameterError for no such one."""
        if not isinstance(value, dict) or set(value) != {"alarms", "compared", "reasons"}:
            raise ParameterError("verdict: unknown or missing fields")
        alarms = []
        for alarm in _items(value["alarms"], dict, MAX_ALARMS):
            if set(alarm) != {"source", "text"}:
                raise ParameterError("verdict: unknown or missing fields")
            alarms.append(Alarm(alarm["source"], alarm["text"]))
        compared = _items(value["compared"], str, len(sources))
        reasons = _items(value["reasons"], str, len(REASONS))
        verdict = cls(tuple(alarms), tuple(compared), tuple(reasons))
        verdict.require_fits(sources)
        return verdict


def combined_verdict(
    parts: Iterable[tuple[Sequence[str], Verdict | None]], found: Verdict
) -> Verdict:
    """Return the verdict of a total from those of its parts and from what their comparison found.

    Alarms stay. A source was compared if its own sketch was, now or before. `parts` are the sources
    of each part and its verdict, None for a single release and for totals that nobody compared;
    `found` is about the parts that are single releases.
    """
    alarms, reasons = list[Alarm](), set[str]()
    names, compared = list[str](), set(found.compared)
    for sources, verdict in parts:
        names += sources
        if verdict is not None:
            alarms += verdict.alarms
            compared |= set(verdict.compared)
            reasons |= set(verdict.reasons)
        elif len(sources) > 1:
            reasons.add("skipped")
        elif sources[0] not in compared:
            reasons |= set(found.reasons)
    names = list(dict.fromkeys(names))
    if len(compared) == len(names):
        reasons = set()
    alarms = list(dict.fromkeys([*alarms, *found.alarms]))
    return Verdict(
        tuple(alarms[:MAX_ALARMS]),
        tuple(name for name in names if name in compared),
        tuple(sorted(reasons)),
    )


def _shortened(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _items(value: Any, kind: type, longest: int) -> list[Any]:
    """Return a list of at most `longest` items of a type."""
    if not isinstance(value, list) or len(value) > longest:
        raise ParameterError(f"verdict: expected a list of at most {longest}")
    if not all(type(item) is kind for item in value):
        raise ParameterError(f"verdict: expected a list of {kind.__name__}")
    return value
