"""The sketch: what a holder releases.

How a sketch is made of records is another room, `sketching`; nothing here reads one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import FileError, MergeError, ParameterError
from privsketch._base.formats import (
    INSECURE,
    NO_PRIVACY,
    fingerprint,
    pack_sketch,
    read_file,
    reading,
    require_fields,
    unpack_sketch,
    write_file,
)
from privsketch._base.notebook import described
from privsketch._base.types import Integers
from privsketch.design.recipe import Design
from privsketch.facts.receipt import Receipt, compose_parallel, compose_sequential
from privsketch.features.cells import axis_edges
from privsketch.features.fixedpoint import RECORD_UNIT
from privsketch.features.moments import DIAGONAL, MOMENT_UNIT, ROUNDING_VARIANCE, moment_weights
from privsketch.features.taxicab import symmetric, triangle_weights
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.models.drawing.axes import plot_axis
from privsketch.models.drawing.moments import draw_cells, draw_moduli, draw_noise, draw_sizes
from privsketch.noise.mechanism import NoiseLaw
from privsketch.noise.sharing.total import SharedTotal
from privsketch.sketching.verdict import Verdict

MAX_WEIGHT = 10**6  # of one release in a sum


@dataclass(frozen=True, eq=False)
class Sketch:
    """A private release: noisy integer sums with their design and their receipt.

    Attributes
    ----------
    values : int64
        Everything released: sums of cosines and of sines (of squares or products for principal
        components), those of coordinates if the mean is released, the count if there is one.
    design : Design
    receipt : Receipt
    ids : tuple of str
        Random names of the releases added up in here, one for an unmerged sketch.
    sources : tuple of str
        Whose records they are, aligned with `ids`.
    exact_count : int or None
        Number of records where the design makes it public, else None.
    weights : tuple of int
        How often each release counts in the sum, aligned with `ids`; all 1 if left out.
    shared : tuple of SharedTotal
        Totals in here whose holders or tellers shared their noise (noise/sharing). Each holder in
        one has an id of it, and they all have one receipt and one noise.
    verdict : Verdict or None
        What a comparison of the parts of a total said; None for a single release, and for a total
        that nobody compared.
    """

    values: Integers
    design: Design
    receipt: Receipt
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    exact_count: int | None = None
    weights: tuple[int, ...] = ()
    shared: tuple[SharedTotal, ...] = ()
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        if not self.weights:
            object.__setattr__(self, "weights", (1,) * len(self.ids))

    def noises(self, law: NoiseLaw) -> float:
        """Return the variance of its noise over that of one release by `law`, of sums or count.

        Each release adds its own; a total whose noise is shared has one for all its holders.
        """
        noise = self.design.sum_noise
        own = self.releases_apart()
        squares = sum(weight**2 for weight in own.weights)
        return squares + sum(
            weight**2 * total.noises(law, noise)
            for total, weight in zip(self.shared, own.shared_weights, strict=True)
        )

    def releases_apart(self) -> ReleasesApart:
        """Return the releases with noise of their own, and how often the totals of others count."""
        places = [places_of(total, self.ids) for total in self.shared]
        within = {place for group in places for place in group}
        own = [place for place in range(len(self.ids)) if place not in within]
        return ReleasesApart(
            tuple(self.sources[place] for place in own),
            tuple(self.weights[place] for place in own),
            tuple(self.weights[group[0]] for group in places),
        )

    @property
    def count_variance(self) -> float:
        """Variance of the noise of `n_records` where a noisy one was released, else 0."""
        noise = self.design.sum_noise
        if self._counts_by_sums:
            unit = noise.factor * self.design.taxicab.intercept**2
            return self.noises(noise.sums_law) * noise.sums_law.variance / unit**2
        return self.noises(noise.count_law or noise.sums_law) * noise.count_variance

    @property
    def sums(self) -> Integers:
        """The noisy sums as released: cosines, then sines, (2 n_features,); or one per feature."""
        return self.values[: self.design.n_values]

    @property
    def n_records(self) -> float | None:
        """The number of records: exact if public, a noisy estimate if released, else None.

        Cells add up to a noisy one in any case, and taxicab moments begin with one.
        """
        if self.design.count == "released":
            return float(self.values[-1]) / self.design.sum_noise.count_unit
        if self._counts_by_sums:
            unit = self.design.sum_noise.factor * self.design.taxicab.intercept**2
            return float(self.sums[0] / unit)
        if self.design.cells is not None and self.exact_count is None:
            return float(self.sums.sum() / self.design.unit)
        return None if self.exact_count is None else float(self.exact_count)

    @property
    def _counts_by_sums(self) -> bool:
        """Whether the first of the sums is what tells the number of records."""
        return self.design.feature_map == "taxicab" and self.design.count == "omitted"

    @property
    def noise_variance(self) -> float:
        """Variance of the noise per real component of `moments`; releases add theirs."""
        return self.noises(self.design.sum_noise.sums_law) * self.design.noise_std**2

    @property
    def assumed_records(self) -> float:
        """`n_records`, or what the design was planned for if no number was released."""
        known = self.n_records
        return sum(self.weights) * self.design.n_records if known is None else known

    @property
    def repetition(self) -> float:
        """How often a record that was kept counts: the sums vary like those of fewer records.

        n records that each count w times vary by w^2 n; those of holders of equal sizes with
        weights w by n times the sum of w^2 over the sum of w. Masks that keep a record with
        probability beta let it count 1 / beta times.
        """
        squares = sum(weight**2 for weight in self.weights)
        return squares / sum(self.weights) / self.design.record_rate

    @property
    def masking_variance(self) -> float:
        """Variance that masks of features add per real component of `moments`."""
        squares = sum(weight**2 for weight in self.weights) / sum(self.weights)
        return self.design.masking_variance * squares * max(self.assumed_records, 0.0)

    def moments(self) -> npt.NDArray[np.complex128]:
        """Return noisy sums over records of exp(i w.(x - center)), (n_features,).

        For the one-bit map its first harmonic, with the dither taken back.
        """
        if self.design.cells is not None:
            raise ParameterError("moments: this sketch counts records of cells; use counts")
        if self.design.mapping.for_components:
            raise ParameterError(
                "moments: this is a sketch for principal components or regression; use "
                "quadratic_sums, second_moments or taxicab_moments"
            )
        cosines, sines = self.sums.astype(np.float64).reshape(2, -1) / self.design.unit
        design = self.design
        dither = design.frequencies.offsets(design.domain) * (
            2 * np.pi * 2.0**-design.frequencies.turn_bits
        )
        return np.asarray((cosines + 1j * sines) * np.exp(-1j * dither))

    def counts(self) -> npt.NDArray[np.float64]:
        """Return noisy numbers of records in the cells, an array with an axis for each column."""
        if self.design.cells is None:
            raise ParameterError("counts: the design has no cells")
        return (self.sums / self.design.unit).reshape(self.design.cells)

    def quadratic_sums(self) -> npt.NDArray[np.float64]:
        """Return noisy sums over records of (w.(x - center))^2, (n_features,).

        Half a unit for each record, what flooring takes off on average, is added back where
        the number of records is known.
        """
        design = self.design
        if design.feature_map != "quadratic":
            raise ParameterError("quadratic_sums: the design has no quadratic features")
        sums = self.sums / design.unit
        if self.n_records is not None:
            sums = sums + max(self.n_records, 0.0) * 0.5 / design.amplitude
        return np.asarray(sums * float(design.domain.half_widths[0]) ** 2)

    def second_moments(self) -> npt.NDArray[np.float64]:
        """Return the noisy sum over records of (x - center)(x - center)', (dim, dim).

        What rounding adds to squares is taken off where the number of records is known.
        """
        design = self.design
        if design.feature_map != "second-moments":
            raise ParameterError("second_moments: the design has no second moments")
        entries = self.sums * (DIAGONAL / moment_weights(design.dim)) / design.unit
        matrix = np.zeros((design.dim, design.dim))
        matrix[np.triu_indices(design.dim)] = entries
        matrix = matrix + np.triu(matrix, 1).T
        if self.n_records is not None:
            rounding = max(self.n_records, 0.0) * ROUNDING_VARIANCE / MOMENT_UNIT**2
            matrix[np.diag_indices(design.dim)] -= rounding
        return np.asarray(matrix * float(design.domain.half_widths[0]) ** 2)

    def taxicab_moments(self) -> TaxicabMoments:
        """Return the noisy sums of u u' of taxicab moments, and the variances of their noise.

        u is a record in the integers of `design.taxicab`, after a constant;
        `features.to_coordinates` has the matrix that leads to coordinates. The first entry is exact
        where the number of records is public. What rounding adds to squares is taken off.
        """
        design, noise = self.design, self.design.sum_noise
        layout, size = design.taxicab, 1 + design.dim
        weights = triangle_weights(size) * noise.factor
        matrix = symmetric(self.sums / weights, size)
        law = noise.sums_law
        variance = symmetric(self.noises(law) * law.variance / np.square(weights), size)
        if self.exact_count is not None:
            matrix[0, 0], variance[0, 0] = self.exact_count * layout.intercept**2, 0.0
        rounding = max(self.assumed_records, 0.0) * ROUNDING_VARIANCE
        matrix[1:, 1:] -= np.diag(rounding * layout.is_rounded)
        return TaxicabMoments(matrix, variance)

    def record_sums(self) -> tuple[npt.NDArray[np.float64], float] | None:
        """Return the noisy sum of x - center, (dim,), and its variance; None if not released."""
        design, noise = self.design, self.design.sum_noise
        if not noise.mean_weight:
            return None
        start = design.n_values
        unit = noise.mean_weight * RECORD_UNIT / float(design.domain.half_widths[0])
        variance = self.noises(noise.sums_law) * noise.sums_law.variance / unit**2
        return self.values[start : start + design.dim] / unit, variance

    def mean(self, n_records: float | None = None) -> npt.NDArray[Any]:
        """Return features per record: `moments`, the noisy characteristic function, (n_features,).

        For principal components and regression `quadratic_sums`, `second_moments` or the matrix of
        `taxicab_moments` per record, for cells `counts`.

        Divides by the released or public number of records, at least 1; a design that
        omits the count needs `n_records`.
        """
        count = self.n_records if n_records is None else n_records
        if count is None:
            raise ParameterError(
                "mean: this design omits the count; give n_records=, or plan with "
                "`count='released'`"
            )
        if self.design.feature_map == "quadratic":
            return self.quadratic_sums() / max(count, 1.0)
        if self.design.feature_map == "second-moments":
            return self.second_moments() / max(count, 1.0)
        if self.design.cells is not None:
            return self.counts() / max(count, 1.0)
        if self.design.feature_map == "taxicab":
            return self.taxicab_moments().matrix / max(count, 1.0)
        return self.moments() / max(count, 1.0)

    def _own_lines(self) -> list[str]:
        """Return the lines of a description about the sketch itself."""
        names = ", ".join(self.sources[:8]) + (", ..." if len(self.sources) > 8 else "")
        lines = [
            f"sketch      {len(self.values)} integers from {len(self.ids)} release(s): {names}"
        ]
        if self.n_records is not None:
            kind = "exact, public" if self.exact_count is not None else "noisy"
            kind = "exact" if self.design.insecure else kind
            lines.append(f"records     {self.n_records:.0f} ({kind})")
        noise = math.sqrt(self.noise_variance)
        unit = "squared radii" if self.design.mapping.for_components else "records"
        if self.design.insecure:
            lines.insert(0, f"{INSECURE}    {NO_PRIVACY.partition(': ')[2]}")
        lines.append(f"noise       standard deviation {noise:.4g} {unit} per number")
        if set(self.weights) != {1}:
            weights = ", ".join(map(str, self.weights[:8])) + ("..." if len(self.ids) > 8 else "")
            lines.append(f"weights     {weights}: records count that often")
        for total in self.shared:
            lines.append(
                f"shared      by {total.by} of {total.source}: one noise for "
                f"{total.turnout} holders"
            )
        return lines if self.verdict is None else [*lines, *self.verdict.describe(self.sources)]

    def describe(self) -> str:
        """Describe the sketch in plain words, several lines."""
        parts = ["\n".join(self._own_lines()), self.design.describe(), self.receipt.describe()]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        told = [*self._own_lines(), *self.design.describe().splitlines()]
        return described("Sketch", [*told, f"cost        {self.receipt.summary()}"])

    def plot(self, ax: Any = None) -> Any:
        """Draw what was released against what the noise hides of it, and return the Axes.

        Moduli of `mean` by the norm of their frequency, with the root mean square of the noise
        alone and of noise and sampling; for principal components sizes of the released numbers;
        for cells of one or two columns the counts where they are, of more their sizes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        axis = plot_axis(ax, 6.2, 3.8)
        n_records = max(self.assumed_records, 1.0)
        cells = self.design.cells
        if cells is not None and len(cells) == self.design.dim <= 2:
            edges = axis_edges(self.design.domain, cells)
            about = self.design.domain.center_vector
            places = [along + middle for along, middle in zip(edges, about, strict=True)]
            draw_cells(axis, self.counts(), places, math.sqrt(self.noise_variance), self._names())
            return axis
        if not self.design.mapping.has_table:
            sizes = np.abs(self.sums) / self.design.unit / n_records
            unit = "squared radii" if self.design.mapping.for_components else "records"
            draw_sizes(axis, sizes, unit)
            noise = math.sqrt(self.noise_variance) / n_records
            draw_noise(axis, sizes, noise)
            return axis
        moduli = np.abs(self.moments()) / n_records
        norms = np.linalg.norm(self.design.radians(), axis=1)
        draw_moduli(axis, norms, moduli, encoded=self.design.schema is not None)
        # Two real components; sums of unit phasors vary by one for each record, signs by more.
        sampled = self.repetition * n_records + 2 * self.masking_variance
        if self.design.mapping.dithered:
            sampled += SIGN_VARIANCE * n_records
        noise = 2 * self.noise_variance
        both = math.sqrt(noise + sampled) / n_records
        draw_noise(axis, moduli, math.sqrt(noise) / n_records, both)
        return axis

    def _names(self) -> list[str]:
        if self.design.columns is not None:
            return list(self.design.columns)
        return [f"column {place + 1}" for place in range(self.design.dim)]

    def to_bytes(self) -> bytes:
        """Return the bytes of a sketch file."""
        header: dict[str, Any] = {
            **({INSECURE: NO_PRIVACY} if self.design.insecure else {}),
            "design": self.design.to_json(),
            "receipt": self.receipt.to_json(),
            "ids": list(self.ids),
            "sources": list(self.sources),
            "exact_count": self.exact_count,
        }
        if set(self.weights) != {1}:
            header["weights"] = list(self.weights)
        if self.shared:
            header["shared"] = [total.to_json() for total in self.shared]
        if self.verdict is not None:
            header["verdict"] = self.verdict.to_json()
        return pack_sketch(header, self.values)

    @classmethod
    def from_bytes(
        cls, data: bytes, what: str = "sketch", *, design: Design | None = None
    ) -> Sketch:
        """Return the sketch from `to_bytes`; raise FileError for anything but a whole, intact one.

        Where its `design` is known, another one is a MergeError, and it is not made again.
        """
        header, values = unpack_sketch(data, what)
        note = header.pop(INSECURE, None)
        names = ("design", "receipt", "ids", "sources", "exact_count")
        optional: dict[str, Any] = {"weights": [], "shared": [], "verdict": None}
        header = require_fields({**optional, **header}, (*names, *optional), what)
        if design is None:
            design = Design.from_json(header["design"], what)
        elif fingerprint(header["design"]) != design.fingerprint:
            raise MergeError(f"{what}: of another design than this study's, or of another budget")
        with reading(what):
            receipt = Receipt.from_json(header["receipt"])
        if note != (NO_PRIVACY if design.insecure else None):
            raise FileError(f"{what}: header and design disagree on privacy; the file was altered")
        if design.insecure and header["shared"]:
            raise FileError(f"{what}: there is no noise that holders could share")
        n_means = design.dim if design.mean == "released" else 0
        if len(values) != design.n_values + n_means + (design.count == "released"):
            raise FileError(f"{what}: {len(values)} values do not fit its design")
        ids, sources, count = header["ids"], header["sources"], header["exact_count"]
        if not (_are_names(ids) and _are_names(sources) and len(ids) == len(sources) >= 1):
            raise FileError(f"{what}: ids and sources must be lists of names")
        if len(set(ids)) != len(ids):
            raise FileError(f"{what}: the same release is added up twice")
        is_count = type(count) is int and count >= 1
        if not (is_count if design.count == "public" else count is None):
            raise FileError(f"{what}: the number of records does not go with the design")
        weights = header["weights"]
        if not isinstance(weights, list) or not all(
            type(weight) is int and 1 <= weight <= MAX_WEIGHT for weight in weights
        ):
            raise FileError(f"{what}: weights must be a list of whole numbers")
        if weights and (len(weights) != len(ids) or set(weights) == {1}):
            raise FileError(f"{what}: weights do not go with the releases")
        shared = _shared_from_json(header["shared"], ids, weights, what)
        verdict = None
        if header["verdict"] is not None:
            if len(ids) == 1:
                raise FileError(f"{what}: a single release has no parts to compare")
            with reading(what):
                verdict = Verdict.from_json(header["verdict"], sources)
        ids, sources, weights = tuple(ids), tuple(sources), tuple(weights)
        sketch = cls(values, design, receipt, ids, sources, count, weights, shared, verdict)
        with reading(what):
            if not math.isfinite(sketch.noise_variance):
                raise ParameterError("shared: noise of no size")
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


