"""What a decoder returns."""

from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.atoms import Atoms
from privsketch.learning.uncertainty import Uncertainty


@dataclass(frozen=True)
class Solution:
    """Atoms that explain a sketch. Weights are in records.

    Attributes
    ----------
    atoms : Atoms
        As many as clusters asked for, centres inside the box of the problem.
    density : Atoms
        The best description of the records the sketch supports. It is the atoms above
        unless these cannot explain the sketch and more of them, or others, can.
    residual : float
        Of the density: `sum_j |moments_j - model_j|^2`.
    uncertainty : Uncertainty
        What noise and sampling do to a fit of the density.
    n_evaluations : int
        How many times the model was evaluated with its gradient.
    """

    atoms: Atoms
    density: Atoms
    residual: float
    uncertainty: Uncertainty
    n_evaluations: int

    @property
    def centers(self) -> Floats:
        """(n_clusters, dim) centres of the atoms."""
        return self.atoms.centers

    @property
    def weights(self) -> Floats:
        """(n_clusters,) weights of the atoms, in records."""
        return self.atoms.weights

    @property
    def axis_widths(self) -> Floats:
        """(n_clusters, dim) standard deviations of the atoms along each axis."""
        return np.sqrt(self.atoms.axis_variances())

    @property
    def expected_residual(self) -> float:
        """What noise and sampling alone would leave.

        A residual well above it says that the density does not describe the records.
        """
        return self.uncertainty.expected_cost
