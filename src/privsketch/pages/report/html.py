"""The report of a model: its content, its fit and its cost, in one HTML file.

Everything in it is computed from released numbers and public facts, so the report may be published
with the model. The file loads nothing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, date, datetime
from importlib.util import find_spec
from typing import Any

from privsketch._base.errors import ParameterError
from privsketch._base.formats import INSECURE, write_file
from privsketch.facts.budget import number_text
from privsketch.facts.schema import Schema
from privsketch.models.classifier import ClassifierModel
from privsketch.models.clusters import ClusterModel
from privsketch.models.components import PCAModel
from privsketch.models.linear import LinearModel
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.models.regression import RegressionModel
from privsketch.models.summary import SummaryModel
from privsketch.pages.report.centers import center_content, center_facts
from privsketch.pages.report.clusters import cluster_content
from privsketch.pages.report.components import pca_content
from privsketch.pages.report.cost import (
    leaves,
    protected_thing,
    risks_of,
    several_records,
    steps_of,
)
from privsketch.pages.report.regression import classifier_content, regression_content
from privsketch.pages.report.rendering import Content, render
from privsketch.pages.report.summary import summary_content
from privsketch.sketching.sketch import Sketch

PAGE_VERSION = 2  # version of the content and layout of pages, in their footer
Model = (
    ClusterModel
    | GaussianMixtureModel
    | PCAModel
    | RegressionModel
    | ClassifierModel
    | SummaryModel
)


def report(
    model: Any, path: str | os.PathLike[str], *, sketch: Sketch | None = None
) -> str | os.PathLike[str]:
    """Write the report of a model to one HTML file. Charges nothing.

    The page shows the model, how well it fits and what it cost. It contains only released numbers
    and public facts, loads nothing and has no scripts.

    Parameters
    ----------
    model : ClusterModel, GaussianMixtureModel, PCAModel, RegressionModel or ClassifierModel
        Or a SummaryModel, or a fitted estimator.
    path : str or path
        File to write; an existing file is replaced.
    sketch : Sketch, optional
        The sketch that the model was learned from. With it the page also shows how well the model
        fits the released numbers, and what participants of a shared total risk. A fitted estimator
        has it.

    Returns
    -------
    str or path
        The path of the file.

    Examples
    --------
    >>> import numpy as np, privsketch as ps, tempfile, pathlib
    >>> records = np.random.default_rng(0).choice([-0.5, 0.5], size=(2000, 2))
    >>> fit = ps.PrivateKMeans(4, epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1, dim=2),
    ...                        random_state=0).fit(records)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = ps.report(fit, pathlib.Path(folder) / "report.html")
    ...     print(page.name, "What it cost" in page.read_text(encoding="utf-8"))
    report.html True
    """
    learned = getattr(model, "model_", model)
    is_of_rows = type(model).__module__.startswith("privsketch.projection.")
    if is_of_rows or hasattr(model, "projection_"):  # a page imports nothing that reads records
        raise ParameterError(
            "report: released rows have no report; `description_` of the estimator, or the file "
            "beside the rows, says what was released"
        )
    if not isinstance(learned, Model):
        raise ParameterError("model", model, "expected a model or a fitted estimator")
    save_report(learned, getattr(model, "sketch_", None) if sketch is None else sketch, path)
    return path


def save_report(
    model: Model,
    sketch: Sketch | None,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the report to a file."""
    write_file(path, report_page(model, sketch, title=title).encode("utf-8"))


def report_page(
    model: Model,
    sketch: Sketch | None = None,
    *,
    title: str | None = None,
    day: date | None = None,
) -> str:
    """Return the report as HTML text; `sketch` is that of the model, if it is at hand.

    Without it, the page of a model of a sketch does not show how well that fits. `day` is the date
    of the page, today by default.
    """
    with_plots = find_spec("matplotlib") is not None
    if isinstance(model, ClusterModel) and model.density is None:
        if sketch is not None:
            raise ParameterError("report: this model was not learned from a sketch")
        content = center_content(model, with_plots=with_plots)
        values = _center_values(model, content)
    else:
        if isinstance(model, GaussianMixtureModel) and model.residual is None:
            raise ParameterError(
                "report: expected a mixture of a sketch; this model has no residual of one"
            )
        if isinstance(model, PCAModel):
            content = pca_content(model, sketch, with_plots=with_plots)
        elif isinstance(model, RegressionModel):
            content = regression_content(model, sketch, with_plots=with_plots)
        elif isinstance(model, SummaryModel):
            content = summary_content(model, sketch)
        elif isinstance(model, ClassifierModel):
            content = classifier_content(model, sketch, with_plots=with_plots)
        else:
            content = cluster_content(model, sketch, with_plots=with_plots)
        values = _sketch_values(model, sketch, content)
    receipt, schema = model.receipt, _described_schema(model, sketch)
    missing = "" if schema is None else "; ".join(schema.missing_words())
    return render(
        content.template,
        title=_title(model, content) if title is None else title,
        concerns=(*receipt.cautions, *model.concerns),
        remark=content.remark,
        model=model,
        receipt=receipt,
        noun=protected_thing(receipt),
        insecure=not receipt.is_private,
        releases=leaves(receipt),
        schema=schema,
        unit_words=_unit_words(model, schema),
        missing=missing[:1].upper() + missing[1:],
        with_plots=with_plots,
        day=datetime.now(UTC).date() if day is None else day,
        page_version=PAGE_VERSION,
        **content.values,
        **values,
    )


