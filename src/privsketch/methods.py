"""Ways to cluster records that one holder has: which there are, and which one is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privsketch.baselines import grid, lloyd
from privsketch.clustering import pipeline
from privsketch.clustering.partition_tree import cluster_by_tree
from privsketch.learning.center_model import CenterModel

METHODS: dict[str, Callable[..., CenterModel]] = {
    "pipeline": pipeline.cluster,
    "partition-tree": cluster_by_tree,
    "lloyd": lloyd.cluster,
    "grid": grid.cluster,
}


def cluster_by(method: str, data: Any, n_clusters: int, **options: Any) -> CenterModel:
    """Centres by a method that reads the records itself.

    Charges: the budget, once.
    """
    return METHODS[method](data, n_clusters, **options)
