"""Types of the numbers that compiled functions compute with, and of their arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Type of a value: a number, or a vector of `lanes` numbers."""

    name: str  # LLVM's name of the number type
    lanes: int = 0

    def vector(self, lanes: int) -> Kind:
        """Return the type of a vector of this many numbers."""
        return Kind(self.name, lanes)

    @property
    def is_float(self) -> bool:
        """Whether the numbers are floating-point numbers."""
        return self.name in ("float", "double")

    @property
    def number_bits(self) -> int:
        """Size of one number, in bits."""
        return {"float": 32, "double": 64}[self.name] if self.is_float else int(self.name[1:])


I1, I8, I16, I32, I64 = (Kind(f"i{bits}") for bits in (1, 8, 16, 32, 64))
FLOAT, DOUBLE = Kind("float"), Kind("double")


@dataclass(frozen=True)
class Array:
    """Type of an argument that points to numbers; no other argument points to the same ones."""

    of: Kind


Arguments = dict[str, Kind | Array]  # of a function, by name, in the order of a call
