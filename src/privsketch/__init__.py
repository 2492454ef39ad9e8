"""Learn from sensitive records without keeping them.

Each holder reads its records once and publishes a sketch: a short vector of noisy
integer sums that is differentially private by construction. Sketches add up; from the
sum alone anyone learns clusters, Gaussian mixtures or principal components.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsketch._load import load
    from privsketch.facts.budget import Budget
    from privsketch.pages.comparison.compare import compare
    from privsketch.pages.comparison.result import Comparison
    from privsketch.design.recipe import Design
    from privsketch.facts.domain import Ball, Box
    from privsketch._base.errors import PrivsketchError, PrivsketchWarning
    from privsketch.estimators.kmeans import KMeansOptions, PrivateKMeans
    from privsketch.estimators.kmedians import PrivateKMedians
    from privsketch.estimators.mixture import PrivateGaussianMixture
    from privsketch.estimators.pca import PrivatePCA
    from privsketch.estimators.projection import PrivateProjection
    from privsketch.features.masks import Masks
    from privsketch.learning.kmeans.learner import learn_kmeans
    from privsketch.learning.mixture.learner import learn_gaussian_mixture
    from privsketch.learning.pca.learner import learn_pca
    from privsketch.ledger.book import Ledger
    from privsketch.models.clusters import ClusterModel, CostRatio
    from privsketch.models.components import PCAModel
    from privsketch.models.mixture import GaussianMixtureModel
    from privsketch.noise.composition import Composition, compose
    from privsketch.projection.description import ReleaseDescription
    from privsketch.projection.distances import Distances, Released
    from privsketch.projection.kmeans import cluster_released
    from privsketch.projection.neighbours import nearest_rows
    from privsketch.projection.rows import Projection
    from privsketch.facts.receipt import Receipt
    from privsketch.facts.columns import Cycle, Date, Number
    from privsketch.facts.labels import Category, Flag
    from privsketch.facts.schema import Schema
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.cards import Card
    from privsketch_studies.sealing.join import join
    from privsketch_studies.sealing.lists import CheckedBallots, ClosedList, check_ballots
    from privsketch_studies.sealing.seal import seal
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.tally import Tally, tally
    from privsketch.signing.keys import Key, PublicKey
    from privsketch.signing.trusted import verify
    from privsketch.sketching.build import sketch
    from privsketch.sketching.estimate import Cost, estimate_cost
    from privsketch.sketching.merge import merge
    from privsketch.sketching.sketch import Sketch
    from privsketch.tables.survey.bounds import Bounds, private_bounds
    from privsketch.tables.survey.check import check
    from privsketch.tables.survey.result import Check
    from privsketch.tables.reading import encode

__version__ = "0.2.0.dev0"

# Loaded on first use, so that `privsketch --help` and imports of a part stay fast.
_HOMES = {
    "Ball": "domain",
    "Ballot": "sealing.ballots",
    "Bounds": "survey.bounds",
    "Box": "domain",
    "Budget": "budget",
    "Card": "sealing.cards",
    "Category": "schema.labels",
    "Check": "survey.result",
    "Cycle": "schema.columns",
    "Date": "schema.columns",
    "Flag": "schema.labels",
    "Number": "schema.columns",
    "Schema": "schema.table",
    "Design": "design.recipe",
    "Distances": "projection.distances",
    "GaussianMixtureModel": "models.mixture",
    "CheckedBallots": "sealing.lists",
    "ClosedList": "sealing.lists",
    "ClusterModel": "models.clusters",
    "CostRatio": "models.clusters",
    "Composition": "noise.composition",
    "Comparison": "comparison.result",
    "Cost": "sketching.estimate",
    "KMeansOptions": "estimators.kmeans",
    "Key": "signing.keys",
    "Ledger": "ledger.book",
    "Masks": "features.masks",
    "PCAModel": "models.components",
    "PrivateGaussianMixture": "estimators.mixture",
    "PrivateKMeans": "estimators.kmeans",
    "PrivateKMedians": "estimators.kmedians",
    "PrivatePCA": "estimators.pca",
    "PrivateProjection": "estimators.projection",
    "PrivsketchError": "errors",
    "PrivsketchWarning": "errors",
    "Projection": "projection.rows",
    "PublicKey": "signing.keys",
    "Receipt": "receipt",
    "ReleaseDescription": "projection.description",
    "Released": "projection.distances",
    "SealedStudy": "sealing.study",
    "Sketch": "sketching.sketch",
    "Tally": "sealing.tally",
    "check": "survey.check",
    "check_ballots": "sealing.lists",
    "compose": "noise.composition",
    "cluster_released": "projection.kmeans",
    "compare": "comparison.compare",
    "load": "_load",
    "encode": "tables.reading",
    "estimate_cost": "sketching.estimate",
    "join": "sealing.join",
    "learn_gaussian_mixture": "learning.mixture.learner",
    "learn_kmeans": "learning.kmeans.learner",
    "learn_pca": "learning.pca.learner",
    "merge": "sketching.merge",
    "nearest_rows": "projection.neighbours",
    "private_bounds": "survey.bounds",
    "seal": "sealing.seal",
    "sketch": "sketching.build",
    "tally": "sealing.tally",
    "verify": "signing.trusted",
}

__all__ = [
    "Ball",
    "Ballot",
    "Bounds",
    "Box",
    "Budget",
    "Card",
    "Category",
    "Check",
    "Cycle",
    "Date",
    "Flag",
    "Number",
    "Schema",
    "Design",
    "Distances",
    "GaussianMixtureModel",
    "CheckedBallots",
    "ClosedList",
    "ClusterModel",
    "Composition",
    "Comparison",
    "Cost",
    "CostRatio",
    "KMeansOptions",
    "Key",
    "Ledger",
    "Masks",
    "PCAModel",
    "PrivateGaussianMixture",
    "PrivateKMeans",
    "PrivateKMedians",
    "PrivatePCA",
    "PrivateProjection",
    "PrivsketchError",
    "PrivsketchWarning",
    "Projection",
    "PublicKey",
    "Receipt",
    "ReleaseDescription",
    "Released",
    "SealedStudy",
    "Sketch",
    "Tally",
    "check",
    "check_ballots",
    "cluster_released",
    "compose",
    "compare",
    "encode",
    "estimate_cost",
    "join",
    "learn_gaussian_mixture",
    "learn_kmeans",
    "learn_pca",
    "load",
    "merge",
    "nearest_rows",
    "private_bounds",
    "seal",
    "sketch",
    "tally",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privsketch' has no attribute {name!r}")
    value = getattr(import_module(f"privsketch.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
