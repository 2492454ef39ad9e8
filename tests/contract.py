"""scikit-learn's contract, and the checks of it that privacy forbids."""

from sklearn.utils.estimator_checks import parametrize_with_checks

FORBIDDEN = {
    "check_clustering": "asks for labels_, an exact statement about every record",
    "check_fit_idempotent": "two fits draw fresh noise; on 20 records it decides the labels",
    "check_estimators_empty_data_messages": (
        "an empty table is a valid input under add-remove: an error would reveal it"
    ),
}


def contract(estimators, **other_words):
    """Parametrises a test of (estimator, check); `other_words` are reasons of one estimator."""
    return parametrize_with_checks(
        estimators, expected_failed_checks=lambda estimator: {**FORBIDDEN, **other_words}
    )
