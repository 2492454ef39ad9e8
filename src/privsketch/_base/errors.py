"""All errors that privsketch raises deliberately, and its warning.

All errors are a `PrivsketchError` and a `ValueError`, because scikit-learn and its users expect a
`ValueError` for a bad parameter or a bad table. A message names the parameter, the value (never the
content of a record), what is allowed and what to do instead.

Messages mark parameters by backquotes. Each interface shows them in its own form: noise='cube' in
Python, --noise cube in a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Number, Real
from typing import Any, ClassVar, Self, TypeVar

_Known = TypeVar("_Known")
_Error = TypeVar("_Error", bound="PrivsketchError")
_UNSEEN: Any = object()
MAX_TEXT, MAX_ITEMS = 300, 8  # of a shown value: longer ones are data, not parameters


class PrivsketchError(ValueError):
    """Base of all errors raised by privsketch.

    Parameters
    ----------
    text : str
        Message, with parameters in backquotes: `name`, `name=` or `name=value`.
    """

    kind: ClassVar[str] = "internal"  # kind of failure that the command line reports

    def __init__(self, text: str = "") -> None:
        self._text = text
        super().__init__(text.replace("`", ""))

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:  # tracebacks show the public name
            cls.__module__ = "privsketch"

    @property
    def text(self) -> str:
        """Message with its backquotes, from which another error can be made."""
        return self._text

    def rendered(self, words: Callable[[str, str | None], str]) -> str:
        """Return the message with every parameter as `words(name, value)` writes it.

        The value is Python's `repr`, or None where only the name is marked.
        """
        parts = self._text.split("`")
        for index in range(1, len(parts), 2):  # the parts between two backquotes
            name, _, value = parts[index].partition("=")
            parts[index] = words(name, value or None)
        return "".join(parts)

    def without_causes(self) -> Self:
        """Return this error without its causes: frames and foreign errors may hold records."""
        return _rebuild(type(self), self._text, self.__dict__)  # `copy` may keep causes

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._text, self.__dict__)


class PrivsketchWarning(UserWarning):
    """A reason to reconsider a stated domain or budget, or to doubt a model.

    The first kind depends on public facts alone and is issued once for every plan and every `fit`,
    before anything is spent. The second kind are the concerns of a model, which `fit` issues when
    the model is there. `warnings.filterwarnings("ignore", category=privsketch.PrivsketchWarning)`
    silences it; "error" turns it into an exception.
    """


class ParameterError(PrivsketchError):
    """A parameter is missing, out of range, or does not go with another one.

    Parameters
    ----------
    name : str
        Name of the parameter; without `expected`, the whole message.
    value : object
        Its value.
    expected : str
        What is allowed.
    advice : str
        What to do instead.

    Attributes
    ----------
    name : str or None
        Name of the parameter; None if the error has only a message.
    value, expected, advice
        Facts about it. A value that is neither a number nor a short text is replaced by the name
        of its type, because it might be a table.

    Examples
    --------
    >>> error = ParameterError("noise", "loud", "expected 'cube'", "leave it out")
    >>> str(error)
    "noise='loud': expected 'cube'; leave it out"
    >>> error.name, error.expected
    ('noise', "expected 'cube'")
    """

    kind = "usage"

    def __init__(
        self, name: str, value: object = _UNSEEN, expected: str = "", advice: str = ""
    ) -> None:
        if value is _UNSEEN:
            super().__init__(name)
            self.name: str | None = None
            self.value: object = None
        else:
            ending = f"; {advice}" if advice else ""
            summary = _small(value)
            shown = (repr(value) if summary is value else f"<{summary}>").replace("`", "'")
            super().__init__(f"`{name}={shown}`: {expected}{ending}")
            self.name, self.value = name, summary
        self.expected, self.advice = expected, advice


class NumberTypeError(ParameterError, TypeError):
    """A number is given as text."""


class RecordError(PrivsketchError):
    """A table cannot be read as records of the design. The message is for its holder only."""

    kind = "data"


class TableError(RecordError):
    """A table does not fit by public facts: files, names, types, number of columns.

    The error does not depend on records; a ledger counts only refusals that do.
    """


class MissingError(RecordError):
    """A value is missing or infinite where that is not allowed.

    Parameters
    ----------
    index : int, optional
        Number of the column in a record; None if it is not known.
    column : str or int, optional
        Name or number of the column in the table.
    """

    def __init__(self, index: int | None = None, column: str | int | None = None) -> None:
        super().__init__()
        self.locate(index, column)

    def locate(self, index: int | None, column: str | int | None) -> None:
        """Name the column in the message, once it is known."""
        self.index, self.column = index, column
        number = index if column is None else column
        which = "a record" if number is None else f"column number {number} (from 0)"
        if isinstance(column, str):
            which = f"column {column!r}"
        super().__init__(
            f"{which} has a missing (NaN, null) or infinite value; clean the table, describe it "
            "by a schema, which can leave such records out, or use `missing='center'` to put such "
            "values at the center of the domain"
        )


class FileError(PrivsketchError):
    """A file is truncated, corrupted, foreign, or from a newer version."""

    kind = "integrity"


class AccessError(FileError):
    """A file cannot be found, opened, written or replaced."""

    kind = "data"


class MergeError(PrivsketchError):
    """Sketches cannot be added up."""

    kind = "integrity"


class BudgetError(PrivsketchError):
    """A release would cost more than its holder allows; nothing was spent."""

    kind = "budget"


class SignatureError(FileError):
    """A signature is missing, wrong, or made by an untrusted key."""


class MovedError(PrivsketchError, AttributeError):
    """A public name has moved to another distribution."""

    kind = "usage"


class KernelError(PrivsketchError, RuntimeError):
    """Compiled code differs from its definition and is not used."""


def _small(value: object) -> object:
    """Return a plain, short value as it is, and the type's name of any other value."""
    if value is None or isinstance(value, Number):
        return value
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    if (
        isinstance(value, tuple | list)
        and len(value) <= MAX_ITEMS
        and all(_small(item) is item for item in value)
    ):
        return value
    return type(value).__name__


