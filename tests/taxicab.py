"""Designs with taxicab moments, of any schema or box."""

import privsketch as ps
from privsketch.features import draw_frequencies


def taxicab_design(domain, budget=None, *, n_records=1000.0, **choices):
    """A design for regression without a planner."""
    budget = ps.Budget(1.0) if budget is None else budget
    schema = domain if isinstance(domain, ps.Schema) else None
    if schema is not None:
        domain, budget = schema.box, schema.charged(budget)
        choices = {"schema": schema, "columns": schema.coordinates, **choices}
    dim = len(domain.half_widths)
    frequencies = draw_frequencies(
        domain,
        law="none",
        n_features=(dim + 1) * (dim + 2) // 2,
        scales=(1.0, 1.0),
        seed=0,
        dithered=False,
    )
    settings = {
        "task": "regression",
        "n_components": 0,
        "domain": domain,
        "budget": budget,
        "feature_map": "taxicab",
        "frequencies": frequencies,
        "noise": "laplace",
        "count": "public" if budget.neighbours == "replace" else "omitted",
        "n_records": n_records,
    }
    return ps.Design(**{**settings, **choices})
