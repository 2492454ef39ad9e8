"""Frequencies: the public random matrix of a design, as 16-bit integers.

A frequency has a uniform direction and a radius r / scale. These are the laws of r and scale:

- "multi-scale" (default): every frequency draws its own scale from a wide range, so that
  the width of the clusters need not be known (features/radii.py, design/plan.py);
- "adapted-radius": r has density r exp(-r^2 / 2), at one given scale;
- "gaussian": normal frequencies at one given scale, the papers' plain choice;
- "structured": the radii of the multi-scale law (of the adapted one at one scale) with
  directions from sign flips and fast Walsh-Hadamard transforms (features/hadamard.py);
- "mixed" (default for tables with labels or cycles): the multi-scale law in the space of the
  numbers, and phases for the labels of a few columns (features/mixed.py).

Quadratic features have vectors instead, without a scale (features/quadratic.py). Frequencies of
one's own are stored in the design, integer by integer (features/own.py).

The drawn values are rounded to integers once. Holders compute phases with these integers, and
learners use them as exact frequencies. Only the seed is stored; a checksum of the integers proves
that the same ones were drawn again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.elementary import TWO_PI
from privsketch._base.errors import FileError, ParameterError, require_one_of
from privsketch.facts.domain import Domain
from privsketch.features.fixedpoint import (
    FREQUENCY_MAX,
    MAX_TURN_BITS,
    MIN_TURN_BITS,
    RECORD_BITS,
    finest_turn_bits,
)
from privsketch.features.hadamard import StructuredBlocks, common_half_width, draw_blocks
from privsketch.features.hadamard import block_size as structured_size
from privsketch.features.mixed import MIXED, Columns, LabelRows, checked_columns, number_mask
from privsketch.features.own import OWN_LAW, OwnMatrix, own_matrix
from privsketch.features.quadratic import (
    MAX_VECTOR_NORM_SQUARED,
    QUADRATIC_LAWS,
    VECTOR_BITS,
    squared_norms,
    unrounded_vectors,
    vector_resolution,
)
from privsketch.features.radii import RadialLaw, Tail
from privsketch.features.stream import PublicStream, Purpose

FOURIER_LAWS = ("multi-scale", "adapted-radius", "gaussian", "structured", MIXED)
NO_LAW = "none"  # for maps that have no frequencies
LAWS = (*FOURIER_LAWS, *QUADRATIC_LAWS, NO_LAW, OWN_LAW)
MAX_FEATURES = 2**20  # with two numbers each, a sketch file has 16 MB
MAX_MATRIX_ENTRIES = 2**27  # of the matrix, 256 MB: a file must not exhaust memory
LABEL_PART = 1  # of the stream of frequencies; part 0 has the numbers
_ROW_BLOCK_VALUES = 2**20  # 8 MB of float64


@dataclass(frozen=True)
class Frequencies:
    """Recipe for the frequency matrix; `matrix()` draws it and checks the checksum.

    `turn_bits` is the resolution: an integer frequency counts 2^-turn_bits turns per
    quantised unit of a record, an integer vector of quadratic features 2^-turn_bits. `columns`
    are the kinds and sizes of a table's columns, for the law "mixed" alone.
    """

    law: str
    n_features: int
    scales: tuple[float, float]
    seed: int
    turn_bits: int
    dithered: bool
    checksum: str
    tail: Tail | None = None
    own: OwnMatrix | None = None
    columns: Columns | None = None

    @property
    def radial_law(self) -> RadialLaw:
        """Law of the lengths, except for normal frequencies, which have their own."""
        if self.own is not None:
            return self.own.radial_law
        return RadialLaw(self.scales, self.tail)

    def matrix(self, domain: Domain) -> npt.NDArray[np.signedinteger]:
        """Return the integer frequencies (n_features, dim), read-only; int32 if structured."""
        return _drawn(self, domain)[0]

    def blocks(self, domain: Domain) -> StructuredBlocks:
        """Return the blocks that structured frequencies consist of."""
        return _blocks(self, domain)

    def block_size(self, dim: int) -> int:
        """Return how many neighbouring features are computed together and masked as a block."""
        return structured_size(dim) if self.law == "structured" else dim

    def offsets(self, domain: Domain) -> npt.NDArray[np.uint32]:
        """Return the dither, in units of 2^-turn_bits turns, (n_features,); zero without dither."""
        return _drawn(self, domain)[1]

    def vectors(self, domain: Domain) -> npt.NDArray[np.float64]:
        """Return the vectors of quadratic features, (n_features, dim), for learners."""
        return np.asarray(self.matrix(domain) * 2.0**-self.turn_bits, dtype=np.float64)

    def radians(self, domain: Domain) -> npt.NDArray[np.float64]:
        """Return the frequencies in radians per unit of a record, for learners."""
        per_unit = TWO_PI * 2.0 ** (RECORD_BITS - self.turn_bits) / domain.half_widths
        return np.asarray(self.matrix(domain) * per_unit, dtype=np.float64)


def draw_frequencies(
    domain: Domain,
    *,
    law: str,
    n_features: int,
    scales: tuple[float, float] | RadialLaw,
    seed: int,
    dithered: bool,
    drawn: bool = True,
    columns: Columns | None = None,
) -> Frequencies:
    """Make a recipe, with the resolution for its highest frequency and the checksum.

    Two scales are the ends of a log-uniform law. With drawn=False, the recipe has neither, and
    serves plans only. The law "mixed" needs the kinds and sizes of columns.
    """
    require_one_of("frequencies", law, LAWS)
    if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer):
        raise ParameterError("n_features", n_features, "expected an integer")
    if not 1 <= n_features <= MAX_FEATURES:
        raise ParameterError(f"`n_features={n_features}`: expected 1 to {MAX_FEATURES}")
    radial = (scales if isinstance(scales, RadialLaw) else RadialLaw(scales)).checked()
    recipe = Frequencies(law, int(n_features), radial.scales, seed, 0, dithered, "", radial.tail)
    if law == MIXED:
        recipe = replace(recipe, columns=checked_columns(columns, len(domain.half_widths)))
    _require_size(recipe, len(domain.half_widths))
    if not drawn:
        return recipe
    recipe = replace(recipe, turn_bits=_resolution(recipe, domain))
    return replace(recipe, checksum=_checksum(*_integers(recipe, domain)))


def store_frequencies(
    domain: Domain, given: Any, *, n_features: int, seed: int, dithered: bool
) -> Frequencies:
    """Make a recipe that stores frequencies of one's own: an array, or what a law gives."""
    own = own_matrix(given, n_features, domain, seed)
    scales = own.radial_law.scales
    recipe = Frequencies(OWN_LAW, n_features, scales, seed, own.turn_bits, dithered, "", None, own)
    return replace(recipe, checksum=_checksum(*_integers(recipe, domain)))


