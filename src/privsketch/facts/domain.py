"""Public domains of records: a box or a ball.

People state a domain before any record is read; it is never estimated from records. It fixes the
unit of quantisation and the range of scales of the frequencies. A record outside of its domain is
moved to the edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError

# Bounds of half-widths: their inverses, and squares of records in units of them, must be finite.
MIN_DOMAIN_WIDTH, MAX_DOMAIN_WIDTH = 1e-140, 1e140
Numbers = float | Sequence[float] | npt.NDArray[np.floating[Any]]


def _as_public_numbers(name: str, value: Numbers) -> float | tuple[float, ...]:
    """Convert a scalar to a float, and anything else to a tuple of floats; all finite."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(name, value, "expected a number or a list of numbers") from error
    if array.ndim > 1 or not np.isfinite(array).all() or array.size == 0:
        raise ParameterError(name, value, "expected a finite number or a flat list of them")
    return float(array) if array.ndim == 0 else tuple(float(v) for v in array)


def _checked_dim(dim: int | None, *values: tuple[str, float | tuple[float, ...]]) -> int | None:
    """Return the dimension on which `dim` and the vector-valued parameters agree."""
    for name, value in values:
        if isinstance(value, tuple):
            if dim is not None and len(value) != dim:
                raise ParameterError(f"{name} has {len(value)} values, the domain has dim={dim}")
            dim = len(value)
    if dim is None:
        return None
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or not 1 <= dim <= 2**15:
        raise ParameterError("dim", dim, "expected an integer between 1 and 32768")
    return int(dim)


