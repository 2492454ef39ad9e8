"""Marks of guesses in the file of a schema.

`privsketch schema draft --look` proposes kinds, bounds and labels from records. Each proposal is
named in a field "guessed" of its column, or of the schema: `"guessed": ["low", "high"]`. A schema
with a mark has no `Schema` object: `Schema.from_json`, through which every file and every design
goes, calls `require_no_guess`. So nothing can be released by a guess that no person has accepted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from privsketch._base.errors import ParameterError

GUESSED = "guessed"


def require_no_guess(facts: dict[str, Any], where: str, file: str = "FILE") -> None:
    """Refuse a column or a schema, as JSON values, that has a mark.

    Errors call it `where`, and the schema's file `file`.
    """
    marked = marked_fields(facts)
    if marked:
        raise ParameterError(
            f"{where}: {', '.join(marked)} {'is a guess' if len(marked) == 1 else 'are guesses'} "
            f"from a look at records; `privsketch schema accept {file}` shows every guess and "
            "removes its mark"
        )


def require_no_guesses(content: Any, file: str) -> None:
    """Refuse the content of a schema's file that has a mark anywhere."""
    if isinstance(content, dict):
        require_no_guess(content, "the table", file)
        for column in _columns(content):
            require_no_guess(column, f"column {str(column.get('name'))!r}", file)


def marked_fields(facts: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields of a column or a schema that are marked; a mark of no form marks all."""
    marked = facts.get(GUESSED, [])
    if not isinstance(marked, list) or not all(isinstance(name, str) for name in marked):
        return tuple(name for name in facts if name != GUESSED) or (GUESSED,)
    return tuple(marked)


def guesses_in(content: dict[str, Any]) -> dict[str | None, dict[str, Any]]:
    """Return the guesses of a schema, as JSON values, by columns: fields with their values.

    What is guessed about the whole table stands below None.
    """
    found: dict[str | None, dict[str, Any]] = {}
    for name, facts in ((None, content), *((str(c.get("name")), c) for c in _columns(content))):
        marked = {field: facts.get(field) for field in marked_fields(facts)}
        if marked:
            found[name] = marked
    return found


def without_guesses(
    content: dict[str, Any], names: Collection[str | None] | None = None
) -> dict[str, Any]:
    """Return a schema, as JSON values, without the marks of some columns, or without any.

    None is the name of the whole table.
    """

    def without(name: str | None, facts: Any) -> Any:
        if not isinstance(facts, dict) or (names is not None and name not in names):
            return facts
        return {field: value for field, value in facts.items() if field != GUESSED}

    columns = content.get("columns")
    if isinstance(columns, list):
        columns = [without(str(c.get("name")) if isinstance(c, dict) else "", c) for c in columns]
        content = {**content, "columns": columns}
    return dict(without(None, content))


def _columns(content: dict[str, Any]) -> list[dict[str, Any]]:
    columns = content.get("columns")
    return [c for c in columns if isinstance(c, dict)] if isinstance(columns, list) else []
