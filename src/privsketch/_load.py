"""Files of ours by what they are: sketches, designs, models, keys, receipts, sealed studies."""

from __future__ import annotations

import os
from typing import TypeAlias

from privsketch.design.recipe import Design
from privsketch._base.errors import FileError
from privsketch._base.formats import SKETCH_MAGIC, document_kind, read_file
from privsketch.models.base import Model
from privsketch.models.clusters import ClusterModel
from privsketch.models.components import PCAModel
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.projection.description import ReleaseDescription
from privsketch.facts.schema import Schema
from privsketch_studies.sealing.ballots import Ballot
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.files import kind_of_bytes
from privsketch_studies.sealing.lists import CLOSED, ClosedList
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import Tally
from privsketch.signing.keys import PublicKey
from privsketch.sketching.sketch import Sketch

Sealed: TypeAlias = SealedStudy | Card | Ballot | ClosedList | Tally
Loaded: TypeAlias = Sketch | Design | Schema | Model | ReleaseDescription | PublicKey | Sealed
_LEDGER_MAGIC = b"SQLite format 3\0"
_ELSEWHERE = {  # kinds of ours that are nothing to load, and who tells them
    "key": "a secret key; privsketch inspect tells the public one, which ends in .pub",
    "signature": "a signature; privsketch verify says who signed the file that it lies beside",
}
_MODELS: tuple[type[Model], ...] = (ClusterModel, GaussianMixtureModel, PCAModel)


def load(path: str | os.PathLike[str]) -> Loaded:
    """What a file of ours contains, whichever kind it is of.

    Charges: nothing. Files are checked in full and nothing in them is run.

    Parameters
    ----------
    path : str or path
        File of a sketch, a design, a schema, a model, a public key, the receipt beside released
        rows, or a sealed study, card, ballot, closed list or tally.

    Returns
    -------
    Sketch, Design, Schema, ClusterModel, GaussianMixtureModel, PCAModel, PublicKey,
    ReleaseDescription, SealedStudy, Card, Ballot, ClosedList or Tally

    Examples
    --------
    >>> import tempfile, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     design.save(f"{folder}/study.json")
    ...     ps.load(f"{folder}/study.json") == design
    True
    """
    found = loaded(read_file(path), os.fspath(path))
    # Signatures of tellers lie beside a study.
    return SealedStudy.load(path) if isinstance(found, SealedStudy) else found


def loaded(data: bytes, what: str) -> Loaded:
    """What the bytes of a file of ours contain; `what` names it in errors."""
    if data.startswith(SKETCH_MAGIC):
        return Sketch.from_bytes(data, what)
    if data.startswith(_LEDGER_MAGIC):
        raise FileError(f"{what}: a database, as ledgers are; privsketch ledger show tells it")
    binary = kind_of_bytes(data)
    if binary is not None:
        return Ballot(data, what) if binary == "ballot" else Tally(data, what)
    kind = document_kind(data, what)
    if kind in _ELSEWHERE:
        raise FileError(f"{what}: {_ELSEWHERE[kind]}")
    if kind is None and b'"columns"' in data:  # a schema is JSON that people write
        return Schema.from_bytes(data, what)
    if kind == "design":
        return Design.from_bytes(data, what)
    if kind == "release":
        return ReleaseDescription.from_bytes(data, what)
    if kind == "public-key":
        return PublicKey.from_bytes(data, what)
    if kind == "study":
        return SealedStudy.from_bytes(data, what)
    if kind == "card":
        return Card.from_bytes(data, what)
    if kind == CLOSED:
        return ClosedList(data, what)
    for model in _MODELS:
        if kind == model.KIND:
            return model.from_bytes(data, what)
    raise FileError(
        f"{what}: not a file of privsketch that this version knows: no sketch, design, schema, "
        "model, public key, receipt or part of a sealed study"
    )
