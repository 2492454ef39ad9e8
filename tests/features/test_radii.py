"""What a radial law tells about clusters: closed forms against integrals and drawn lengths."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad

from privsketch.features import RadialLaw, Tail

LAWS = {
    "one scale": RadialLaw((0.7, 0.7)),
    "one band": RadialLaw((0.25, 4.0)),
    "with a tail": RadialLaw((0.004, 4.0), Tail(0.15, 0.25)),
}
SHARES = {
    "band_share": lambda x: x * np.exp(-x),
    "squared_band_share": lambda x: (x * np.exp(-x)) ** 2,
    "energy_share": lambda x: np.exp(-x),
}


def at_one_scale(of_x, width, scale):
    """Mean of a function of x = |w|^2 width^2 over the lengths at one scale."""
    mean = 2 * (width / scale) ** 2  # of the exponential law of x
    end = min(60.0, 60 * mean)  # beyond, either factor is nothing
    return quad(lambda x: of_x(x) * np.exp(-x / mean) / mean, 0, end, limit=200)[0]


def integral(law, of_x, width):
    total = 0.0
    for share, low, high in law.bands:
        if low == high:
            total += share * at_one_scale(of_x, width, low)
            continue
        logs = np.log(low), np.log(high)
        over = quad(lambda t: at_one_scale(of_x, width, np.exp(t)), *logs, limit=200)[0]
        total += share * over / (logs[1] - logs[0])
    return total


@pytest.mark.parametrize("width", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", LAWS)
def test_shares_are_integrals(name, share, width):
    law = LAWS[name]
    wanted = integral(law, SHARES[share], width)
    assert getattr(law, share)(width) == pytest.approx(wanted, rel=1e-6, abs=1e-12)
    if name == "with a tail":  # without it, the law is another one
        other = dataclasses.replace(law, scales=(0.25, 4.0), tail=None)
        assert getattr(other, share)(width) != pytest.approx(wanted, rel=1e-2)


@pytest.mark.parametrize("name", LAWS)
def test_lengths_have_the_law(name):
    law, rng = LAWS[name], np.random.default_rng(3)
    radius, scale = law.drawn(rng.uniform(size=100_000), rng.uniform(size=100_000))
    for share, of_x in SHARES.items():
        drawn = of_x((radius / scale * 0.1) ** 2)
        # Five standard errors, one false alarm in 1.7 million; a constant has rounding errors.
        tolerance = 5 * drawn.std() / np.sqrt(len(drawn)) + 1e-12
        assert abs(drawn.mean() - getattr(law, share)(0.1)) < tolerance


@pytest.mark.parametrize("name", ["one band", "with a tail"])
def test_a_law_only_chooses_which_widths_it_serves(name):
    # One half per feature, added up over the logarithm of the width.
    def share(log_width):
        return LAWS[name].band_share(np.exp(log_width))

    assert quad(share, -12, 9, limit=400)[0] == pytest.approx(0.5, rel=1e-4)
