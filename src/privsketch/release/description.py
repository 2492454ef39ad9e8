"""What is public about a table of released records: the file beside it.

It says what the release cost, what it protects and what it does not, and how much noise every
number has, which distances need (release/distances.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.budget import Receipt, receipt_from_json, receipt_to_json
from privsketch.domain import Domain, domain_from_json, domain_to_json
from privsketch.errors import FileError, ParameterError
from privsketch.formats import document, document_content, read_file, write_file
from privsketch.release.matrix import public_matrix
from privsketch.release.projection import Projection

KIND = "release"


@dataclass(frozen=True)
class ReleaseDescription:
    """A released table in words and numbers.

    `columns` are the released ones, `carried` those that were copied without any protection.
    `noise_variance` and `noise_fourth_moment` are of the noise of one released number. `seed`
    is that of a public matrix, None for one that was drawn without.
    """

    columns: tuple[str, ...]
    carried: tuple[str, ...]
    dim: int
    domain: Domain
    protect: str
    calibration: str
    noise: str
    noise_variance: float
    noise_fourth_moment: float
    seed: int | None
    receipt: Receipt

    @classmethod
    def of(
        cls, projection: Projection, receipt: Receipt, carried: tuple[str, ...] = ()
    ) -> ReleaseDescription:
        """The description of what a projection released."""
        return cls(
            columns=released_names(projection.n_components),
            carried=carried,
            dim=projection.dim,
            domain=projection.protection.domain,
            protect=projection.protection.protect,
            calibration=projection.noise.calibration,
            noise=projection.noise.law.kind,
            noise_variance=projection.noise_variance,
            noise_fourth_moment=projection.noise_fourth_moment,
            seed=projection.seed,
            receipt=receipt,
        )

    @property
    def n_components(self) -> int:
        """Number of released columns."""
        return len(self.columns)

    def public_matrix(self) -> npt.NDArray[np.float64]:
        """The matrix of a public seed, (dim, n_components)."""
        if self.seed is None:
            raise ParameterError("seed: this matrix was drawn without one; its holder may have it")
        return public_matrix(self.dim, self.n_components, self.seed).values

    def describe(self) -> str:
        """In plain words, several lines."""
        matrix = "drawn without a seed" if self.seed is None else f"public, of seed {self.seed}"
        lines = [
            f"released    {self.n_components} projections of {self.dim} columns of each record",
            f"domain      {self.domain.describe()}",
            f"noise       {self.noise}, standard deviation {self.noise_variance**0.5:.6g} of each "
            "number, whatever the number of records",
            f"matrix      {matrix}",
        ]
        if self.carried:
            lines.append(f"UNPROTECTED {', '.join(self.carried)}: copied as they are")
        return "\n".join(lines) + "\n" + self.receipt.describe()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON; the file appears under its name only when it is complete."""
        write_file(Path(path), document(KIND, self._to_json()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ReleaseDescription:
        """Read what `save` wrote; FileError for anything else."""
        content = document_content(read_file(Path(path)), KIND, str(path))
        try:
            return cls._from_json(content)
        except (KeyError, TypeError, ParameterError) as error:
            raise FileError(f"{path}: not a valid description of a release: {error}") from None

    def _to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **values,
            "columns": list(self.columns),
            "carried": list(self.carried),
            "domain": domain_to_json(self.domain),
            "receipt": receipt_to_json(self.receipt),
        }

    @classmethod
    def _from_json(cls, content: dict[str, Any]) -> ReleaseDescription:
        if set(content) != set(cls.__dataclass_fields__):
            raise ParameterError("unknown or missing fields")
        for name in ("columns", "carried"):
            if not (
                isinstance(content[name], list) and all(isinstance(c, str) for c in content[name])
            ):
                raise ParameterError(f"{name}: expected a list of names")
        for name in ("noise_variance", "noise_fourth_moment"):
            if not (isinstance(content[name], float) and content[name] > 0):
                raise ParameterError(f"{name}: expected a number above 0")
        for name in ("protect", "calibration", "noise"):
            if not isinstance(content[name], str):
                raise ParameterError(f"{name}: expected a text")
        if type(content["dim"]) is not int or not (
            content["seed"] is None or type(content["seed"]) is int
        ):
            raise ParameterError("dim, seed: expected whole numbers")
        return cls(
            **{
                **content,
                "columns": tuple(content["columns"]),
                "carried": tuple(content["carried"]),
                "domain": domain_from_json(content["domain"]),
                "receipt": receipt_from_json(content["receipt"]),
            }
        )


def released_names(n_components: int) -> tuple[str, ...]:
    """Names of the released columns."""
    return tuple(f"projection{j}" for j in range(n_components))
