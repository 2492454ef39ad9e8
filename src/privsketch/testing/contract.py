"""The checks of scikit-learn's contract that privacy forbids."""

from __future__ import annotations

from typing import Any

from privsketch.estimators.projection import PrivateProjection

_LEARNERS = {
    "check_clustering": "asks for labels_, an exact statement about every record",
    "check_fit_idempotent": "two fits draw fresh noise, and on 20 records noise decides",
    "check_estimators_empty_data_messages": (
        "an empty table is a valid input under add-remove: an error would reveal it"
    ),
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
    return _PROJECTIONS if isinstance(estimator, PrivateProjection) else _LEARNERS