def _resolution(recipe: Frequencies, domain: Domain) -> int:
    """Return the finest resolution at which the largest frequency fits."""
    if recipe.law == NO_LAW:
        return 0
    if recipe.law == "structured":
        return MAX_TURN_BITS
    if recipe.law in QUADRATIC_LAWS:
        return vector_resolution(recipe.law, _unrounded(recipe, domain))
    highest = max(float(np.abs(block).max()) for block in _unrounded(recipe, domain))
    turn_bits = finest_turn_bits(highest)
    if turn_bits is None:
        raise ParameterError(
            "frequency_scale",
            recipe.scales,
            f"too fine for this domain (a frequency of {highest:.3g} turns per half-width does "
            "not fit the fixed-point format)",
            "use a larger scale",
        )
    return turn_bits


def public_seed(random_state: int | None) -> int:
    """Return the seed to store: the given one, or a fresh one. Both are public."""
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise ParameterError("random_state", random_state, "expected an integer or None")
    if not 0 <= random_state < 2**64:
        raise ParameterError(f"`random_state={random_state}`: expected 0 to 2**64 - 1")
    return int(random_state)


def _unrounded(recipe: Frequencies, domain: Domain) -> Iterator[npt.NDArray[np.float64]]:
    """Yield unrounded frequencies in blocks of rows: turns per half-width, or vectors."""
    if recipe.law in QUADRATIC_LAWS:
        return unrounded_vectors(
            PublicStream(recipe.seed, Purpose.FREQUENCIES),
            recipe.law,
            recipe.n_features,
            len(domain.half_widths),
        )
    return _turns(recipe, domain)


