"""The option --option: settings that only one method or decoder has, by the types it declares."""

from __future__ import annotations

from typing import Any

import click

OF_DESIGNS = ("n_features", "noise", "feature_map", "frequencies", "frequency_scale")
method_settings = click.option(
    "--option",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Setting of the method that --method names, such as n_rounds=5 of lloyd; several times "
    "for several. A wrong name lists those that there are.",
)
decoder_settings = click.option(
    "--option",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Setting of the decoder that --decoder names; several times for several. A wrong name "
    "lists those that there are.",
)


def stated_settings(
    texts: tuple[str, ...], method: str, loss: str, n_clusters: object
) -> dict[str, Any]:
    """Return the settings that --option states, as keyword parameters of the method."""
    from privsketch._base.settings import keywords, parsed_settings, settings_of
    from privsketch.clustering.choose import Method

    if not texts:
        return {}
    method = "sketch" if n_clusters == "auto" else method
    if method == "auto" or loss != "squares":
        raise click.UsageError("--option goes with --loss squares and with --method METHOD")
    is_sketch = method == "sketch"
    settings = settings_of(_of_sketches) if is_sketch else Method.find(method).settings
    what = f"--method {method}"
    return keywords(settings, parsed_settings(settings, texts, what), what)


def _of_sketches(
    *,
    noise: str | None = None,
    n_features: int | None = None,
    feature_map: str | None = None,
    frequencies: str | None = None,
    frequency_scale: float | None = None,
    decoder: str = "joint",
    n_init: int | None = None,
) -> None:
    """Declare the settings of sketches, by the names of `KMeansOptions`."""
