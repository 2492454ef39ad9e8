"""Classifiers and regressions from sketches of real tables: a share of their rows is for tests.

    python -m benchmarks supervised tables --data CHECKOUT     all tables and budgets, 20 draws
    python -m benchmarks supervised tables --tables adult --draws 5
    python -m benchmarks supervised tables --peer .venv-peers/bin/python   diffprivlib as well

CHECKOUT is a copy of vincentarelbundock/Rdatasets on GitHub; without it two tables are left out.
Medians over draws of the noise. For yes and no: the area under the ROC curve, accuracy at
probability 1/2, and log loss, which is to be below that of the share of yes among all. For numbers:
R^2 on the scale of the regression. diffprivlib's logistic regression gets the encoded columns and
their public norm; it would take the norm from the records otherwise.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import privsketch as ps
from benchmarks.common import markdown, parser_of
from benchmarks.peers.protocol import Peer, PeerError, PeerRefusal, Request
from benchmarks.supervised.data import STUDIES, Study
from benchmarks.supervised.results import publish, write_rows
from privsketch._base.types import Bits, Floats

BUDGETS = ((1.0, 1e-6), (0.1, 1e-6), (1.0, 0.0), (0.1, 0.0))
OURS, PLAIN, PEER = "privsketch", "not private", "diffprivlib"


@dataclass(frozen=True, eq=False)
class Problem:
    """A study as arrays: encoded predictors, and targets on the scale of the regression."""

    study: Study
    x: Floats
    y: Floats
    new: Floats
    truth: Floats

    @classmethod
    def of(cls, study: Study) -> Problem:
        """Encode the rows; yes is 1, and no is 0."""
        schema, name = study.schema, study.target
        others = ps.Schema([column for column in schema.columns if column.name != name])
        target = ps.Schema([column for column in schema.columns if column.name == name])
        x, new = (ps.encode(rows, others) for rows in (study.train, study.test))
        y, truth = (ps.encode(rows, target)[:, 0] for rows in (study.train, study.test))
        if study.is_class:
            y, truth = (np.where(values > 0, 1.0, 0.0) for values in (y, truth))
        return cls(study, x, y, new, truth)

    @property
    def prior(self) -> Floats:
        """Scores of a prediction that is the same for all."""
        return self.scores(np.full(len(self.truth), self.y.mean()))

    def scores(self, predicted: Floats) -> Floats:
        """Return area, accuracy and log loss of probabilities, or R^2 of predictions."""
        if not self.study.is_class:
            left = np.square(self.truth - predicted).mean()
            return np.array([1 - left / self.truth.var()])
        p = np.clip(predicted, 1e-12, 1 - 1e-12)
        loss = -np.where(self.truth > 0, np.log(p), np.log1p(-p)).mean()
        accuracy = np.mean((p > 0.5) == (self.truth > 0))
        return np.array([area(predicted, self.truth > 0), accuracy, loss])


def area(scores: Floats, is_yes: Bits) -> float:
    """Return the area under the ROC curve: how often yes has the higher score, ties by halves."""
    from scipy.stats import rankdata

    n_yes = int(np.sum(is_yes))
    ranks = float(rankdata(scores)[is_yes].sum())
    return (ranks - n_yes * (n_yes + 1) / 2) / (n_yes * (len(scores) - n_yes))


@dataclass(frozen=True, eq=False)
class Result:
    """Scores of the draws of one method on a table: (n_draws, n_scores), and seconds of each."""

    table: str
    method: str
    epsilon: float
    delta: float
    scores: Floats
    sketching: float = math.nan
    learning: float = math.nan


def ours(problem: Problem, epsilon: float, delta: float, draws: int) -> tuple[Floats, Floats]:
    """Return scores of the draws, and the seconds of sketching and learning."""
    study = problem.study
    design = ps.Design.plan(
        task="classification" if study.is_class else "regression",
        target=study.target,
        domain=study.schema,
        budget=ps.Budget(epsilon=epsilon, delta=delta),
        n_records=len(study.train),
        random_state=0,
    )
    scores, seconds = [], []
    for _ in range(draws):
        start = time.perf_counter()
        sketch = ps.sketch(study.train, design)
        sketched = time.perf_counter()
        if study.is_class:
            classifier = ps.learn_classifier(sketch)
            took = time.perf_counter()
            predicted = classifier.predict_proba(problem.new)[:, 1]
            scores.append(problem.scores(predicted).tolist())
        else:
            regression = ps.learn_regression(sketch)
            took = time.perf_counter()
            scores.append([regression.score(problem.new, study.test[study.target])])
        seconds.append([sketched - start, took - sketched])
    return np.array(scores), np.array(seconds)


def plain(problem: Problem) -> Floats:
    """Return scores of the regression without noise."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if problem.study.is_class:
        model = LogisticRegression(C=1e3, max_iter=5000).fit(problem.x, problem.y)
        return problem.scores(model.predict_proba(problem.new)[:, 1])
    return problem.scores(LinearRegression().fit(problem.x, problem.y).predict(problem.new))


