"""Learn from sensitive records without keeping them.

Each holder reads its records once and publishes a sketch: a short vector of noisy
integer sums that is differentially private by construction. Sketches add up; from the
sum alone anyone learns clusters, Gaussian mixtures or principal components.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsketch.budget import Budget, Receipt
    from privsketch.design import Design
    from privsketch.domain import Ball, Box
    from privsketch.errors import PrivsketchError
    from privsketch.estimators.kmeans import PrivateKMeans
    from privsketch.estimators.kmedians import PrivateKMedians
    from privsketch.estimators.mixture import PrivateGaussianMixture
    from privsketch.estimators.pca import PrivatePCA
    from privsketch.estimators.projection import PrivateProjection
    from privsketch.features.masks import Masks
    from privsketch.learning.center_model import CenterModel
    from privsketch.learning.gaussian_mixture import learn_gaussian_mixture
    from privsketch.learning.kmeans import learn_kmeans
    from privsketch.learning.mixture_model import GaussianMixtureModel
    from privsketch.learning.model import KMeansModel
    from privsketch.learning.pca import learn_pca
    from privsketch.learning.pca_model import PCAModel
    from privsketch.merging import merge
    from privsketch.release.description import ReleaseDescription
    from privsketch.release.distances import Distances, Released
    from privsketch.release.kmeans import cluster_released
    from privsketch.release.neighbours import nearest_rows
    from privsketch.release.projection import Projection
    from privsketch.sketches import Sketch
    from privsketch.sketching.release import sketch

__version__ = "0.1.0"

# Loaded on first use, so that `privsketch --help` and imports of a part stay fast.
_HOMES = {
    "Ball": "domain",
    "Box": "domain",
    "Budget": "budget",
    "Design": "design",
    "Distances": "release.distances",
    "GaussianMixtureModel": "learning.mixture_model",
    "CenterModel": "learning.center_model",
    "KMeansModel": "learning.model",
    "Masks": "features.masks",
    "PCAModel": "learning.pca_model",
    "PrivateGaussianMixture": "estimators.mixture",
    "PrivateKMeans": "estimators.kmeans",
    "PrivateKMedians": "estimators.kmedians",
    "PrivatePCA": "estimators.pca",
    "PrivateProjection": "estimators.projection",
    "PrivsketchError": "errors",
    "Projection": "release.projection",
    "Receipt": "budget",
    "ReleaseDescription": "release.description",
    "Released": "release.distances",
    "Sketch": "sketches",
    "cluster_released": "release.kmeans",
    "learn_gaussian_mixture": "learning.gaussian_mixture",
    "learn_kmeans": "learning.kmeans",
    "learn_pca": "learning.pca",
    "merge": "merging",
    "nearest_rows": "release.neighbours",
    "sketch": "sketching.release",
}

__all__ = [
    "Ball",
    "Box",
    "Budget",
    "Design",
    "Distances",
    "GaussianMixtureModel",
    "CenterModel",
    "KMeansModel",
    "Masks",
    "PCAModel",
    "PrivateGaussianMixture",
    "PrivateKMeans",
    "PrivateKMedians",
    "PrivatePCA",
    "PrivateProjection",
    "PrivsketchError",
    "Projection",
    "Receipt",
    "ReleaseDescription",
    "Released",
    "Sketch",
    "cluster_released",
    "learn_gaussian_mixture",
    "learn_kmeans",
    "learn_pca",
    "merge",
    "nearest_rows",
    "sketch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privsketch' has no attribute {name!r}")
    value = getattr(import_module(f"privsketch.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
