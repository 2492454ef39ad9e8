"""A table as people have them: visits of patients, in no order, several of each, values missing.

Five groups of patients; numbers on six scales from 1e-2 to 1e6, a category, a date; 1 to 256 rows
a patient; 6 to 15 % of the values of four columns are missing.
"""

import numpy as np
import pandas as pd

import privsketch as ps

N_GROUPS = 5
COLUMNS = [
    ps.Number("age", 18, 100, unit="years"),
    ps.Number("income", 0, 500_000, scale="log", unit="EUR"),
    ps.Number("bmi", 10, 60, unit="kg/m2"),
    ps.Number("glucose", 2, 30, unit="mmol/l"),
    ps.Number("troponin", 0.001, 10, scale="log", unit="ng/ml"),
    ps.Number("platelets", 0, 1_000_000, unit="1/ul"),
    ps.Category("region", ["north", "south", "east", "west"]),
    ps.Date("admitted", "2020-01-01", "2025-12-31"),
]
SCHEMA = ps.Schema(COLUMNS, missing="drop", person="patient_id")


def visits(n_persons=15_600, seed=0):
    """About twelve rows a patient."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, N_GROUPS, n_persons)
    rows = np.minimum(1 + np.floor(rng.pareto(1.15, n_persons) * 3.2), 256).astype(int)
    rows[0] = 256
    patient = np.repeat(rng.permutation(n_persons), rows)
    g, n = np.repeat(group, rows), int(rows.sum())
    frame = pd.DataFrame(
        {
            "patient_id": patient,
            "age": np.array([28, 45, 62, 74, 83])[g] + rng.normal(0, 5, n),
            "income": np.exp(np.log([18e3, 72e3, 40e3, 25e3, 120e3])[g] + rng.normal(0, 0.35, n)),
            "bmi": np.array([22, 27, 36, 25, 31])[g] + rng.normal(0, 2.5, n),
            "glucose": np.array([5, 6, 13, 8, 5.5])[g] + rng.normal(0, 1, n),
            "troponin": np.exp(np.log([0.01, 0.02, 0.05, 0.6, 2])[g] + rng.normal(0, 0.5, n)),
            "platelets": np.array([3e5, 2.5e5, 4e5, 2e5, 1.5e5])[g] + rng.normal(0, 4e4, n),
            "region": np.where(
                rng.random(n) < 0.85,
                np.array(["north", "south", "east", "west", "abroad"])[g],
                np.array(["north", "south", "east", "west"])[rng.integers(0, 4, n)],
            ),
            "admitted": np.datetime64("2020-01-01") + rng.integers(0, 2191, n).astype("m8[D]"),
        }
    )
    for name, rate in {"income": 0.15, "bmi": 0.06, "glucose": 0.1, "region": 0.08}.items():
        frame[name] = frame[name].mask(rng.random(n) < rate)
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)
