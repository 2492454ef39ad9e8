"""Files of sealed studies, mutated: a hundred thousand, each refused with our error or as it was.

    python -m benchmarks sealed_files                 100,000 files of eight kinds
    python -m benchmarks sealed_files 5000 --seed 1   fewer, and others

A file is cut, stretched, or has bytes or pieces of it changed; of JSON also values of fields, which
are then signed again by the file's own maker: what a dishonest one could write. Every one must be
read as the same bytes, or be refused with an error of ours. What is read though it was changed must
be refused where it is used: a ballot by the tellers, who cannot open it, a tally where it is
joined with the others. A study is not signed inside of its file: one that is read has another
digest, and no teller has signed it. So nothing that was changed is ever joined.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

PIECES = (b"", b"\0", b"0", b"-1", b"1e999", b"null", b"[]", b"{}", b'"', b"\xff" * 8, b" " * 4)
VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    1.5,
    2**63,
    "",
    "x",
    "\x1b[2J",
    [],
    {},
    [[]],
    True,
    "0" * 64,
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the document with one to three changes."""
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and place < len(data):
            data = data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
        elif kind == 1:
            data = data[:place]
        elif kind == 2:
            data = data[:place] + rng.choice(PIECES) + data[place:]
        elif kind == 3:
            data = data[:place] + data[place + rng.randint(1, 64) :]
        else:
            other = rng.randrange(len(data) + 1)
            data = data[:place] + data[other : other + rng.randint(1, 200)] + data[place:]
        if not data:
            return b"\0"
    return data


