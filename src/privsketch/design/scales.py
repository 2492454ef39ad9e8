"""Which scales the frequencies of a design have, from public facts alone.

Nobody is told how wide clusters are. A law of frequencies serves widths in proportion to the share
of features near them (features/radii.py), so a wide range costs everybody a little, and a width
outside of the range costs the squared ratio to its end. The law of least regret has

1. a main band where clusters are likely, from the widest scale down to where k clusters that fill
   the domain can be told apart, whose distances shrink like k^(-1/d);
2. a tail: a share q of the features on finer scales, for clusters far tighter than the domain
   suggests. With a chance p of such clusters, F and R the ranges of band and tail, the expected
   error (1 - p) ln F / (1 - q) + p ln R / q is least at
   q / (1 - q) = sqrt(p ln R / ((1 - p) ln F)), whatever the noise is;
3. a finest scale that follows from what the noise lets one see: the tail ends where the forecast
   for clusters in it would no longer be good. There is none where it could not be good at all, as
   with strong noise, or where the main band cannot spare the features.
"""

from __future__ import annotations

import math

from privsketch.design.size import center_error, kmeans_unknowns
from privsketch.domain import Domain
from privsketch.features.radii import RadialLaw, Tail

# Of the domain's half-width. Records that use half of it spread about that far, and no cluster is
# wider than all records together.
WIDEST = 0.4
# Widest over finest scale of the main band: at least, and per k^(1/d). Touching clusters in a
# quarter of the domain are 1 / (6 k^(1/d)) half-widths wide, a third of the range above its end;
# with 5, as before, clusters of a third of that width had ten times the error in the plane.
MAIN_RANGE = 16.0
MAIN_RANGE_PER_CLUSTER = 8.0
# Right by the formula above if three studies in a hundred have such clusters.
TAIL_SHARE = 0.15
COST = 1.25  # most that the tail may cost clusters in the main band, as a factor of their error
TAIL_RANGES = (16.0, 8.0, 4.0)  # tried in turn; what is closer, the main band sees as well
# Excess of clusters in the tail: half of what a forecast called good may have at most, because
# its range is twice what is expected.
VISIBLE = 0.075
# Widest over finest scale of all: the finest is then three units of a quantised record.
LARGEST_RANGE = 4096.0


def default_radii(
    domain: Domain,
    n_components: int,
    *,
    n_features: int,
    n_records: float,
    variance: float,
) -> RadialLaw:
    """The radial law for clusters of unknown width.

    Parameters
    ----------
    n_features, n_records
        Size of the sketch, and public order of magnitude of the number of records.
    variance : float
        Of noise and sampling per real component of the sums, in squared records.
    """
    dim = len(domain.half_widths)
    high = WIDEST * domain.spread
    fold = max(MAIN_RANGE, MAIN_RANGE_PER_CLUSTER * n_components ** (1.0 / dim))
    end = high / min(fold, LARGEST_RANGE)
    plain = RadialLaw((end, high), "fixed")

    def error(law: RadialLaw, width: float) -> float:
        return center_error(
            n_components=n_components,
            dim=dim,
            n_records=n_records,
            n_features=n_features,
            variance=variance,
            n_unknowns=kmeans_unknowns(n_components, dim),
            band=law.band_share(width),
            squared_band=law.squared_band_share(width),
        )

    likely = math.sqrt(end * high)
    for ratio in TAIL_RANGES:
        law = RadialLaw((end / ratio, high), "fixed", Tail(TAIL_SHARE, end))
        if (
            high / law.scales[0] <= LARGEST_RANGE
            and error(law, end / math.sqrt(ratio)) <= VISIBLE  # in the middle of the tail
            and error(law, likely) <= COST * error(plain, likely)
        ):
            return law
    return plain
