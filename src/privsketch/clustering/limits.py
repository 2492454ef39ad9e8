"""Largest numbers of clusters for methods whose searches take time that grows faster than they do.

Refused before a record is read: a run of many minutes has spent its budget when somebody gives up.
Each limit is where a search takes about half a minute in two columns, on two cores in 2026. Methods
that are not in the table take seconds for a thousand clusters, but for a pipeline of millions of
records, which begins with a sketch.
"""

from __future__ import annotations

from privsketch._base.errors import ParameterError

_LARGEST = {
    "squares": {"sketch": 500, "cells": 300, "partition-tree": 400},
    "distances": {"rounds": 300, "partition-tree": 400},
}
_INSTEAD = {
    "squares": "use `method='pipeline'` or `method='lloyd'`",
    "distances": "ask for fewer, or for k-means with `method='pipeline'`",
}


def require_searchable(
    method: str, n_clusters: int, loss: str = "squares", name: str = "n_clusters"
) -> None:
    """Raise a ParameterError for more clusters than a method finds within a minute."""
    largest = _LARGEST[loss].get(method)
    if largest is None or n_clusters <= largest:
        return
    raise ParameterError(
        f"`{name}={n_clusters}` with `method={method!r}`: expected at most {largest}, because a "
        f"search for more takes minutes; {_INSTEAD[loss]}"
    )
