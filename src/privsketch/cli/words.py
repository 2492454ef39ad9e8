"""Messages about parameters in the words of the shell."""

from __future__ import annotations

import re

_OPTIONS = (
    "task",
    "noise",
    "count",
    "mean",
    "masks",
    "neighbours",
    "missing",
    "engine",
    "decoder",
    "method",
    "frequencies",
    "feature_map",
    "covariance_type",
    "protect",
    "bound_norm",
    "calibration",
)


def as_options(message: str) -> str:
    """A message about parameters in the words of the shell."""
    words = {
        "same_records=True": "--same-records",
        "columns=[...]": "--columns a,b,c",
        "header=False": "--no-header",
        "header=True": "--header",
        "give dim=": "give --dim",
        "needs frequency_scale=": "needs --scale",
        "frequency_scale=": "--scale ",
        "n_workers=": "--workers ",
        "n_features=": "--features ",
        "n_records=": "--records ",
        "scheduler=": "--scheduler ",
        "carry=[...]": "--carry a,b,c",
        "with bound=,": "with --bound,",
        "with random_state:": "with --seed:",
        "leave random_state out": "leave --seed out",
    }
    for python, shell in words.items():
        message = message.replace(python, shell)
    return re.sub(
        r"\b(" + "|".join(_OPTIONS) + r")='([^']*)'",
        lambda found: f"--{found[1].replace('_', '-')} {found[2]}",
        message,
    )