class TaxicabMoments(NamedTuple):
    """Noisy sums of u u' over records, and variances of their noise, both (1 + dim, 1 + dim)."""

    matrix: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64]


class ReleasesApart(NamedTuple):
    """Releases that have noise of their own, and weights of totals whose noise is shared."""

    sources: tuple[str, ...]
    weights: tuple[int, ...]
    shared_weights: tuple[int, ...]


def ids_of(total: SharedTotal) -> tuple[str, ...]:
    """Return names of a total's holders as releases: that of the study, and a number."""
    return tuple(f"{total.study}:{place}" for place in range(total.turnout))


def places_of(total: SharedTotal, ids: Sequence[str]) -> list[int]:
    """Return where the holders of a total are among the releases of a sketch."""
    return [place for place, name in enumerate(ids) if name.startswith(f"{total.study}:")]


def _shared_from_json(
    value: Any, ids: Sequence[str], weights: Sequence[int], what: str
) -> tuple[SharedTotal, ...]:
    """Return totals of shared noise; refuse one without all its holders, with one weight."""
    if not isinstance(value, list):
        raise FileError(f"{what}: shared must be a list")
    with reading(what):
        totals = tuple(SharedTotal.from_json(one) for one in value)
    for total in totals:
        places = places_of(total, ids)
        same = len({weights[place] for place in places}) == 1 if weights else True
        if tuple(ids[place] for place in places) != ids_of(total) or not same:
            raise FileError(f"{what}: the holders of {total.source} are not those of a total")
    if len({total.study for total in totals}) != len(totals):
        raise FileError(f"{what}: the same total is added up twice")
    return totals


