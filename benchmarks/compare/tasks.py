"""Principal components and Gaussian mixtures: our methods, baselines and peers side by side.

Losses are those of pca.py (share of the best variance that is missed) and mixtures.py (nats a
record below the better of the truth and scikit-learn). Baselines are noisy second moments and
noisy rounds of EM. One row a run, as in compare/runs.py; a peer that was too slow for a table once
is not asked about others of its kind.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks import mixtures, pca
from benchmarks.common import markdown
from benchmarks.compare.methods import PeerMethod, require_within
from benchmarks.compare.runs import Store, domain_as_json
from benchmarks.peers.protocol import PATIENCE, Peer, PeerError, PeerRefusal, Request
from privsketch.estimators.mixture import PrivateGaussianMixture
from privsketch.estimators.pca import PrivatePCA

FIELDS = (
    *("task", "data", "n", "d", "k", "epsilon", "delta", "method", "kind", "seed"),
    *("loss", "seconds", "note"),
)
KEY = ("task", "data", "epsilon", "delta", "method", "seed")
BUDGETS = [(epsilon, delta) for delta in (1e-6, 0.0) for epsilon in (0.1, 1.0)]
PCA_DATA = {
    "2 of 8 columns": pca.Setting(None, 0.0, dim=8, k=2),
    "3 of 20 columns": pca.Setting(None, 0.0, dim=20, k=3),
    "spectrum like 1/j, 20 columns": pca.Setting(None, 0.0, dim=20, k=3, power=1.0),
    "5 of 100 columns": pca.Setting(None, 0.0, dim=100, k=5),
}
PCA_KINDS = {"auto": "ours", "sketch": "ours", "covariance": "baseline"}
MIXTURE_DATA = {
    "diag k=5 d=5": mixtures.Setting("diag", 5, 5, 1.0),
    "full k=5 d=3": mixtures.Setting("full", 5, 3, 1.0),
}
Facts = dict[str, Any]
Told = tuple[Facts, str, str, float, float, str]  # facts, task, method, epsilon, delta, kind


def lost_variance(records: np.ndarray, components: np.ndarray) -> float:
    """Share of the variance along the best components that these do not hold."""
    second = np.asarray(records.T @ records, dtype=np.float64) / len(records)
    axes = np.linalg.qr(np.asarray(components, dtype=np.float64).T)[0]
    held = float(np.trace(axes.T @ second @ axes))
    return 1 - held / pca.best_variance(second, len(components))


def run_pca(
    store: Store, peers: Sequence[PeerMethod], repetitions: int, patience: float = PATIENCE
) -> None:
    """Every method on every table."""
    names = [*PCA_KINDS, *(_pca_name(p) for p in peers if not p.options)]
    for data, setting in PCA_DATA.items():
        for seed in range(repetitions):
            missing = list(_missing(store, "pca", data, names, seed))
            if not missing:
                continue
            records = setting.records(np.random.default_rng([seed, pca.SEED]))
            facts = _facts(data, setting, records, seed)
            domain = ps.Ball(setting.dim, 1.0)
            for name, epsilon, delta in missing:
                if name not in PCA_KINDS:
                    continue
                told = facts, "pca", name, epsilon, delta, PCA_KINDS[name]
                make = partial(PrivatePCA, setting.k, method=name, domain=domain)
                fit, seconds = _fitted(told, make, records)
                _add(store, *told, lost_variance(records, fit.components_), seconds)
            _ask_for_components(store, facts, missing, peers, records, domain, patience)


def _facts(
    data: str, setting: pca.Setting | mixtures.Setting, records: np.ndarray, seed: int
) -> Facts:
    return {"data": data, "n": len(records), "d": setting.dim, "k": setting.k, "seed": seed}


def _pca_name(method: PeerMethod) -> str:
    """Variants are of k-means: components are asked for without options."""
    return method.name.removesuffix(" as stated")


def _ask_for_components(
    store: Store,
    facts: Facts,
    missing: Sequence[tuple[str, float, float]],
    peers: Sequence[PeerMethod],
    records: np.ndarray,
    domain: ps.Ball,
    patience: float,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.npy"
        np.save(path, records)
        for method in peers:
            mine = _pca_name(method)
            asked = [(eps, delta) for name, eps, delta in missing if name == mine]
            peer = Peer(list(method.command), patience)
            for epsilon, delta in asked:
                if _is_slow(store, facts["data"], mine):
                    break
                request = Request(
                    "pca",
                    str(path),
                    facts["k"],
                    epsilon,
                    delta,
                    domain_as_json(domain),
                    facts["seed"],
                )
                told = facts, "pca", mine, epsilon, delta, "peer"
                try:
                    answer = peer.ask(request)
                except PeerRefusal:
                    continue
                except PeerError as error:
                    _add(store, *told, None, None, f"failed: {error}")
                    continue
                loss = lost_variance(records, answer.centers)
                note = "; ".join(filter(None, (answer.version, answer.remark)))
                _add(store, *told, loss, answer.seconds, note)
            peer.close()


def _is_slow(store: Store, data: str, method: str) -> bool:
    """Whether a peer did not answer about this kind of table in an earlier run."""
    mine = [row for row in store.rows() if (row["data"], row["method"]) == (data, method)]
    return any(row["note"].startswith("failed: no answer") for row in mine)


def run_mixtures(store: Store, repetitions: int) -> None:
    """Every method on every mixture."""
    kinds = {"sketch": "ours"}
    for data, setting in MIXTURE_DATA.items():
        kind = setting.covariance_type
        for seed in range(repetitions):
            missing = list(_missing(store, "mixture", data, list(kinds), seed))
            if not missing:
                continue
            rng = np.random.default_rng([seed, mixtures.SEED])
            truth = mixtures.unequal_mixture(setting.k, setting.dim, kind, rng)
            records, fresh = (truth.draw(mixtures.N_RECORDS, rng) for _ in range(2))
            best = mixtures.reference(truth, records, kind, seed)(fresh)
            facts = _facts(data, setting, records, seed)
            domain = ps.Box(-mixtures.HALF_WIDTH, mixtures.HALF_WIDTH, dim=setting.dim)
            for name, epsilon, delta in missing:
                told = facts, "mixture", name, epsilon, delta, kinds[name]
                options: Facts = {"covariance_type": kind, "domain": domain}
                make = partial(PrivateGaussianMixture, setting.k, **options)
                fit, seconds = _fitted(told, make, records)
                _add(store, *told, best - float(fit.score(fresh)), seconds)


def _fitted(told: Told, make: Callable[..., Any], records: np.ndarray) -> tuple[Any, float]:
    """Fit an estimator within its budget, on one thread; return it and the seconds."""
    facts, _, _, epsilon, delta, _ = told
    own = {"n_records": len(records), "n_threads": 1, "random_state": facts["seed"]}
    fit = make(epsilon=epsilon, delta=delta, **own)
    start = time.perf_counter()
    fit.fit(records)
    seconds = time.perf_counter() - start
    require_within(fit.receipt_, ps.Budget(epsilon, delta))
    return fit, seconds


def _missing(
    store: Store, task: str, data: str, names: Sequence[str], seed: int
) -> Iterator[tuple[str, float, float]]:
    done = store.done()
    for name in names:
        for epsilon, delta in BUDGETS:
            run = {"task": task, "data": data, "method": name, "seed": seed}
            if store.key_of(**run, epsilon=epsilon, delta=delta) not in done:
                yield name, epsilon, delta


def _add(
    store: Store,
    facts: Facts,
    task: str,
    method: str,
    epsilon: float,
    delta: float,
    kind: str,
    loss: float | None,
    seconds: float | None,
    note: str = "",
) -> None:
    told = {"task": task, "method": method, "epsilon": epsilon, "delta": delta, "kind": kind}
    store.add(**facts, **told, loss=loss, seconds=seconds, note=note)
    print(f"{task} {facts['data']} {epsilon:g} {delta:g} {method}: {loss}", flush=True)


def report(rows: Sequence[dict[str, str]]) -> str:
    """Medians of losses in Markdown, the lowest of each line in bold."""
    parts: list[str] = []
    beaten = []
    ours = {(row["task"], row["method"]) for row in rows if row["kind"] == "ours"}
    titles = {"pca": "Variance lost, in %", "mixture": "Log-likelihood lost, nats a record"}
    for task, title in titles.items():
        mine = [row for row in rows if row["task"] == task and row["loss"]]
        names = list(dict.fromkeys(row["method"] for row in mine))
        lines = []
        factor = 100 if task == "pca" else 1
        for cell in dict.fromkeys((row["data"], row["epsilon"], row["delta"]) for row in mine):
            found = {}
            for name in names:
                losses = [
                    factor * float(row["loss"])
                    for row in mine
                    if (row["data"], row["epsilon"], row["delta"], row["method"]) == (*cell, name)
                ]
                if losses:
                    found[name] = median(losses)
            least = min(found.values())
            first = min(found, key=lambda name: found[name])
            best = min((found[n] for n in found if (task, n) in ours), default=np.nan)
            if (task, first) not in ours:
                beaten.append(f"{task}, {', '.join(cell)}: {first} {least:.4g}, ours {best:.4g}")
            texts = [
                ("**{:.4g}**" if found[name] == least else "{:.4g}").format(found[name])
                if name in found
                else ""
                for name in names
            ]
            lines.append([*cell, *texts])
        if mine:
            table = markdown(["data", "epsilon", "delta", *names], lines)
            parts.append(f"{title}, medians:\n\n{table}")
    if beaten:
        parts.append("Lines that no method of ours wins:")
        parts.append("\n".join(f"* {line}" for line in beaten))
    failed = {f"{row['method']} on {row['data']}: {row['note']}" for row in rows if not row["loss"]}
    parts += ["\n".join(f"* {line}" for line in sorted(failed))] if failed else []
    return "\n\n".join(parts) + "\n"
