"""Designs, sketches, models and receipts as facts of an answer.

All facts are public: they are part of a released file, or follow from one.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from privsketch.facts.budget import INFINITE, Budget
from privsketch.facts.receipt import Receipt

if TYPE_CHECKING:
    from privsketch._base.types import Floats
    from privsketch.design.recipe import Design
    from privsketch.models.base import Model
    from privsketch.models.classifier import ClassifierModel
    from privsketch.models.regression import RegressionModel
    from privsketch.signing.keys import PublicKey
    from privsketch.sketching.sketch import Sketch


def cost_facts(spent: Budget | Receipt) -> dict[str, Any]:
    """Return the total cost in four fields."""
    unit = spent.unit if isinstance(spent, Receipt) else spent.unit.text
    return {
        "epsilon": spent.epsilon if spent.epsilon < math.inf else INFINITE,
        "delta": spent.delta,
        "neighbours": spent.neighbours,
        "unit": unit,
    }


def receipt_facts(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt with its source, its cost and its cautions."""
    return {
        "source": receipt.source,
        "cost": cost_facts(receipt),
        "receipt": receipt.to_json(),
        "cautions": receipt.cautions,
    }


def design_facts(design: Design) -> dict[str, Any]:
    """Return a design as in its file, with its forecast, cost and cautions."""
    from privsketch.design.cautions import cautions

    forecast = design.forecast()
    return {
        "fingerprint": design.fingerprint,
        "design": design.to_json(),
        "noise_std": design.noise_std,
        "forecast": {field.name: getattr(forecast, field.name) for field in fields(forecast)},
        "cost": cost_facts(design.budget),
        "cautions": list(cautions(design)),
    }


def sketch_facts(sketch: Sketch) -> dict[str, Any]:
    """Return the facts of a sketch; its numbers are in its file."""
    return {
        "fingerprint": sketch.design.fingerprint,
        "ids": list(sketch.ids),
        "sources": list(sketch.sources),
        "weights": list(sketch.weights),
        "verdict": None if sketch.verdict is None else sketch.verdict.to_json(),
        "n_values": len(sketch.values),
        "n_records": sketch.n_records,
        "noise_std": sketch.noise_variance**0.5,
        **receipt_facts(sketch.receipt),
    }


def model_facts(model: Model) -> dict[str, Any]:
    """Return a model as in its file, and its results in the units of the table."""
    return {
        "model": json.loads(model.to_bytes()),
        "results": _results(model),
        "concerns": list(model.concerns),
        **receipt_facts(model.receipt),
    }


def _results(model: Model) -> list[dict[str, Any]]:
    """Return one object for each cluster, Gaussian, component, coefficient, mean or share."""
    from privsketch.models.classifier import ClassifierModel
    from privsketch.models.clusters import ClusterModel
    from privsketch.models.components import PCAModel
    from privsketch.models.mixture import GaussianMixtureModel
    from privsketch.models.regression import RegressionModel
    from privsketch.models.summary import SummaryModel

    if isinstance(model, SummaryModel):
        return model.results()
    if isinstance(model, RegressionModel | ClassifierModel):
        return _coefficients(model)
    if isinstance(model, PCAModel):
        names, steps = model.loadings()
        shares = model.explained_variance_ratio
        return [
            {"variance": variance, "share": share, "values": dict(zip(names, row, strict=True))}
            for variance, share, row in zip(model.explained_variance, shares, steps, strict=True)
        ]
    if isinstance(model, ClusterModel):
        weights, points, errors = model.weights, model.centers, model.standard_errors
    elif isinstance(model, GaussianMixtureModel):
        weights, points, errors = model.weights, model.means, model.standard_errors
    else:  # a kind of model that brings its own
        return []
    values = _in_units(model, points, None)
    spreads = [None] * len(values) if errors is None else _in_units(model, points, errors)
    return [
        {"weight": weight, "values": value, "standard_errors": spread}
        for weight, value, spread in zip(weights, values, spreads, strict=True)
    ]


def _coefficients(model: RegressionModel | ClassifierModel) -> list[dict[str, Any]]:
    """Return an object for each coefficient of each class; NaN where noise leaves no number."""
    import numpy as np

    from privsketch.models.regression import RegressionModel

    intervals = model.interval().reshape(-1, len(model.names), 2)
    stated = np.nan if model.estimate is None else model.estimate.reshape(-1, len(model.names))
    estimates = np.where(np.isnan(intervals[..., 0]), np.nan, stated)
    classes = (None,) if isinstance(model, RegressionModel) else model.part_names
    coefs = model.coef.reshape(-1, len(model.names))
    return [
        {
            **({} if label is None else {"label": label}),
            "name": name,
            "estimate": estimates[part, place],
            "low": intervals[part, place, 0],
            "high": intervals[part, place, 1],
            "against": model.against[place] or None,
            "identified": model.identified[place],
            "coef": coefs[part, place],
        }
        for part, label in enumerate(classes)
        for place, name in enumerate(model.names)
    ]


def _in_units(model: Model, points: Floats, errors: Floats | None) -> list[dict[str, Any]]:
    """Return points, or their errors, by field; dates are texts, and their errors days."""
    from privsketch.facts.columns import Date
    from privsketch.facts.units import as_dates, field_columns, field_errors, field_values

    schema = model.schema
    if schema is None:
        rows = points if errors is None else errors
        return [dict(zip(model.column_names, row, strict=True)) for row in rows]
    values = (
        field_values(schema, points) if errors is None else field_errors(schema, points, errors)
    )
    by_field: list[dict[str, Any]] = [{} for _ in values]
    for column, indices in field_columns(schema):
        for name, numbers in zip(column.fields, values[:, indices].T, strict=True):
            is_date = isinstance(column, Date) and errors is None
            items = as_dates(numbers).astype(str) if is_date else numbers
            for row, value in zip(by_field, items, strict=True):
                row[name] = value
    return by_field


def file_facts(kind: str, content: Any) -> dict[str, Any]:
    """Return the content of a file, by its kind."""
    from privsketch.design.recipe import Design
    from privsketch.facts.schema import Schema
    from privsketch.models.base import Model
    from privsketch.projection.description import ReleaseDescription
    from privsketch.signing.keys import PublicKey
    from privsketch.sketching.sketch import Sketch

    facts: dict[str, Any]
    if isinstance(content, Sketch):
        facts = {**design_facts(content.design), **sketch_facts(content)}
    elif isinstance(content, Design):
        facts = design_facts(content)
    elif isinstance(content, Model):
        facts = model_facts(content)
    elif isinstance(content, ReleaseDescription):
        facts = {"description": content.to_json(), **receipt_facts(content.receipt)}
    elif isinstance(content, Schema):
        facts = {"schema": content.to_json()}
    elif isinstance(content, PublicKey):
        facts = dict(key_facts(content))
    else:  # of another distribution
        facts = content.facts()
    return {"kind": kind, **facts}


def key_facts(key: PublicKey) -> dict[str, str]:
    """Return the name and the fingerprint of a public key."""
    return {"name": key.name, "fingerprint": key.fingerprint}