def releases_of(part: Sketch) -> Sequence[Receipt]:
    """Return receipts of the single releases inside a sketch that may itself be merged."""
    if len(part.ids) == 1 or (len(part.shared) == 1 and part.shared[0].turnout == len(part.ids)):
        return [part.receipt]
    singles: list[Receipt] = []
    for receipt in part.receipt.parts:
        is_repeat = receipt.mechanism == _REPEATED
        singles.extend(receipt.parts if is_repeat else [receipt])
    return singles


def _receipt_fits(sketch: Sketch) -> bool:
    """Return whether the receipt is the one that releases of this design by these sources have."""
    releases, noise = releases_of(sketch), sketch.design.sum_noise
    totals = {total.source: total for total in sketch.shared}
    own = [release for release in releases if release.source not in totals]
    if sorted(str(release.source) for release in own) != sorted(sketch.releases_apart().sources):
        return False
    shared = {str(one.source): one for one in releases if one.source in totals}
    if set(shared) != set(totals) or len(shared) + len(own) != len(releases):
        return False
    if not all(noise.covers(release) for release in own):
        return False
    if not all(total.covers(shared[source], noise) for source, total in totals.items()):
        return False
    return sketch.receipt == (releases[0] if len(releases) == 1 else merged_receipt(releases))


_REPEATED = "several sketches of the same records"


def merged_receipt(releases: Sequence[Receipt]) -> Receipt:
    """Return the receipt of a sum: costs of a source add, over sources the largest counts."""
    by_source: dict[str | None, list[Receipt]] = {}
    for receipt in releases:
        by_source.setdefault(receipt.source, []).append(receipt)
    totals = [
        group[0] if len(group) == 1 else compose_sequential(_REPEATED, group, source)
        for source, group in by_source.items()
    ]
    return compose_parallel(f"merged sketches of {len(totals)} source(s)", totals, None)
