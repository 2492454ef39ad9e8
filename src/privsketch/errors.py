"""Every error privsketch raises on purpose.

All of them are `PrivsketchError`, and a `ValueError` too, because scikit-learn and
its users expect one for a bad parameter or a bad table. A message names the
parameter, the value seen (never the content of a record), what is allowed and what
to do instead.
"""

from numbers import Integral, Real


class PrivsketchError(ValueError):
    """Base of all errors raised by privsketch."""


class ParameterError(PrivsketchError):
    """A parameter is missing, out of range, or does not go with another one."""


class RecordError(PrivsketchError):
    """A table cannot be read as records of the design. For its holder's eyes only."""


class FileError(PrivsketchError):
    """A file is truncated, corrupted, foreign, or from a newer version."""


class MergeError(PrivsketchError):
    """Sketches that must not be added up."""


MANY = 2.0**40  # records: what sums are planned for


def require_records(value: object) -> float:
    """A public number of records as a float; a ParameterError unless it is one that can be."""
    if not isinstance(value, bool) and isinstance(value, Real) and 1 <= float(value) <= MANY:
        return float(value)
    raise ParameterError(
        f"n_records={value!r}: expected a public number of records, 1 to {MANY:.0e}"
    )


def require_count(name: str, value: object, what: str = "an integer of at least 1") -> int:
    """The value as an int; a ParameterError unless it is a whole number of at least 1."""
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1:
        return int(value)
    raise ParameterError(f"{name}={value!r}: expected {what}")
