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
from privsketch.facts.domain import Domain
from privsketch.features.radii import RadialLaw, Tail

# Of the domain's half-width: frequencies of this scale turn about once over the domain, which tells
# where the records are before anything else is known.
WIDEST = 0.5
# Widest over finest scale of the main band: at least, and per k^(1/d). Touching clusters in a
# quarter of the domain are 1 / (6 k^(1/d)) half-widths wide, twice the end of the band; much
# tighter ones are for the tail, which costs less than a band as wide.
MAIN_RANGE = 16.0
MAIN_RANGE_PER_CLUSTER = 6.0
# Right by the formula above if 8 % of studies in few columns have such clusters, and 3 % of others:
# in many columns the distance of clusters, and so the domain, says more about their width.
FEW_COLUMNS, TAIL_SHARE_OF_FEW, TAIL_SHARE = 3, 0.2, 0.125
# Most that a tail may cost clusters in the main band, as a factor of their error: 1.25 and 1.14 for
# these shares, and some for the unknowns, which fewer features have to fit. It takes about five
# features per unknown: with four, under pure noise, correlated clusters lost more than a quarter.
COST_OF_FEW, COST = 1.35, 1.17
TAIL_RANGES = (8.0, 4.0)  # tried in turn; what is closer, the main band sees as well
# Excess of clusters in the tail: half of what a forecast called good may have at most, because
# its range is twice what is expected.
VISIBLE = 0.075
# Widest over finest scale of all. Frequencies are 16-bit integers, and the lowest ones need some
# units too; the finest scale is then eight units of a quantised record.
LARGEST_RANGE = 2048.0


def main_band(domain: Domain, n_components: int) -> RadialLaw:
    """The scales where clusters are likely, whatever noise and size are."""
    dim = len(domain.half_widths)
    high = WIDEST * domain.spread
    fold = max(MAIN_RANGE, MAIN_RANGE_PER_CLUSTER * n_components ** (1.0 / dim))
    return RadialLaw((high / min(fold, LARGEST_RANGE), high))


def default_radii(
    domain: Domain,
    n_components: int,
    *,
    n_features: int,
    n_records: float,
    variance: float,
    is_smooth: bool = True,
) -> RadialLaw:
    """The radial law for clusters of unknown width.

    Parameters
    ----------
    n_features, n_records
        Size of the sketch, and public order of magnitude of the number of records.
    variance : float
        Of noise and sampling per real component of the sums, in squared records.
    is_smooth : bool
        False if records have labels: they are piles without a width then, which fine scales see
        one by one and no cluster of a few numbers explains, so that there is no tail.
    """
    dim = len(domain.half_widths)
    plain = main_band(domain, n_components)
    end, high = plain.scales
    few = dim <= FEW_COLUMNS
    share, cost = (TAIL_SHARE_OF_FEW, COST_OF_FEW) if few else (TAIL_SHARE, COST)

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
    for ratio in TAIL_RANGES if is_smooth else ():
        law = RadialLaw((end / ratio, high), Tail(share, end))
        if (
            high / law.scales[0] <= LARGEST_RANGE
            and error(law, end / math.sqrt(ratio)) <= VISIBLE  # in the middle of the tail
            and error(law, likely) <= cost * error(plain, likely)
        ):
            return law
    return plain