def _turns(
    recipe: Frequencies, domain: Domain, block_values: int = _ROW_BLOCK_VALUES
) -> Iterator[npt.NDArray[np.float64]]:
    """Yield unrounded frequencies in turns per half-width, in blocks of rows.

    Order of the stream: one uniform per feature for the scale, one for the radius,
    then per feature an even number of normals for the direction, so blocks of any
    size give the same numbers.
    """
    half_widths, label_rows = domain.half_widths, None
    rows = max(1, block_values // (len(half_widths) + len(half_widths) % 2))
    if recipe.columns is not None:
        half_widths = half_widths[number_mask(recipe.columns)]
        label_rows = LabelRows(
            recipe.columns, PublicStream(recipe.seed, Purpose.FREQUENCIES, part=LABEL_PART)
        )
    dim, count = len(half_widths), recipe.n_features
    stream = PublicStream(recipe.seed, Purpose.FREQUENCIES)
    radius, scale = recipe.radial_law.drawn(stream.uniform(count), stream.uniform(count))
    even = dim + dim % 2
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        direction = stream.normal((stop - start) * even).reshape(stop - start, even)[:, :dim]
        if recipe.law == "gaussian" or dim == 0:
            radians = direction / scale[start:stop, np.newaxis]
        else:
            squared_norm = np.zeros(stop - start)
            for column in range(dim):  # fixed order: a sum of floats depends on it
                squared_norm += direction[:, column] * direction[:, column]
            length = radius[start:stop] / (scale[start:stop] * np.sqrt(squared_norm))
            radians = direction * length[:, np.newaxis]
        turns = radians * (half_widths / TWO_PI)
        yield turns if label_rows is None else label_rows.beside(turns)


def _require_size(recipe: Frequencies, dim: int) -> None:
    if recipe.law != NO_LAW and recipe.n_features * dim > MAX_MATRIX_ENTRIES:
        raise ParameterError(
            f"`n_features={recipe.n_features}`: with {dim} columns at most "
            f"{MAX_MATRIX_ENTRIES // dim} features are supported"
        )


def _integers(
    recipe: Frequencies, domain: Domain
) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.uint32]]:
    if recipe.law == NO_LAW:
        return np.zeros((0, len(domain.half_widths)), np.int16), np.zeros(0, np.uint32)
    if recipe.own is not None:
        return recipe.own.matrix, _offsets(recipe)
    if recipe.law == "structured":
        matrix = recipe.blocks(domain).dense()
        matrix.flags.writeable = False
        return matrix, _offsets(recipe)
    is_quadratic = recipe.law in QUADRATIC_LAWS
    unit = 2.0 ** (recipe.turn_bits - (0 if is_quadratic else RECORD_BITS))
    rounded_matrix = np.empty((recipe.n_features, len(domain.half_widths)), dtype=np.int16)
    start = 0
    for block in _unrounded(recipe, domain):
        rounded = np.rint(block * unit)
        if np.abs(rounded).max() > FREQUENCY_MAX:
            raise FileError("frequencies: the resolution stored does not fit the highest one")
        rounded_matrix[start : start + len(block)] = rounded
        start += len(block)
    if is_quadratic and max(squared_norms(rounded_matrix)) > MAX_VECTOR_NORM_SQUARED:
        raise FileError("frequencies: a vector is too long for the resolution stored")
    rounded_matrix.flags.writeable = False
    return rounded_matrix, _offsets(recipe)


def _offsets(recipe: Frequencies) -> npt.NDArray[np.uint32]:
    offsets = np.zeros(recipe.n_features, dtype=np.uint32)
    if recipe.dithered:
        uniform = PublicStream(recipe.seed, Purpose.OFFSETS).uniform(recipe.n_features)
        offsets[:] = np.floor(uniform * 2.0**recipe.turn_bits)
    offsets.flags.writeable = False
    return offsets


def _checksum(matrix: npt.NDArray[np.signedinteger], offsets: npt.NDArray[np.uint32]) -> str:
    kind = "<i4" if matrix.dtype == np.int32 else "<i2"
    digest = hashlib.sha256(np.ascontiguousarray(matrix, dtype=kind).data)
    digest.update(np.ascontiguousarray(offsets, dtype="<u4").data)
    return digest.hexdigest()


@lru_cache(maxsize=4)
def _blocks(recipe: Frequencies, domain: Domain) -> StructuredBlocks:
    dim, half_width = len(domain.half_widths), common_half_width(domain)
    return draw_blocks(recipe.seed, recipe.n_features, dim, recipe.radial_law, half_width)


@lru_cache(maxsize=4)
def _drawn(
    recipe: Frequencies, domain: Domain
) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.uint32]]:
    _require_size(recipe, len(domain.half_widths))
    _require_drawn(recipe)
    drawn = _integers(recipe, domain)
    if _checksum(*drawn) != recipe.checksum:
        raise FileError(
            "frequencies: the numbers drawn from the seed do not match the checksum of the "
            "design; the design was altered, or this machine's arithmetic is not IEEE 754"
        )
    return drawn


