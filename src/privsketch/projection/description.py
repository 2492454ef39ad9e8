"""Public description of a table of released records, in the file beside it.

It states the cost of the release, what is and is not protected, and the noise of every number,
which distances need (projection/distances.py).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import FileError, ParameterError
from privsketch._base.formats import (
    as_line,
    count_text,
    document,
    document_content,
    read_file,
    write_file,
)
from privsketch.facts.domain import Domain, domain_from_json, domain_to_json
from privsketch.facts.receipt import Receipt
from privsketch.projection.calibration import CALIBRATIONS, ROW_NOISES
from privsketch.projection.matrix import PROTECTS, public_matrix
from privsketch.projection.rows import Projection

RELEASE_KIND = "release"
_CHOICES = {
    "protect": PROTECTS,
    "calibration": tuple(name for name in CALIBRATIONS if name != "auto"),
    "noise": tuple(name for name in ROW_NOISES if name != "auto"),
}


@dataclass(frozen=True)
class ReleaseDescription:
    """Public description of a released table.

    Attributes
    ----------
    columns, carried : tuple of str
        Released columns, and columns that were copied without any protection.
    dim : int
        Number of columns of a record.
    record : tuple of str or None
        Columns of a record, in order, if they have names.
    n_records : int
        Number of rows, which is public.
    domain : Box or Ball
    protect, calibration, noise : str
        As in `PrivateProjection`.
    noise_variance, noise_fourth_moment : float
        Moments of the noise of one released number.
    seed : int or None
        Seed of a public matrix; None for a matrix without one.
    matrix_name : str
        Identifier of the matrix: distances need rows of the same one.
    receipt : Receipt
    """

    columns: tuple[str, ...]
    carried: tuple[str, ...]
    dim: int
    record: tuple[str, ...] | None
    n_records: int
    domain: Domain
    protect: str
    calibration: str
    noise: str
    noise_variance: float
    noise_fourth_moment: float
    seed: int | None
    matrix_name: str
    receipt: Receipt

    @classmethod
    def of(
        cls,
        projection: Projection,
        receipt: Receipt,
        *,
        n_records: int,
        record: tuple[str, ...] | None = None,
        carried: tuple[str, ...] = (),
    ) -> ReleaseDescription:
        """Describe a release of a projection."""
        return cls(
            columns=released_names(projection.n_components),
            carried=carried,
            dim=projection.dim,
            record=record,
            n_records=n_records,
            domain=projection.protection.domain,
            protect=projection.protection.protect,
            calibration=projection.noise.calibration,
            noise=projection.noise.law.kind,
            noise_variance=projection.noise_variance,
            noise_fourth_moment=projection.noise_fourth_moment,
            seed=projection.seed,
            matrix_name=projection.matrix_name,
            receipt=receipt,
        )

    @property
    def n_components(self) -> int:
        """Number of released columns."""
        return len(self.columns)

    def public_matrix(self) -> npt.NDArray[np.float64]:
        """Return the matrix of a public seed, (dim, n_components)."""
        if self.seed is None:
            raise ParameterError("seed: this matrix was drawn without one; its holder may have it")
        return public_matrix(self.dim, self.n_components, self.seed).values

    def describe(self) -> str:
        """Return a description of several lines."""
        matrix = "drawn without a seed" if self.seed is None else f"public, of seed {self.seed}"
        lines = [
            f"released    {count_text(self.n_components, 'projection')} of "
            f"{count_text(self.dim, 'column')} of each record, "
            f"{count_text(self.n_records, 'row')}",
            f"record      {self._record_text()}",
            f"domain      {self.domain.describe()}",
            f"noise       {self.noise}, standard deviation {self.noise_variance**0.5:.6g} of each "
            "number, whatever the number of records",
            f"matrix      {matrix}",
        ]
        if self.carried:
            lines.append(f"UNPROTECTED {', '.join(self.carried)}: copied as they are")
        return "\n".join(lines) + "\n" + self.receipt.describe()

    def _record_text(self) -> str:
        if self.record is None:
            return f"{self.dim} columns without names"
        more = f", ... ({self.dim} columns)" if self.dim > 12 else ""
        return ", ".join(map(as_line, self.record[:12])) + more

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON; the file gets its name when it is complete."""
        write_file(Path(path), document(RELEASE_KIND, self.to_json()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReleaseDescription:
        """Read a description written by `save`; raise FileError for anything else."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "receipt") -> ReleaseDescription:
        """Read the description from the bytes of its file; `what` names it in errors."""
        content = document_content(data, RELEASE_KIND, what)
        try:
            return cls._from_json(content)
        except (KeyError, TypeError, ParameterError) as error:
            raise FileError(f"{what}: not a valid description of a release: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **values,
            "columns": list(self.columns),
            "carried": list(self.carried),
            "record": None if self.record is None else list(self.record),
            "domain": domain_to_json(self.domain),
            "receipt": self.receipt.to_json(),
        }

    @classmethod
    def _from_json(cls, content: dict[str, Any]) -> ReleaseDescription:
        if set(content) != set(cls.__dataclass_fields__):
            raise ParameterError("unknown or missing fields")
        for name in ("columns", "carried"):
            if not _are_names(content[name]):
                raise ParameterError(f"{name}: expected a list of names")
        names = [*content["columns"], *content["carried"]]
        if not content["columns"] or len(set(names)) < len(names):
            raise ParameterError("columns, carried: expected at least one released, no name twice")
        for name, choices in _CHOICES.items():
            if content[name] not in choices:
                raise ParameterError(f"{name}: expected one of {', '.join(map(repr, choices))}")
        variance, fourth = content["noise_variance"], content["noise_fourth_moment"]
        if not (type(variance) is type(fourth) is float and 0 < variance * variance <= fourth):
            raise ParameterError("noise_variance, noise_fourth_moment: expected those of a noise")
        for name in ("dim", "n_records"):
            if type(content[name]) is not int or content[name] < 1:
                raise ParameterError(f"{name}: expected an integer of at least 1")
        dim, seed, record = content["dim"], content["seed"], content["record"]
        if record is not None and not (_are_names(record) and len(record) == dim):
            raise ParameterError(f"record: expected {dim} names, or null")
        if re.fullmatch("[0-9a-f]{32}", str(content["matrix_name"])) is None:
            raise ParameterError("matrix_name: expected 32 hex digits")
        if not (seed is None or (type(seed) is int and 0 <= seed < 2**64)):
            raise ParameterError("seed: expected an integer from 0 to 2**64 - 1, or null")
        domain = domain_from_json(content["domain"])
        if domain.dim != dim:
            raise ParameterError(f"domain: expected one of `dim={dim}` columns")
        return cls(
            **{
                **content,
                "columns": tuple(content["columns"]),
                "carried": tuple(content["carried"]),
                "record": None if record is None else tuple(record),
                "domain": domain,
                "receipt": Receipt.from_json(content["receipt"]),
            }
        )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def released_names(n_components: int) -> tuple[str, ...]:
    """Return the names of the released columns."""
    return tuple(f"projection{j}" for j in range(n_components))
