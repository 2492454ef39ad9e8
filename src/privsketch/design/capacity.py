"""What a sketch of a given size can carry, and what serving several tasks costs."""

from __future__ import annotations

from privsketch.design.recipe import Design
from privsketch.design.size import choose_size, largest_size, relative_error
from privsketch.design.unknowns import carried_clusters, carried_gaussians, kmeans_unknowns


def kmeans_cost(design: Design) -> float:
    """Predicted excess error of k-means from this design over that of one for k-means alone.

    Both for the same budget and number of records; below 1 if this design is larger
    and that helps.
    """
    k, dim = design.n_components, design.dim
    largest, n_unknowns = largest_size("kmeans", k, dim)
    alone = choose_size(
        largest=largest,
        n_unknowns=n_unknowns,
        n_features=None,
        feature_map=design.map,
        budget=design.budget,
        noise=None,
        count=design.count,
        n_records=design.n_records,
    )
    error = relative_error(
        design.n_features,
        kmeans_unknowns(k, dim),
        design.noise_std**2,
        design.n_records,
        largest,
    )
    return float(error) / alone.error


def capacity(design: Design) -> str:
    """In words, one line."""
    dim, size = design.dim, design.n_features
    full = carried_gaussians(dim, size, "full")
    line = (
        f"carries up to {carried_clusters(dim, size)} clusters, "
        f"{carried_gaussians(dim, size, 'diag')} diagonal or {full} full Gaussians"
    )
    if design.task == "kmeans":
        return line
    return (
        f"{line}; k-means from it has {kmeans_cost(design):.2g} times the excess error "
        "of a sketch for k-means alone"
    )