def _require_drawn(recipe: Frequencies) -> None:
    if recipe.checksum == "":
        raise ParameterError("frequencies: not drawn; this design was made to be compared only")


def frequencies_to_json(recipe: Frequencies) -> dict[str, Any]:
    """Return the recipe as plain JSON values, with `tail` and `columns` only if there are any."""
    _require_drawn(recipe)
    values = {name: getattr(recipe, name) for name in _RECIPE_FIELDS}
    values["scales"] = list(recipe.scales)
    if recipe.tail is not None:
        values["tail"] = [recipe.tail.share, recipe.tail.below]
    if recipe.own is not None:
        values["values"] = recipe.own.to_json()
    if recipe.columns is not None:
        values["columns"] = [list(column) for column in recipe.columns]
    return values


_RECIPE_FIELDS = {
    "law": str,
    "n_features": int,
    "scales": list,
    "seed": int,
    "turn_bits": int,
    "dithered": bool,
    "checksum": str,
}


def frequencies_from_json(value: Any, domain: Domain | None = None) -> Frequencies:
    """Rebuild the recipe from `frequencies_to_json`; raise for anything else.

    Frequencies of one's own belong to a domain.
    """
    kinds = {**_RECIPE_FIELDS, "tail": list, "columns": list, "values": str}
    if not isinstance(value, dict) or not set(_RECIPE_FIELDS) <= set(value) <= set(kinds):
        raise ParameterError("frequencies: unknown or missing fields")
    for name in value:
        if type(value[name]) is not kinds[name]:
            raise ParameterError(f"frequencies: {name} must be of type {kinds[name].__name__}")
    if value["checksum"] == "":
        raise ParameterError("frequencies: not drawn, there is no checksum")
    if value["law"] not in LAWS or not 1 <= value["n_features"] <= MAX_FEATURES:
        raise ParameterError("frequencies: unknown law or number of features out of range")
    radial = _radial_law(value)
    if (value["law"] == OWN_LAW) != ("values" in value):
        raise ParameterError(f"frequencies: only the law {OWN_LAW!r} has values, and it needs them")
    is_fourier = value["law"] in (*FOURIER_LAWS, OWN_LAW)
    low_bits, high_bits = (MIN_TURN_BITS, MAX_TURN_BITS) if is_fourier else (0, VECTOR_BITS)
    if not low_bits <= value["turn_bits"] <= high_bits:
        raise ParameterError("frequencies: turn_bits out of range")
    recipe = Frequencies(**{name: value[name] for name in _RECIPE_FIELDS})
    seed, own = public_seed(value["seed"]), None
    if "values" in value:
        if domain is None or domain.dim is None:
            raise ParameterError("frequencies: values need the domain of their design")
        own = OwnMatrix.from_json(value["values"], recipe.n_features, domain, recipe.turn_bits)
    return replace(
        recipe,
        scales=radial.scales,
        tail=radial.tail,
        seed=seed,
        own=own,
        columns=_columns(value),
    )


def _columns(value: dict[str, Any]) -> Columns | None:
    """Read the columns of a recipe in JSON."""
    if (value["law"] == MIXED) != ("columns" in value):
        raise ParameterError("frequencies: the law 'mixed' has columns, and no other one has")
    if value["law"] != MIXED:
        return None
    sizes = [column[-1] for column in value["columns"] if type(column) is list and column]
    if not all(type(size) is int for size in sizes):
        raise ParameterError("frequencies: sizes of columns must be whole numbers")
    return checked_columns(value["columns"], sum(sizes))


def _radial_law(value: dict[str, Any]) -> RadialLaw:
    """Read the radial law of a recipe in JSON."""
    low_high = [float(scale) for scale in value["scales"]]
    if len(low_high) != 2:
        raise ParameterError("frequencies: scales must be two positive numbers")
    law = RadialLaw((low_high[0], low_high[1]))
    if "tail" in value:
        if value["law"] not in ("multi-scale", "structured", MIXED):
            raise ParameterError(f"frequencies: {value['law']!r} has no tail")
        numbers = [float(number) for number in value["tail"]]
        if len(numbers) != 2:
            raise ParameterError("frequencies: tail must be a share and a scale")
        law = replace(law, tail=Tail(*numbers))
    return law.checked()
