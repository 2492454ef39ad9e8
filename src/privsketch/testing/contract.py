"""The checks of scikit-learn's contract that privacy forbids."""

from __future__ import annotations

from typing import Any

from privsketch.estimators.projection import PrivateProjection
from privsketch.estimators.regression import PrivateLinearRegression, PrivateLogisticRegression

_LEARNERS = {
    "check_clustering": "asks for labels_, an exact statement about every record",
    "check_fit_idempotent": "two fits draw fresh noise, and on 20 records noise decides",
    "check_estimators_empty_data_messages": (
        "an empty table is a valid input under add-remove: an error would reveal it"
    ),
}
_NOISE = "compares two fits, and each has noise of its own"
_STATED = "classes are stated, and never read off y, which here has others"
_SUPERVISED = {
    **{name: reason for name, reason in _LEARNERS.items() if name != "check_clustering"},
    "check_classifier_data_not_an_array": _NOISE,
    "check_regressor_data_not_an_array": _NOISE,
    "check_regressors_int": _NOISE,
    "check_supervised_y_2d": _NOISE,
    "check_classifiers_one_label": "noise decides over ten records",
    "check_classifiers_classes": _STATED,
    "check_classifiers_train": _STATED,
    "check_decision_proba_consistency": _STATED,
    "check_classifiers_regression_target": "an error would depend on what y says",
}
_PROJECTIONS = {
    "check_dict_unchanged": "transform charges: receipts_ grows with every release",
    "check_estimators_pickle": "compares two releases, and each has noise of its own",
    "check_fit_idempotent": "compares two releases, and each has noise of its own",
}


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """Return the names of scikit-learn's checks that an estimator must fail, with reasons.

    Examples
    --------
    >>> import privsketch as ps
    >>> from sklearn.utils.estimator_checks import check_estimator
    >>> estimator = ps.PrivatePCA(epsilon=1.0, delta=1e-6, domain=ps.Ball(radius=30.0))
    >>> results = check_estimator(
    ...     estimator, expected_failed_checks=expected_failed_checks(estimator), on_skip=None
    ... )
    >>> sorted({result["status"] for result in results} - {"skipped"})
    ['passed', 'xfail']
    """
    if isinstance(estimator, PrivateLinearRegression | PrivateLogisticRegression):
        return _SUPERVISED
    return _PROJECTIONS if isinstance(estimator, PrivateProjection) else _LEARNERS