def _described_schema(model: Model, sketch: Sketch | None) -> Schema | None:
    """Return what was stated about the table: of linear models, predictors and the target."""
    if not isinstance(model, LinearModel):
        return model.schema
    if sketch is not None:
        return sketch.design.schema
    if model.schema is None or model.target_schema is None:
        return None
    return replace(model.schema, columns=(*model.target_schema.columns, *model.schema.columns))


def _unit_words(model: Model, schema: Schema | None) -> str:
    """Return what is protected; a linear model does not know how many rows of a person count."""
    is_partial = isinstance(model, LinearModel) and schema is not None and schema.person is None
    return model.receipt.unit if schema is None or is_partial else schema.unit_words()


def _title(model: Model, content: Content) -> str:
    """Return the title of a page; what has no privacy claims none."""
    return f"{'Private' if model.receipt.is_private else INSECURE + ':'} {content.noun}"


def _sketch_values(model: Model, sketch: Sketch | None, content: Content) -> dict[str, Any]:
    """Return the page's values about the sketch that a model was learned from."""
    kind = "a differentially private sketch"
    if not model.receipt.is_private:
        kind = f"an {INSECURE} sketch"
    values: dict[str, Any] = {
        "origin": f"Learned from {kind}.",
        "cards": [*content.cards[:2], _budget_card(model), content.cards[2]],
        "statement": (
            "the model and the sketch",
            "Learning more from the same sketch costs nothing; another sketch of the same records "
            "adds to the cost.",
            f"{content.public_fact}; {several_records(model.receipt)}"
            "and everything stated as public in the design",
        ),
        "steps": None,
        "totals": [],
        "delta": 0.0,
        "facts": "The sketch was not at hand. A page that is made with it also shows the design, "
        "how\nwell the model fits the released numbers, and what participants of a shared total "
        "risk.",
        "design_id": "",
        "maker": f"design {model.design_fingerprint[:16]}",
    }
    if sketch is None:
        return values
    design, count = sketch.design, len(sketch.ids)
    if sketch.shared:
        sketches = "holders in the total, with shared noise"
    else:
        sketches = "sketch" if count == 1 else "sketches added up"
    return values | {
        "origin": f"Learned from {kind} of {len(sketch.values):,} integers.",
        "cards": [
            *content.cards[:2],
            (f"{count}", sketches),
            _budget_card(model),
            content.cards[2],
        ],
        "totals": risks_of(sketch),
        "delta": design.budget.delta,
        "facts": design.describe(),
        "design_id": design.fingerprint[:16],
    }


def _center_values(model: ClusterModel, content: Content) -> dict[str, Any]:
    """Return the values of the page of centers that were learned without a sketch."""
    how = "with differential privacy" if model.receipt.is_private else "without privacy"
    return {
        "origin": f"Learned {how} by the holder of all records.",
        "cards": [*content.cards[:2], _budget_card(model), content.cards[2]],
        "statement": (
            "the model",
            "Using the model costs nothing; another run on the same records adds to the cost.",
            f"{content.public_fact}; {several_records(model.receipt)}and what was stated as "
            "public: the bounds of the records, their columns and the number of clusters",
        ),
        "steps": steps_of(model.receipt),
        "step_unit": "rho, the cost of Gaussian noise"
        if model.receipt.composition == "concentrated"
        else "epsilon",
        "totals": [],
        "delta": 0.0,
        "facts": center_facts(model),
        "design_id": "",
        "maker": f"method {model.method}",
    }


def _budget_card(model: Model) -> tuple[str, str]:
    receipt = model.receipt
    return number_text(receipt.epsilon), f"epsilon, with delta = {number_text(receipt.delta)}"
