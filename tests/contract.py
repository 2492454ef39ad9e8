"""scikit-learn's contract, and models as functions of a release."""

import pickle

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks

from privsketch.testing import expected_failed_checks, replaced_noise


def contract(estimators):
    """Parametrise a test of (estimator, check)."""
    return parametrize_with_checks(estimators, expected_failed_checks=expected_failed_checks)


def require_function_of_the_release(fitted, *tables):
    """With a release that is the same for all tables, nothing fitted may tell them apart."""

    def same_for_all(values, law):
        return np.arange(len(values), dtype=np.int64) * 50_000, law.scale

    states = set()
    for table in tables:
        with replaced_noise(same_for_all):
            model = fitted(table)
        name = model.sketch_.sources[0]  # random, and different for every release
        identity = model.sketch_.ids[0]
        text = pickle.dumps(vars(model), protocol=0).decode("latin-1")
        text += model.sketch_.describe() + model.model_.describe() + repr(model.sketch_.receipt)
        states.add(text.replace(name, "NAME").replace(identity, "ID"))
    assert len(states) == 1


def three_blobs(width):
    """Three places in the plane, and 20,000 records around them."""
    rng = np.random.default_rng(0)
    places = np.array([[-3.0, -3.0], [3.0, 3.0], [-3.0, 3.0]])
    return places, places[rng.integers(3, size=20_000)] + width * rng.normal(size=(20_000, 2))