def peers(problem: Problem, peer: Peer, epsilon: float, draws: int) -> tuple[Floats, float]:
    """Return scores of a peer's logistic regressions, and the seconds of one."""
    others = [c for c in problem.study.schema.columns if c.name != problem.study.target]
    ball = ps.Schema(others).ball
    scores, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "records.npy")
        np.save(path, np.column_stack([problem.x - ball.center_vector, problem.y]))
        domain = {"center": [0.0] * problem.x.shape[1], "radius": ball.radius}
        for seed in range(draws):
            request = Request("logistic", path, 2, epsilon, 0.0, domain, seed)
            answer = peer.ask(request)
            *slopes, intercept = answer.centers[0].tolist()
            odds = (problem.new - ball.center_vector) @ np.array(slopes) + intercept
            scores.append(problem.scores(1 / (1 + np.exp(-np.clip(odds, -500, 500)))).tolist())
            seconds.append(answer.seconds)
    return np.array(scores), float(np.median(seconds))


def results_of(name: str, study: Study, draws: int, peer: Peer | None) -> Iterator[Result]:
    """Yield the results of one table, one by one."""
    problem = Problem.of(study)
    yield Result(name, "prior", math.inf, 0.0, problem.prior[np.newaxis])
    yield Result(name, PLAIN, math.inf, 0.0, plain(problem)[np.newaxis])
    for epsilon, delta in BUDGETS:
        scores, seconds = ours(problem, epsilon, delta, draws)
        yield Result(name, OURS, epsilon, delta, scores, *np.median(seconds, axis=0).tolist())
        if peer is None or delta > 0 or not study.is_class:
            continue
        try:
            scores, learning = peers(problem, peer, epsilon, draws)
        except (PeerError, PeerRefusal) as error:
            print(f"{name}: {PEER}: {error}")
            continue
        yield Result(name, PEER, epsilon, delta, scores, learning=learning)


HEADINGS = ("table", "method", "epsilon", "delta", "AUROC or R^2", "accuracy", "log loss", "s")


def line_of(result: Result) -> list[str]:
    """Return a line of the table: medians, and the least and largest of the first score."""
    middle = np.median(result.scores, axis=0)
    first = f"{middle[0]:.4f}"
    if len(result.scores) > 1:
        first += f" [{result.scores[:, 0].min():.3f}, {result.scores[:, 0].max():.3f}]"
    rest = [f"{value:.4f}" for value in middle[1:]] or ["", ""]
    budget = (
        ["", ""] if math.isinf(result.epsilon) else [f"{result.epsilon:g}", f"{result.delta:g}"]
    )
    seconds = [f"{value:.3f}" for value in (result.sketching, result.learning)]
    took = " + ".join(text for text in seconds if text != "nan")
    return [result.table, result.method, *budget, first, *rest, took]


def rows_of(results: Sequence[Result]) -> list[list[str]]:
    """Return the rows of the CSV file, one for every draw."""
    rows = [["table", "method", "epsilon", "delta", "score", "accuracy", "log_loss"]]
    for result in results:
        budget = [f"{result.epsilon:g}", f"{result.delta:g}"]
        for scores in result.scores.tolist():
            shown = [f"{value:.5g}" for value in scores] + [""] * (3 - len(scores))
            rows.append([result.table, result.method, *budget, *shown])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the tables that are asked for, and print what comes out."""
    parser = parser_of(__doc__)
    parser.add_argument("--tables", nargs="*", choices=sorted(STUDIES), default=list(STUDIES))
    parser.add_argument("--data", type=Path, help="checkout of Rdatasets, for deaths and earnings")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--peer", help="interpreter of an environment with diffprivlib")
    parser.add_argument("--write", action="store_true", help="write results/supervised*")
    options = parser.parse_args(arguments)
    peer = None
    if options.peer:
        peer = Peer([options.peer, "-m", "benchmarks.peers.diffprivlib"], patience=300.0)
    results = []
    for name in options.tables:
        try:
            study = STUDIES[name](options.data)
        except FileNotFoundError as error:
            print(f"{name}: {error}")
            continue
        for result in results_of(name, study, options.draws, peer):
            results.append(result)
            print("; ".join(line_of(result)), flush=True)
    if peer is not None:
        peer.close()
    text = markdown(HEADINGS, map(line_of, results))
    print(text)
    if options.write:
        write_rows("tables", rows_of(results))
        publish("tables", text)


if __name__ == "__main__":
    main()