def changed(value: Any, rng: random.Random) -> Any:
    """Replace one part of a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(sorted(value))
        return {**value, name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    return rng.choice(VALUES)


class Example(NamedTuple):
    """A file, how it is read, the key that signed it, and what is done with it then, if anything.

    The last one raises an error of ours for anything that was changed.
    """

    data: bytes
    read: Callable[[bytes], Any]
    key: Any
    use: Callable[[Any], object] | None = None


def made() -> dict[str, Example]:
    """One of every kind of file."""
    import numpy as np

    import privsketch as ps
    import privsketch_studies as studies
    from privsketch.sketching.sums import exact_sums
    from privsketch_studies.sealing.lists import CheckedBallots, check_ballots
    from privsketch_studies.sealing.seal import sealed_sums
    from privsketch_studies.sealing.void import VoidStudy, void_study

    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        n_features=6,
        budget=ps.Budget(0.1, 1e-6),
        noise="gaussian",
        random_state=0,
    )
    holders = [ps.Key.generate(f"site {n}") for n in range(4)]
    tellers = [ps.Key.generate(f"teller {n}") for n in range(2)]
    enrolled = [studies.Card.teller(design, key=key) for key in tellers]
    fresh = [study_key for _, study_key in enrolled]
    cards = [studies.Card.holder(design, key=key, accept_alone=10.0) for key in holders]
    cards += [card for card, _ in enrolled]
    study = studies.SealedStudy(design, cards=cards, min_holders=3, colluding=1)
    for key in tellers:
        study.accept(key)
    sums = exact_sums([np.random.default_rng(0).uniform(-1, 1, (100, 2))], design, n_threads=1)
    ballots = [sealed_sums(study, sums, key, key.name) for key in holders]
    checks = [check_ballots(study, ballots, key=key)[0] for key in fresh]
    checked = checks[1]
    closed = studies.ClosedList.of(study, ballots, key=tellers[0], checked=checks)
    tallies = [studies.tally(study, ballots, closed, key=key, checked=checks) for key in fresh]
    studies.join(study, tallies)  # as they are, they join
    ended = studies.SealedStudy(
        design,
        cards=[*cards[:5], studies.Card.teller(design, key=tellers[1])[0]],
        min_holders=3,
        colluding=1,
    )
    ended.accept(tellers[1])
    void = void_study(ended, key=tellers[1], study_key_file=None)

    def opened(ballot: studies.Ballot) -> list[bytes]:
        return [ballot.opened(study, key) for key in fresh]

    return {
        "card": Example(cards[0].to_bytes(), studies.Card.from_bytes, holders[0]),
        "teller": Example(cards[-1].to_bytes(), studies.Card.from_bytes, tellers[1]),
        "study": Example(
            study.to_bytes(), studies.SealedStudy.from_bytes, None, lambda one: one.require_open()
        ),
        "ballot": Example(ballots[0].to_bytes(), studies.Ballot.from_bytes, holders[0], opened),
        "checked": Example(checked.to_bytes(), CheckedBallots.from_bytes, fresh[1]),
        "closed": Example(closed.to_bytes(), studies.ClosedList.from_bytes, tellers[0]),
        "tally": Example(
            tallies[0].to_bytes(),
            studies.Tally.from_bytes,
            fresh[0],
            lambda one: studies.join(study, [one, tallies[1]]),
        ),
        "void": Example(void.to_bytes(), VoidStudy.from_bytes, tellers[1]),
    }


def forged(data: bytes, key: Any, rng: random.Random) -> bytes:
    """Change a value, and sign it again with the same key."""
    from privsketch._base.formats import canonical_json
    from privsketch.signing.documents import document_bytes
    from privsketch_studies.sealing.files import kind_of_bytes, packed, signed_json

    kind = kind_of_bytes(data)
    if kind is not None:
        length = int.from_bytes(data[12:16], "little")
        header, content = json.loads(data[16 : 16 + length]), data[16 + length : -96]
        if rng.random() < 0.5:
            header = changed(header, rng)
        else:
            content = mutated(content, rng)
        if not isinstance(header, dict):
            header = {"x": header}
        canonical_json(header)
        return packed(kind, header, content, key)
    whole = json.loads(data)
    name = whole.pop("format").removeprefix("privsketch-")
    whole.pop("version")
    if key is None:  # a study
        found = changed(whole, rng)
        return document_bytes(name, found if isinstance(found, dict) else {"x": found})
    for field in ("signer", "signature"):
        whole.pop(field)
    found = changed(whole, rng)
    return signed_json(name, found if isinstance(found, dict) else {"x": found}, key)


def outcome(bad: bytes, example: Example) -> str:
    """Return the outcome for a file: refused, read or used; other errors reach the caller."""
    from privsketch._base.errors import PrivsketchError

    try:
        found = example.read(bad)
    except PrivsketchError:
        return "refused"
    if found.to_bytes() != bad:
        raise AssertionError("read, but not what it was")
    if bad == example.data or example.use is None:
        return "read"
    try:
        example.use(found)
    except PrivsketchError:
        return "read, and refused where it is used"
    raise AssertionError("changed, and joined")


def main() -> int:
    """Mutate, read, count."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("n_files", nargs="?", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, counts, start = random.Random(options.seed), Counter[str](), time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PRIVSKETCH_HOME"] = home
        files = made()
    names = sorted(files)
    for number in range(options.n_files):
        name = names[number % len(names)]
        example = files[name]
        data, key = example.data, example.key
        is_forged = rng.random() < 0.5
        bad = forged(data, key, rng) if is_forged else mutated(data, rng)
        try:
            told = outcome(bad, example)
        except Exception as error:
            print(f"file {number}, a {name}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        how = "as it was" if bad == data else "signed again" if is_forged else "altered"
        if told != "refused" and how == "altered" and name != "study":
            print(f"file {number}, a {name}: altered, and read", file=sys.stderr)
            return 1
        counts[f"{name}, {how}: {told}"] += 1
    for name, count in sorted(counts.items()):
        print(f"{count:>8}  {name}")
    seconds = time.perf_counter() - start
    print(f"{options.n_files} files in {seconds:.0f} s; no other error")
    print("nothing altered was read, and nothing that was changed was joined")
    return 0


if __name__ == "__main__":
    sys.exit(main())
