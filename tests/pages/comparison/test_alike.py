"""Sources that share noise or records raise an alarm, others do so with a chance below 1e-6.

Noise is real: sketches with the replaced noise of tests are not looked at.
"""

from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from benchmarks.compare_sites import clinic_study, shared_study


def copied(sketch, name):
    """Return a sketch of other records under the noise of the first, as a copy is changed."""
    values = sketch.values + np.random.default_rng(0).integers(-50, 51, size=len(sketch.values))
    receipt = replace(sketch.receipt, source=name)
    return replace(sketch, values=values, ids=(name,), sources=(name,), receipt=receipt)


def test_a_changed_copy_is_too_alike():
    sites = clinic_study(0)
    found = ps.compare([*sites, copied(sites[2], "copy")])
    assert [alarm.source for alarm in found.alarms] == ["site-2", "copy"]
    assert "more alike to copy than chance allows" in found.alarms[0].words()
    assert "they share records or noise" in found.describe()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_sources_of_the_same_records_are_too_alike(share):
    """Noise hides shared records unless sites are large for their budget: that is its task."""
    found = ps.compare(shared_study(0, share, n=20_000, epsilon=3.0))
    assert [alarm.source for alarm in found.alarms] == (["a", "b"] if share else [])


def test_noise_that_hides_shared_records_is_told_once():
    """A site that was handed in again passes as like the others, so nobody may rely on that."""
    found = ps.compare(shared_study(0, 1.0, n=4000, epsilon=1.0))
    assert not found.alarms
    assert sum("noise hides whether sources share records" in note for note in found.notes) == 1
    assert found.describe().splitlines()[-1] == found.notes[-1]


@pytest.mark.slow
def test_nothing_is_hidden_where_a_copy_would_be_found():
    assert ps.compare(shared_study(0, 0.0, n=20_000, epsilon=3.0)).notes == ()


def test_sites_with_as_many_cases_as_controls_are_not_too_alike():
    """Fixed shares of tight clusters are alike by design; the records inside are not the same."""
    rng = np.random.default_rng(0)
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=2), n_records=20_000, random_state=0,
        budget=ps.Budget(epsilon=3.0, delta=1e-6),
    )  # fmt: skip
    centers = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 10_000, axis=0)
    sites = [
        ps.sketch(centers + 0.05 * rng.normal(size=centers.shape), design, source=name)
        for name in "abc"
    ]
    assert not ps.compare(sites).alarms


def test_second_moments_of_a_changed_copy_are_too_alike():
    design = ps.Design.plan(
        task="pca", n_components=1, domain=ps.Ball(dim=20, radius=5.0), n_records=1000,
        budget=ps.Budget(epsilon=0.5, delta=1e-6), random_state=1, feature_map="second-moments",
    )  # fmt: skip
    rng = np.random.default_rng(1)
    sites = [ps.sketch(rng.normal(size=(1000, 20)), design, source=name) for name in "abc"]
    assert not ps.compare(sites).alarms
    found = ps.compare([*sites, copied(sites[0], "copy")])
    assert [alarm.source for alarm in found.alarms] == ["a", "copy"]
