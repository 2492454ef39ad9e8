"""Sealed studies in seconds and megabytes: 1,000 holders with 3,201 values each.

    python -m benchmarks sealing                    1,000 holders, 1,600 features, two tellers
    python -m benchmarks sealing --holders 50 --tellers 3

Files lie in a temporary folder, as in a mailbox. Sealing is what comes after the exact sums: noise
for every level, shares, encryption, signature, and a file that stays. Memory is the largest that
the process had while it tallied and joined, over what it had before. Seconds are those of a clock;
beside them are those of the processor, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import privsketch as ps
import privsketch_studies as studies
from privsketch.sketching.sums import ExactSums, exact_sums
from privsketch_studies.sealing.lists import check_ballots
from privsketch_studies.sealing.seal import sealed_sums
from privsketch_studies.sealing.study import SealedStudy


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def said(what: str, seconds: float, limit: str = "") -> None:
    """One line of the table."""
    print(f"{what:<44} {seconds:>10.3f} s   {limit}")


def made_study(
    n_holders: int, n_tellers: int, n_features: int
) -> tuple[SealedStudy, ps.Key, list[ps.Key]]:
    """Return an accepted study, its owner's key, the keys of holders and the study keys."""
    design = ps.Design.plan(
        n_components=10,
        domain=ps.Box(-1, 1, dim=10),
        budget=ps.Budget(0.1, 1e-6),
        n_features=n_features,
        n_holders=n_holders,
        sharing="holders",
        noise="gaussian",
        random_state=0,
    )
    holders = [ps.Key.generate(f"site {n}") for n in range(n_holders)]
    tellers = [ps.Key.generate(f"teller {n}") for n in range(n_tellers)]
    enrolled = [studies.Card.teller(design, key=key) for key in tellers]
    fresh = [study_key for _, study_key in enrolled]
    cards = [studies.Card.holder(design, key=key, accept_alone=1000.0) for key in holders]
    cards += [card for card, _ in enrolled]
    start = time.perf_counter()
    owner = ps.Key.generate("owner")
    study = studies.SealedStudy(design, cards=cards, owner=owner.public)
    for key in tellers:
        study.accept(key)
    said("make the study, all tellers accept", time.perf_counter() - start)
    return study, owner, [*holders, *fresh]


def main() -> None:
    """Measure one study."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--holders", type=int, default=1000)
    parser.add_argument("--tellers", type=int, default=2)
    parser.add_argument("--features", type=int, default=1600)
    options = parser.parse_args()
    n_holders = options.holders
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PRIVSKETCH_HOME"] = f"{folder}/home"
        mailbox = Path(folder) / "mailbox"
        mailbox.mkdir()
        study, owner, keys = made_study(n_holders, options.tellers, options.features)
        holders, fresh = keys[:n_holders], keys[n_holders:]
        study.save(mailbox / "s.study")
        start = time.perf_counter()
        study = studies.SealedStudy.load(mailbox / "s.study")
        said("load the study", time.perf_counter() - start)
        print(f"{study.n_words} words, {study.n_levels} levels, {len(fresh)} tellers")
        records = np.random.default_rng(0).uniform(-1, 1, (100, 10))
        found: ExactSums = exact_sums([records], study.design)
        _ = study.weights
        took = []
        for number, key in enumerate(holders):
            start = time.perf_counter()
            ballot = sealed_sums(study, found, key, key.name)
            ballot.save(mailbox / f"{number:05}.ballot")
            took.append(time.perf_counter() - start)
        size = len(ballot.to_bytes())
        said("seal one ballot, median", float(np.median(took)), "limit 0.05 s")
        said("seal one ballot, slowest", max(took))
        print(f"a ballot has {size} bytes, all of them {size * n_holders / 2**20:.0f} MB")
        checked = []
        for number, key in enumerate(fresh):
            start = time.perf_counter()
            checked.append(check_ballots(study, [mailbox], key=key)[0])
            size = len(checked[-1].to_bytes())
            said(f"checks of teller {number}", time.perf_counter() - start, f"{size} bytes")
        start = time.perf_counter()
        closed = studies.ClosedList.of(study, [mailbox], key=owner, checked=checked)
        said("close the list", time.perf_counter() - start)
        before, slowest, most = peak(), 0.0, 0.0
        tallies = []
        for number, key in enumerate(fresh):
            start, worked = time.perf_counter(), time.process_time()
            tallies.append(studies.tally(study, mailbox, closed, key=key, checked=checked))
            slowest = max(slowest, time.perf_counter() - start)
            most = max(most, time.process_time() - worked)
            cpu = f"processor {time.process_time() - worked:.3f} s"
            said(f"tally of teller {number}", time.perf_counter() - start, cpu)
        start = time.perf_counter()
        total = studies.join(study, tallies)
        took_join = time.perf_counter() - start
        said("join", took_join)
        limit = f"limit 10 s; processor {most + took_join:.3f} s"
        said("slowest tally and join", slowest + took_join, limit)
        print(f"memory: {peak() - before:.0f} MB more, {peak():.0f} MB in all (limit 500 MB)")
        exact = n_holders * study.design.sum_noise.weighted(found.sums, found.n_records)
        spread = float(np.std((total.values - exact).astype(np.float64)))
        told = (study.sharing.variance(n_holders)) ** 0.5
        print(f"noise of the total: {spread / told:.4f} of what its receipt says")


if __name__ == "__main__":
    main()
