"""Plugins: feature maps, methods, decoders, commands and files of other packages.

A package registers a part by a line in its own pyproject.toml::

    [project.entry-points."privsketch.methods"]
    bisecting = "my_package.bisecting:cluster"

A package is imported only when a design or a caller names its part. Names of this library come
first, so no package can replace a part of it. Two packages may not register the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Any

from privsketch._base.errors import ParameterError, PrivsketchError

DEBUG = "PRIVSKETCH_DEBUG"  # shows errors of others, which may quote records


@dataclass(frozen=True)
class Plugin:
    """A part of another package.

    `part` is the object of the entry point `name`: a function, a class or a command. `distribution`
    registers it.
    """

    name: str
    part: Any
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """Distribution and version in one text, for receipts and messages."""
        return f"{self.distribution} {self.version}"


@cache
def _registered(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name, read once per process."""
    points: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=f"privsketch.{group}"):
        same_name = points.get(point.name, ())
        if all(point.value != other.value for other in same_name):
            points[point.name] = (*same_name, point)
    return points


def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names that installed packages register in a group, sorted."""
    return tuple(sorted(_registered(group)))


def find_plugin(group: str, name: str) -> Plugin | None:
    """Import the part that is registered under a name; None if there is none.

    Raises
    ------
    ParameterError
        If several packages register the name, or the part cannot be imported.
    """
    points = _registered(group).get(name, ())
    if not points:
        return None
    what = f"{name!r} of the entry points privsketch.{group}"
    if len(points) > 1:
        owners = " and ".join(sorted(_owner(point)[0] for point in points))
        raise ParameterError(f"{what}: registered by {owners}; uninstall one of them")
    distribution, version = _owner(points[0])
    try:
        part = points[0].load()
    except (ImportError, AttributeError) as error:
        raise ParameterError(
            f"{what}: {distribution} {version} registers {points[0].value}, which cannot be "
            f"imported ({type(error).__name__}: {error})"
        ) from error
    return Plugin(name, part, distribution, version)


def failure_of(what: str, origin: str, part: Any, error: Exception) -> PrivsketchError:
    """Return our error for one of another package, whose message may quote a record.

    It has the type of that error and the last line of the package that was at work.
    """
    package = getattr(part, "__module__", "").partition(".")[0]
    where = ""
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if package and module.partition(".")[0] == package:
            where = f" at {module}, line {line}"
    return PrivsketchError(
        f"{what}: {origin} failed with {type(error).__name__}{where}; report it to the authors of "
        f"that package. {DEBUG}=1 shows the error to Python, with what it says of records"
    )


def _owner(point: EntryPoint) -> tuple[str, str]:
    dist = point.dist
    return ("an unknown distribution", "?") if dist is None else (dist.name, dist.version)


def find_origin(group: str, kind: type) -> str:
    """Return distribution and version of a class, by its package's entry points; else its name."""
    package = kind.__module__.partition(".")[0]
    for points in _registered(group).values():
        for point in points:
            if point.module.partition(".")[0] == package:
                return " ".join(_owner(point))
    return f"{kind.__module__}.{kind.__qualname__}"
