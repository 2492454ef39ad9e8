"""Curves of the constants in `privsketch.noise`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from benchmarks.constants import Curve
from privsketch.facts.budget import Budget
from privsketch.features.fixedpoint import RECORD_UNIT
from privsketch.features.maps import TableContribution, feature_map
from privsketch.features.masks import Contribution
from privsketch.features.moments import MomentContribution
from privsketch.noise.mechanism import NoiseKind, add_noise, gaussian_law
from privsketch.noise.samplers import discrete_gaussian
from privsketch.noise.sharing.total import plan_levels
from privsketch.noise.sums import CountMode, SumNoise, plan_sum_noise

KINDS: tuple[NoiseKind, ...] = ("gaussian", "laplace")
_N_REPEATS = 15
_LENGTHS = (1000, 4000, 16_000)


def _milliseconds(work: Callable[[], object]) -> float:
    """Return the median processor time of a call."""
    seconds = []
    for _ in range(_N_REPEATS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return 1000 * float(np.median(seconds))


def _vectors() -> dict[str, float]:
    laws = {n: gaussian_law(10**6, n, 1.0, 1e-6, "add-remove") for n in _LENGTHS}
    zeros = {n: np.zeros(n, dtype=np.int64) for n in _LENGTHS}
    return {
        f"ms for {n}": _milliseconds(partial(add_noise, zeros[n], laws[n], source=None))
        for n in _LENGTHS
    }


def _million() -> dict[str, float]:
    return {"ms for 10^6": _milliseconds(lambda: discrete_gaussian(10**6, 12_345.0))}


def _planned(
    contribution: Contribution, kind: NoiseKind, *, mean: bool = False, counted: bool = False
) -> SumNoise:
    budget = Budget(1.0, 1e-6 if kind == "gaussian" else 0.0)
    count: CountMode = "released" if counted else "omitted"
    return plan_sum_noise(contribution, budget, kind=kind, count=count, n_records=1e4, mean=mean)


def _count() -> dict[str, float]:
    waves = TableContribution(feature_map("fourier").bounds, 400, dim=10)
    with_count, without = (_planned(waves, "gaussian", counted=c) for c in (True, False))
    return {
        "noise of sums, relative": with_count.sums_law.scale / without.sums_law.scale,
        "noise of the count, records": math.sqrt(with_count.count_variance),
    }


def _mean() -> dict[str, float]:
    facts = {}
    for kind in KINDS:
        noise, plain = (_planned(MomentContribution(10), kind, mean=m) for m in (True, False))
        facts[f"{kind}: noise of sums, relative"] = noise.sums_law.scale / plain.sums_law.scale
        deviation = math.sqrt(noise.sums_law.variance) / noise.mean_weight / RECORD_UNIT
        facts[f"{kind}: noise of the mean's sum, half-widths"] = deviation
    return facts


def _moments() -> dict[str, float]:
    moments = MomentContribution(10)
    noise, plain = (_planned(moments, "laplace", counted=c) for c in (True, False))
    return {
        "noise of sums, relative": noise.sums_law.scale / plain.sums_law.scale,
        "noise of the count, records": math.sqrt(noise.count_variance),
    }


def _levels() -> dict[str, float]:
    levels = plan_levels(1e6, 200, 100)
    return {
        "levels": len(levels),
        "largest surplus of variance": max((high - 1) / low for high, low in pairwise(levels)),
    }


CURVES = (
    Curve(
        "privsketch.noise.mechanism.MIN_BULK_VALUES",
        (1, 1024, 4096, 16_384),
        _vectors,
        "Median time to add Gaussian noise to a vector. Bulk sampling, for vectors that are at "
        "least so long, is faster at all of these lengths; short vectors stay with OpenDP's "
        "sampler, which is proven, as long as that costs tens of milliseconds.",
    ),
    Curve(
        "privsketch.noise.samplers.CHUNK",
        (2**11, 2**13, 2**15, 2**17, 2**19),
        _million,
        "Median time to draw a million numbers of Gaussian noise.",
    ),
    Curve(
        "privsketch.noise.sums.COUNT_SHARE_OF_SENSITIVITY",
        (0.02, 0.05, 0.1, 0.2, 0.5),
        _count,
        "What the count costs the sums of 400 Fourier features at epsilon = 1, delta = 1e-6, and "
        "how exact it is.",
    ),
    Curve(
        "privsketch.noise.sums.MEAN_SHARE_OF_SENSITIVITY",
        (0.05, 0.1, 0.25, 0.5, 1.0),
        _mean,
        "What the mean costs second moments of 10 columns at epsilon = 1 (delta = 1e-6 for "
        "Gaussian noise), and how exact it is: noise of the sum of a coordinate over all records.",
    ),
    Curve(
        "privsketch.noise.sums.COUNT_SHARE_OF_MOMENTS",
        (0.005, 0.01, 0.02, 0.05, 0.1),
        _moments,
        "What the count costs second moments of 10 columns at epsilon = 1, and how exact it is.",
    ),
    Curve(
        "privsketch.noise.sharing.total.MAX_HOLDER_LEVELS",
        (4, 8, 16, 32),
        _levels,
        "Variance that a total of 100 to 200 honest holders has at most beyond what it needs. A "
        "ballot is as many sketches long as there are levels.",
    ),
)
