"""Whether a study can work, told before any record is read.

A rule of thumb read off a handful of runs on Gaussian mixtures with 4 features per
unknown, not a calibrated forecast: with noise below a quarter of an average cluster per
number, centres come out nearly as without noise; around 1 a fit describes the noise.
"""

from __future__ import annotations

from privsketch.design import Design

HOPELESS, ROUGH = 0.75, 0.25
MANY_COLUMNS = 150  # seen: 100 columns learn well in seconds, 300 fail in a minute


def noise_per_cluster(design: Design) -> float:
    """Noise of one holder's sketch per number, relative to a cluster of average size."""
    return design.noise_std * design.n_components / design.n_records


def forecast(design: Design) -> str:
    """The verdict in one line."""
    ratio = noise_per_cluster(design)
    verdict = "hopeless" if ratio > HOPELESS else "rough" if ratio > ROUGH else "good"
    return f"{verdict}: noise is {ratio:.0%} of a cluster of average size"


def cautions(design: Design) -> list[str]:
    """What people who plan this study should think about once more."""
    found = []
    if noise_per_cluster(design) > HOPELESS:
        found.append(
            "with so few records for this budget a fit would describe the noise; more "
            "records, a larger epsilon, delta > 0 or fewer clusters help"
        )
    if design.budget.delta * design.n_records >= 0.1:
        found.append("delta should be far below 1 / number of records")
    if design.dim > MANY_COLUMNS:
        found.append(
            f"with more than {MANY_COLUMNS} columns learning is slow and often gets stuck; "
            "project the records first, by a public random matrix for instance"
        )
    widths = design.domain.half_widths
    if widths.max() > 10 * widths.min():
        found.append(
            "columns differ in width more than tenfold, and the wide ones decide what is "
            "near; scale records by their bounds (Box.to_unit) if all should count alike"
        )
    return found