def _rebuild(kind: type[_Error], text: str, facts: dict[str, Any]) -> _Error:
    """Rebuild an error from its facts, perhaps in another process."""
    error = kind.__new__(kind)
    PrivsketchError.__init__(error, text)
    error.__dict__.update(facts)
    return error


def require_gaussian_delta(delta: float, instead: str = "cube") -> None:
    """Refuse Gaussian noise for a pure budget."""
    if delta == 0:
        raise ParameterError(
            "`delta=0` with `noise='gaussian'`: the Gaussian mechanism needs delta > 0; use "
            f"`noise={instead!r}` for pure differential privacy"
        )


MANY = 2.0**36  # largest number of records that 64-bit sums are planned for


def require_records(value: object) -> float:
    """Return a public number of records as a float, or raise a ParameterError."""
    if not isinstance(value, bool) and isinstance(value, Real) and 1 <= float(value) <= MANY:
        return float(value)
    expected = f"expected a public number of records, 1 to {MANY:.0e}"
    raise ParameterError("n_records", value, expected)


def require_count(name: str, value: object, what: str = "an integer of at least 1") -> int:
    """Return a whole number of at least 1 as an int, or raise a ParameterError."""
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1:
        return int(value)
    raise ParameterError(name, value, f"expected {what}")


MIN_FREQUENCY_SCALE, MAX_FREQUENCY_SCALE = 1e-100, 1e100  # their squares are finite floats


def require_scales(scales: tuple[float, float]) -> tuple[float, float]:
    """Return the lowest and highest scale of frequencies, or raise a ParameterError."""
    low, high = scales
    if not (
        low <= high and all(MIN_FREQUENCY_SCALE <= scale <= MAX_FREQUENCY_SCALE for scale in scales)
    ):
        expected = "expected positive numbers, low <= high, in the units of the records"
        raise ParameterError("frequency_scale", scales, expected)
    return float(low), float(high)


def require_one_of(name: str, value: object, known: Iterable[_Known]) -> _Known:
    """Return the choice that equals the value, or raise a ParameterError."""
    choices = tuple(known)
    for choice in choices:
        if isinstance(value, type(choice)) and value == choice:
            return choice
    raise ParameterError(name, value, f"expected one of {', '.join(map(repr, choices))}")
