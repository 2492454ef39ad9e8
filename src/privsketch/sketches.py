"""The sketch: what a holder releases, and how sketches add up.

How a sketch is made of records is another room, `sketching`; nothing here reads one.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.budget import (
    INSECURE,
    Receipt,
    compose_parallel,
    compose_sequential,
    receipt_from_json,
    receipt_to_json,
)
from privsketch.design import Design
from privsketch.errors import FileError, MergeError, ParameterError
from privsketch.formats import (
    pack_sketch,
    read_file,
    reading,
    require_fields,
    unpack_sketch,
    write_file,
)
from privsketch.noise.sums import saturating_add

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sketch:
    """A private release: noisy integer sums with their design and their receipt.

    Attributes
    ----------
    values : (2 n_features [+ 1],) int64
        Everything released: sums of cosines, sums of sines, and the count if there is one.
    design : Design
    receipt : Receipt
    ids : tuple of str
        Random names of the releases added up in here, one for an unmerged sketch.
    sources : tuple of str
        Whose records they are, aligned with `ids`.
    exact_count : int or None
        Number of records where the design makes it public, else None.
    """

    values: Integers
    design: Design
    receipt: Receipt
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    exact_count: int | None = None

    @property
    def sums(self) -> Integers:
        """The noisy sums as released, (2 n_features,): cosines, then sines."""
        return self.values[: 2 * self.design.n_features]

    @property
    def n_records(self) -> float | None:
        """The number of records: exact if public, a noisy estimate if released, else None."""
        if self.design.count == "released":
            return float(self.values[-1]) / self.design.sum_noise.count_weight
        return None if self.exact_count is None else float(self.exact_count)

    @property
    def noise_variance(self) -> float:
        """Variance of the noise per real component of `moments`; releases add theirs."""
        return len(self.ids) * self.design.noise_std**2

    def moments(self) -> npt.NDArray[np.complex128]:
        """Noisy sums over records of exp(i w.(x - center)), (n_features,).

        For the one-bit map its first harmonic, with the dither taken back.
        """
        cosines, sines = self.sums.astype(np.float64).reshape(2, -1) / self.design.unit
        design = self.design
        dither = design.frequencies.offsets(design.domain) * (
            2 * np.pi * 2.0**-design.frequencies.turn_bits
        )
        return np.asarray((cosines + 1j * sines) * np.exp(-1j * dither))

    def mean(self, n_records: float | None = None) -> npt.NDArray[np.complex128]:
        """`moments` per record, (n_features,): the noisy characteristic function.

        Divides by the released or public number of records, at least 1; a design that
        omits the count needs `n_records`.
        """
        count = self.n_records if n_records is None else n_records
        if count is None:
            raise ParameterError(
                "mean: this design omits the count; give n_records=, or plan with count='released'"
            )
        return self.moments() / max(count, 1.0)

    def describe(self) -> str:
        """The sketch in plain words, several lines."""
        names = ", ".join(self.sources[:8]) + (", ..." if len(self.sources) > 8 else "")
        lines = [
            f"sketch      {len(self.values)} integers from {len(self.ids)} release(s): {names}"
        ]
        if self.n_records is not None:
            kind = "exact, public" if self.exact_count is not None else "noisy"
            lines.append(f"records     {self.n_records:.0f} ({kind})")
        noise = math.sqrt(self.noise_variance)
        lines.append(f"noise       standard deviation {noise:.4g} records per number")
        return "\n".join([*lines, "", self.design.describe(), "", self.receipt.describe()])

    def to_bytes(self) -> bytes:
        """The bytes of a sketch file."""
        header = {
            "design": self.design.to_json(),
            "receipt": receipt_to_json(self.receipt),
            "ids": list(self.ids),
            "sources": list(self.sources),
            "exact_count": self.exact_count,
        }
        return pack_sketch(header, self.values)

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "sketch") -> Sketch:
        """The sketch from `to_bytes`; FileError for anything but a whole, intact one."""
        header, values = unpack_sketch(data, what)
        names = ("design", "receipt", "ids", "sources", "exact_count")
        header = require_fields(header, names, what)
        design = Design.from_json(header["design"], what)
        with reading(what):
            receipt = receipt_from_json(header["receipt"])
        if len(values) != 2 * design.n_features + (design.count == "released"):
            raise FileError(f"{what}: {len(values)} values do not fit its design")
        ids, sources, count = header["ids"], header["sources"], header["exact_count"]
        if not (_are_names(ids) and _are_names(sources) and len(ids) == len(sources) >= 1):
            raise FileError(f"{what}: ids and sources must be lists of names")
        if len(set(ids)) != len(ids):
            raise FileError(f"{what}: the same release is added up twice")
        is_count = type(count) is int and count >= 1
        if not (is_count if design.count == "public" else count is None):
            raise FileError(f"{what}: the number of records does not go with the design")
        sketch = cls(values, design, receipt, tuple(ids), tuple(sources), count)
        if not _receipt_fits(sketch):
            raise FileError(f"{what}: the receipt does not state what this design costs")
        return sketch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch to a file; the file appears only when it is complete."""
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read a sketch written by `save`."""
        return cls.from_bytes(read_file(path), os.fspath(path))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def merge(sketches: Iterable[Sketch], *, same_records: bool = False) -> Sketch:
    """Add sketches of one design up.

    Charges nothing: it only rearranges what was released. Different sources hold
    different records, so their costs do not add. The same source twice is refused
    unless `same_records=True` says that its costs are to add.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> sites = [ps.sketch(np.zeros((1000, 2)), design, source=name) for name in "ab"]
    >>> ps.merge(sites).receipt.epsilon
    1.0
    """
    parts = list(sketches) if isinstance(sketches, Iterable) else [None]
    if not parts:
        raise MergeError("merge: no sketches given")
    if not all(isinstance(part, Sketch) for part in parts):
        raise MergeError("merge: expected sketches, in a list; load files with Sketch.load")
    if len(parts) == 1:
        return parts[0]
    design = parts[0].design
    for part in parts[1:]:
        if part.design.fingerprint != design.fingerprint:
            raise MergeError(
                f"merge: design {part.design.fingerprint[:16]} is not {design.fingerprint[:16]}; "
                "only sketches of the same study add up"
            )
    if len({part.receipt.sampler.startswith(INSECURE) for part in parts}) > 1:
        raise MergeError("merge: a sketch made without real noise does not add to real ones")
    ids = [identity for part in parts for identity in part.ids]
    sources = [source for part in parts for source in part.sources]
    if len(set(ids)) < len(ids):
        identity = Counter(ids).most_common(1)[0][0]
        name = sources[ids.index(identity)]
        raise MergeError(f"merge: the same sketch is given twice, that of source {name!r}")
    repeated = [source for source, times in Counter(sources).items() if times > 1]
    if repeated and not same_records:
        raise MergeError(
            f"merge: source {repeated[0]!r} occurs more than once; its budgets would add. Use "
            "same_records=True if that is meant; holders of different records need different "
            "source names"
        )
    values = parts[0].values
    for part in parts[1:]:
        values = saturating_add(values, part.values)
    count = None
    if design.count == "public":
        count = sum(part.exact_count or 0 for part in parts)
    receipt = _merged_receipt([single for part in parts for single in _releases(part)])
    return Sketch(values, design, receipt, tuple(ids), tuple(sources), count)


def _releases(part: Sketch) -> Sequence[Receipt]:
    """Receipts of the single releases inside a sketch that may itself be merged."""
    if len(part.ids) == 1:
        return [part.receipt]
    singles: list[Receipt] = []
    for receipt in part.receipt.parts:
        is_repeat = receipt.mechanism == _REPEATED
        singles.extend(receipt.parts if is_repeat else [receipt])
    return singles


def _receipt_fits(sketch: Sketch) -> bool:
    """Whether the receipt is the one that releases of this design by these sources have."""
    releases = _releases(sketch)
    if sorted(str(release.source) for release in releases) != sorted(sketch.sources):
        return False
    if not all(sketch.design.sum_noise.covers(release) for release in releases):
        return False
    whole = releases[0] if len(releases) == 1 else _merged_receipt(releases)
    return (sketch.receipt.epsilon, sketch.receipt.delta) == (whole.epsilon, whole.delta)


_REPEATED = "several sketches of the same records"


def _merged_receipt(releases: Sequence[Receipt]) -> Receipt:
    """Costs of the same source add; over sources the largest counts."""
    by_source: dict[str | None, list[Receipt]] = {}
    for receipt in releases:
        by_source.setdefault(receipt.source, []).append(receipt)
    totals = [
        group[0] if len(group) == 1 else compose_sequential(_REPEATED, group, source)
        for source, group in by_source.items()
    ]
    return compose_parallel(f"merged sketches of {len(totals)} source(s)", totals, None)