def _checked_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, which must be unique."""
    names = tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in names):
        raise ParameterError("columns: expected a list of column names")
    if len(set(names)) < len(names):
        raise ParameterError("columns: a name occurs twice")
    return names


class _Region:
    """What boxes and balls share."""

    dim: int | None

    def with_dim(self, dim: int) -> Self:
        """Return this domain with its dimension filled in; raise if it has another one."""
        if self.dim not in (None, dim):
            raise ParameterError(f"domain has `dim={self.dim}`, the records have {dim} columns")
        return replace(self, dim=dim)  # type: ignore[type-var]


@dataclass(frozen=True)
class Box(_Region):
    """Domain of records with every coordinate between `low` and `high`.

    Parameters
    ----------
    low, high : float or list of float
        Public bounds, one for all columns or one per column.
    dim : int, optional
        Number of columns. It may be left out when `low` or `high` is a list, and in estimators,
        which take it from the table.
    columns : list of str, optional
        Names of the columns, in the order of the bounds.
    scale : bool
        Whether every column is scaled by its bounds, so that all have the same weight. Results
        are in the units of the table. Needs `columns`. A `Schema` has more options.

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.Box(low=-8, high=8, dim=10)
    Box(low=-8.0, high=8.0, dim=10)
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    dim: int | None = None
    columns: tuple[str, ...] | None = field(default=None, repr=False)
    scale: bool = field(default=False, repr=False)

    def __init__(
        self,
        low: Numbers,
        high: Numbers,
        dim: int | None = None,
        columns: Sequence[str] | None = None,
        scale: bool = False,
    ) -> None:
        low_, high_ = _as_public_numbers("low", low), _as_public_numbers("high", high)
        names = None if columns is None else _checked_names(columns)
        object.__setattr__(self, "low", low_)
        object.__setattr__(self, "high", high_)
        dim = _checked_dim(dim, ("low", low_), ("high", high_))
        object.__setattr__(self, "dim", len(names) if dim is None and names is not None else dim)
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "scale", scale)
        if names is not None and len(names) != self.dim:
            raise ParameterError(f"columns: {len(names)} names for a box of dim={self.dim}")
        if not isinstance(scale, bool) or (scale and names is None):
            raise ParameterError(
                "scale", scale, "expected True or False, and with True names: `columns=[...]`"
            )
        with np.errstate(over="ignore"):
            width = np.subtract(high_, low_)
        if not ((width > 0) & np.isfinite(width)).all():
            raise ParameterError(
                f"`low={low!r}`, `high={high!r}`: every low must be below its high"
            )
        if not ((width > MIN_DOMAIN_WIDTH) & (width < MAX_DOMAIN_WIDTH)).all():
            raise ParameterError(
                f"`low={low!r}`, `high={high!r}`: widths beyond {MIN_DOMAIN_WIDTH:g} to "
                f"{MAX_DOMAIN_WIDTH:g} cannot be computed with; use other units"
            )

    @property
    def plain(self) -> Box:
        """Same bounds without names."""
        return replace(self, columns=None, scale=False)

    @property
    def center_vector(self) -> npt.NDArray[np.float64]:
        """The middle of the box, (dim,)."""
        return np.broadcast_to(np.add(self.low, self.high) / 2, (_dim(self),)).astype(np.float64)

    @property
    def half_widths(self) -> npt.NDArray[np.float64]:
        """Distance from the center to the edge along each axis, (dim,)."""
        half = np.subtract(self.high, self.low) / 2
        return np.broadcast_to(half, (_dim(self),)).astype(np.float64)

    @property
    def spread(self) -> float:
        """Half-width of a cube in which uniform records have the same variance."""
        return float(np.sqrt(np.mean(np.square(self.half_widths))))

    def project(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Move points (n, dim) to the nearest point of the box. For public points only."""
        half, center = self.half_widths, self.center_vector
        return np.clip(np.asarray(points, dtype=np.float64), center - half, center + half)

    def centered(self) -> Box:
        """Return this box, moved to be centered at zero."""
        half = tuple(self.half_widths)
        return Box(low=[-width for width in half], high=half)

    def to_unit(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Scale every column of points (n, dim) from its public bounds to -1..1.

        k-means measures distances in the units of the columns. Scaled records, sketched in
        `Box(-1, 1)`, give all columns the same weight.
        """
        offset = np.asarray(points, dtype=np.float64) - self.center_vector
        return np.asarray(offset / self.half_widths)

    def from_unit(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Invert `to_unit`, for centers."""
        return np.asarray(points, dtype=np.float64) * self.half_widths + self.center_vector

    def describe(self) -> str:
        """Describe the box in one line."""
        if isinstance(self.low, float) and isinstance(self.high, float):
            return f"box [{self.low:g}, {self.high:g}] in {self.dim} dimensions"
        center, half = self.center_vector, self.half_widths
        sides = [f"[{c - h:g}, {c + h:g}]" for c, h in zip(center[:6], half[:6], strict=True)]
        rest_text = f" x ... ({self.dim} columns)" if len(half) > 6 else ""
        return "box " + " x ".join(sides) + rest_text


@dataclass(frozen=True)
class Ball(_Region):
    """Domain of records at most `radius` away from `center` in Euclidean distance.

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.Ball(dim=784, radius=13.0, center=0.286)
    Ball(dim=784, radius=13.0, center=0.286)
    """

    dim: int | None
    radius: float
    center: float | tuple[float, ...]

    def __init__(
        self, dim: int | None = None, radius: float | None = None, center: Numbers = 0.0
    ) -> None:
        radius_ = None if radius is None else _as_public_numbers("radius", radius)
        if not isinstance(radius_, float) or radius_ <= 0:
            raise ParameterError(
                "radius", radius, "a ball needs a radius above 0, as in Ball(radius=3)"
            )
        if not MIN_DOMAIN_WIDTH < radius_ < MAX_DOMAIN_WIDTH:
            limits = f"{MIN_DOMAIN_WIDTH:g} to {MAX_DOMAIN_WIDTH:g}"
            beyond = f"beyond {limits} it cannot be computed with"
            raise ParameterError("radius", radius, beyond, "use other units")
        center_ = _as_public_numbers("center", center)
        object.__setattr__(self, "radius", radius_)
        object.__setattr__(self, "center", center_)
        object.__setattr__(self, "dim", _checked_dim(dim, ("center", center_)))

    @property
    def center_vector(self) -> npt.NDArray[np.float64]:
        """The center, (dim,)."""
        return np.broadcast_to(np.asarray(self.center, dtype=np.float64), (_dim(self),)).copy()

    @property
    def half_widths(self) -> npt.NDArray[np.float64]:
        """Distance from the center to the edge along each axis, (dim,)."""
        return np.full(_dim(self), self.radius)

    @property
    def spread(self) -> float:
        """Half-width of a cube in which uniform records have the same variance."""
        # Variance per coordinate: radius^2 / (dim + 2) in a ball, half_width^2 / 3 in a cube.
        return self.radius * math.sqrt(3 / (_dim(self) + 2))

    def project(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Move points (n, dim) to the nearest point of the ball. For public points only."""
        offset = np.asarray(points, dtype=np.float64) - self.center_vector
        norm = np.linalg.norm(offset, axis=-1, keepdims=True)
        return np.asarray(
            self.center_vector + offset * (self.radius / np.maximum(norm, self.radius))
        )

    def centered(self) -> Ball:
        """Return this ball, moved to be centered at zero."""
        return Ball(dim=self.dim, radius=self.radius)

    def describe(self) -> str:
        """Describe the ball in one line."""
        center = f"{self.center:g}" if isinstance(self.center, float) else "a given point"
        return f"ball of radius {self.radius:g} around {center} in {self.dim} dimensions"


Domain = Box | Ball


def enclosing_ball(domain: Domain) -> Ball:
    """Return the smallest ball that holds the domain."""
    if isinstance(domain, Ball):
        return domain
    radius = float(np.linalg.norm(domain.half_widths))
    return Ball(dim=domain.dim, radius=radius, center=domain.center_vector)


def enclosing_box(domain: Domain) -> Box:
    """Return the smallest box that holds the domain."""
    if isinstance(domain, Box):
        return domain
    center = domain.center_vector
    return Box(low=center - domain.radius, high=center + domain.radius)


def _dim(domain: Box | Ball) -> int:
    if domain.dim is None:
        raise ParameterError("dim: the domain has no dimension; give `dim=`, the number of columns")
    return domain.dim


def domain_to_json(domain: Domain) -> dict[str, Any]:
    """Return the domain as plain JSON values."""
    if isinstance(domain, Box):
        return {"kind": "box", "low": domain.low, "high": domain.high, "dim": domain.dim}
    return {"kind": "ball", "dim": domain.dim, "radius": domain.radius, "center": domain.center}


def domain_from_json(value: Any) -> Domain:
    """Rebuild the domain from `domain_to_json`; raise for anything else."""
    if isinstance(value, dict):
        fields = {name: item for name, item in value.items() if name != "kind"}
        kinds: dict[str, type[Box] | type[Ball]] = {"box": Box, "ball": Ball}
        kind = kinds.get(str(value.get("kind")))
        expected = {"low", "high", "dim"} if kind is Box else {"dim", "radius", "center"}
        if kind is not None and set(fields) == expected:
            return kind(**fields)
    raise ParameterError("domain: expected a box (low, high, dim) or a ball (dim, radius, center)")
