"""Which columns of a table make a record, and whether they are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privsketch.errors import RecordError

# Values per block that readers ask for; a few such blocks are in memory at a time.
BLOCK_VALUES = 2**19


def rows_per_block(dim: int) -> int:
    """How many records of `dim` columns a reader should hand on at a time."""
    return max(1, BLOCK_VALUES // dim)


class FoundName(str):
    """A name that stands in the first line of a text file, and that nobody stated.

    It finds a column, but is neither shown nor published: the line may be a record.
    """

    __slots__ = ()


@dataclass(frozen=True)
class Selection:
    """Which columns make a record: those asked for, else by name where a table has names.

    `carried` are columns that come along beside the record (tables/carried.py). `header` is
    what the caller says of the first line of text files: names, a record, or nothing, which
    means names.
    """

    dim: int
    columns: tuple[str | int, ...] | None
    names: tuple[str, ...] | None
    carried: tuple[str, ...] = ()
    header: bool | None = None

    @property
    def stated(self) -> frozenset[str]:
        """Names that people wrote down, and that may be shown and published."""
        names = (*(self.columns or self.names or ()), *self.carried)
        return frozenset(n for n in names if isinstance(n, str) and not isinstance(n, FoundName))

    @property
    def is_found(self) -> bool:
        """Whether names of the columns stand in a header, and nowhere else."""
        return any(isinstance(name, FoundName) for name in self.columns or self.names or ())


def selected(schema: Any, chosen: Selection, what: str) -> list[str]:
    """Names of the columns to read, all of them numeric."""
    names = selected_names(schema.names, chosen, what)
    require_numeric(schema, names, what)
    return names


def selected_names(
    available: Sequence[str], chosen: Selection, what: str, *, may_show: bool = True
) -> list[str]:
    """Those asked for, else the design's, else all if there are just as many as needed.

    `may_show` is False if the names come from a line that may be a record: errors then say
    nothing of them.
    """
    columns = chosen.columns if chosen.columns is not None else chosen.names
    if columns is None:
        if len(available) != chosen.dim:
            raise RecordError(wrong_width(what, len(available), chosen.dim))
        names = list(available)
    else:
        numbers = [column for column in columns if isinstance(column, int)]
        column_places(numbers, len(available))
        names = [available[c] if isinstance(c, int) else c for c in columns]
        if len(set(names)) != len(names):
            raise RecordError("columns: a column is named twice")
    for name in (*names, *chosen.carried):
        if list(available).count(name) != 1:
            raise RecordError(_misfit(available, name, chosen, what, may_show))
    return names


def _misfit(
    available: Sequence[str], name: str, chosen: Selection, what: str, may_show: bool
) -> str:
    """What to say of a name that is not there, or there twice."""
    state = "unknown" if name not in available else "not unique"
    if may_show:
        shown = ", ".join(repr(found) for found in available[:12])
        more = ", ..." if len(available) > 12 else ""
        advice = "; name them with columns=[...], in their order" if chosen.header is False else ""
        return f"{what}: column {name!r} is {state}; it has {shown}{more}{advice}"
    advice = "names count letter by letter; if its first line is a record, say header=False"
    if len(available) == 1:
        advice = "are its cells separated by commas, or by tabs in .tsv?"
    if name in chosen.stated:
        return f"{what}: column {name!r} is {state} among its {len(available)} columns; {advice}"
    return f"{what}: a column name is {state}; {advice}"


def column_places(columns: list[int], width: int) -> list[int]:
    """Column numbers from 0; negative ones count from the end."""
    for column in columns:
        if not -width <= column < width:
            raise RecordError(f"columns: {column} is not a column of {width}")
    places = [column % width for column in columns]
    if len(set(places)) != len(places):
        raise RecordError("columns: a column is named twice")
    return places


def wrong_width(what: str, found: int, dim: int) -> str:
    """What to say of a table with too many or too few columns."""
    return (
        f"{what} has {found} columns, a record has dim={dim}; name the columns to use with "
        "columns=[...]"
    )


def require_numeric(schema: Any, names: Sequence[str], what: str) -> None:
    """Refuse an Arrow table in which one of the columns is not numeric."""
    for name in names:
        require_numeric_type(schema.field(name).type, name, what)


def require_numeric_type(kind: Any, name: str, what: str) -> None:
    """Refuse an Arrow type that is not numeric."""
    import pyarrow.types as types

    if not (
        types.is_null(kind)  # a column without any value
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    ):
        raise RecordError(f"{what}: column {name!r} is not numeric but {kind}")
