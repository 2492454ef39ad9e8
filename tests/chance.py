"""Noise that is the same in every run, and bounds for noise that is not (tests/README.md)."""

import math
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from privsketch.testing import Tape, exact_answer, replaced_noise
from tests import seams

FALSE_ALARM = 1e-6  # of a test, in whatever many comparisons


def deviations(n_comparisons=1, *, kind="gaussian", false_alarm=FALSE_ALARM):
    """How many standard deviations of its noise a number may be away, one of so many.

    All of them together are farther away with a chance of `false_alarm`. Means of many numbers
    are Gaussian if these are not far from it.

    Examples
    --------
    >>> round(deviations(), 2), round(deviations(100), 2), round(deviations(kind="laplace"), 2)
    (4.89, 5.73, 9.77)
    """
    each = false_alarm / n_comparisons
    laws = {"gaussian": float(norm.isf(each / 2)), "laplace": -math.log(each) / math.sqrt(2)}
    return laws[kind]


def exact_answers():
    """Answers without noise to whatever is asked inside a with block, as a tape records them.

    For methods that ask several times. A single sketch has `Design.without_noise`.
    """
    return replaced_noise(Tape(answer=exact_answer).record)


@contextmanager
def fixed_noise():
    """Noise, masks and matrices of the right law and size, from a fixed seed.

    For tests of what is made of noisy numbers; those of the noise itself draw it.
    """
    rng, others = np.random.default_rng(0), Tape()

    def draw(values, law):
        if law.kind == "gaussian":
            noise = law.scale * rng.normal(size=values.shape)
        elif law.kind == "laplace":
            noise = law.scale * rng.laplace(size=values.shape)
        elif law.kind == "cube":
            radius = law.scale * rng.gamma(law.n_components + 1)
            noise = radius * rng.uniform(-1, 1, size=values.shape)
        else:
            return others.record(values, law)
        return values + np.rint(noise).astype(np.int64), law.scale

    with pytest.MonkeyPatch.context() as patch, replaced_noise(draw):
        for name in ("aggregate.os", "matrix.os", "sums.os"):
            seams.set(patch, name, SimpleNamespace(urandom=rng.bytes))
        yield
