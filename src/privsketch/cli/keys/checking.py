"""Signatures of files that commands load.

With --signed-by a file must have one. Without, a signature that lies beside a file is looked at
once the user has pinned any key: a wrong one is refused, one of a stranger is told.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privsketch.cli.shell.output import caution

if TYPE_CHECKING:
    from privsketch.design.recipe import Design
    from privsketch.signing.keys import PublicKey
    from privsketch.sketching.sketch import Sketch


def checked_bytes(
    path: Path, kind: str | None = None, wanted: Sequence[PublicKey] = ()
) -> tuple[bytes, PublicKey | None]:
    """The bytes of a file, read once, and who signed them as far as that is known.

    One of those who are `wanted` must have signed it, if there are any.
    """
    from privsketch._base.formats import read_file
    from privsketch.signing.signature import Signature, signature_path, spoken
    from privsketch.signing.trusted import pinned_keys, signer_of, verified_bytes

    if wanted:
        return verified_bytes(path, wanted, kind=kind)
    data = read_file(path)
    pinned = pinned_keys() if os.path.lexists(signature_path(path)) else []
    signature = Signature.beside(path) if pinned else None
    if signature is None:
        return data, None
    signer = signer_of(data, signature, pinned, str(path), kind=kind)
    if signer is None:
        caution(f"{path} is signed by a key that is not pinned, {spoken(signature.fingerprint)}")
    return data, signer


def load_design(path: Path, signed_by: Sequence[str] = ()) -> Design:
    """A design whose signature was looked at."""
    from privsketch.design.recipe import Design
    from privsketch.signing.trusted import found_key

    wanted = [found_key(text) for text in signed_by]
    return Design.from_bytes(checked_bytes(path, "design", wanted)[0], str(path))


def load_sketch(path: Path) -> Sketch:
    """A sketch whose signature was looked at."""
    from privsketch.sketching.sketch import Sketch

    return Sketch.from_bytes(checked_bytes(path, "sketch")[0], str(path))


def load_sketches(paths: Sequence[Path], signed_by: Sequence[str] = ()) -> list[Sketch]:
    """Sketches to add up, whose signatures were looked at, and whose sources go with them."""
    from privsketch.signing.trusted import found_key, pinned_keys
    from privsketch.sketching.sketch import Sketch

    wanted = [found_key(text) for text in signed_by]
    sketches, signers = [], []
    for path in paths:
        data, signer = checked_bytes(path, "sketch", wanted)
        sketches.append(Sketch.from_bytes(data, str(path)))
        signers.append(signer)
    if any(signers):
        _compare_sources(paths, sketches, signers, wanted, pinned_keys())
    return sketches


def _compare_sources(
    paths: Sequence[Path],
    sketches: Sequence[Sketch],
    signers: Sequence[PublicKey | None],
    wanted: Sequence[PublicKey],
    pinned: Sequence[PublicKey],
) -> None:
    """Refuse a release in the name of somebody else who is known; tell what else is odd."""
    from privsketch._base.errors import SignatureError
    from privsketch.signing.documents import alike

    known = {alike(key.name): key for key in (*pinned, *wanted)}
    # A collector signs sums of sites that are pinned: nothing is odd about that.
    expected = {alike(key.name): key for key in wanted} or known
    times: Counter[str] = Counter()
    for path, sketch, signer in zip(paths, sketches, signers, strict=True):
        if signer is None:
            continue
        others = [source for source in sketch.sources if source != signer.name]
        is_sum = len(sketch.ids) > 1  # whoever adds sketches up signs for others
        names = expected if is_sum else known
        named = [source for source in others if names.get(alike(source), signer) != signer]
        if is_sum:
            if named:
                told = f"{path} is a sum that {signer.name} has signed, also for "
                caution(told + ", ".join(dict.fromkeys(named)))
            continue
        times[signer.name] += 1
        if named:
            raise SignatureError(
                f"{path}: signed by {signer.name!r}, but its source is named {named[0]!r}, as "
                "another key that is trusted here"
            )
        if others:
            caution(f"{path} is signed by {signer.name}, and its source is named {others[0]}")
    for name, number in times.items():
        if number > 1:
            caution(f"{name} has signed {number} of these sketches: are they of different records?")
