"""Checks for parts of other packages: engines, feature maps, clustering methods, decoders.

Authors run them in their own tests, in an environment that has their package installed::

    from privsketch.testing import check_method

    def test_bisecting():
        check_method("bisecting")

A check covers shapes, merging, files, and a replay on neighbouring tables of both relations: the
noise must cover all that a part does with one record. A check raises AssertionError with the
reason. A replay searches for leaks; it does not prove that there are none.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from privsketch._base.errors import PrivsketchError, PrivsketchWarning
from privsketch._base.files import load
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.estimators.kmeans import PrivateKMeans
from privsketch.facts.budget import Budget, Neighbours
from privsketch.facts.columns import Number
from privsketch.facts.domain import Box
from privsketch.facts.schema import Schema
from privsketch.features.maps import feature_map
from privsketch.learning.kmeans.learner import Decoder, find_decoder, learn_kmeans
from privsketch.sketching.build import sketch
from privsketch.sketching.merge import add_sketches
from privsketch.sketching.sketch import Sketch
from privsketch.tables.table import Table
from privsketch.testing.tape import neighbouring_tables, questions, replay, require

_DOMAIN = Box(-1.0, 1.0, dim=2)
_TRUE_CENTERS = np.array([[-0.5, -0.5], [0.5, 0.5]])
_RELATIONS: tuple[Neighbours, ...] = ("add-remove", "replace")
_N_RECORDS = 400
_MAX_CENTER_ERROR = 0.2  # centers of a noise-free sketch, a tenth of the domain's width


def check_engine(engine: Any) -> None:
    """Check an engine: the same sums as in this process, for tables of every kind.

    Tables of many blocks, of one record and of none, files, missing values, and persons with
    several rows; a refusal that quotes no record; a replay on neighbouring tables.

    Parameters
    ----------
    engine : str or engine
        The registered name, or an engine with options.

    Examples
    --------
    >>> from privsketch.testing import check_engine
    >>> check_engine("threads")
    """
    for neighbours in _RELATIONS:
        design = _design(neighbours)
        with tempfile.TemporaryDirectory() as folder:
            for name, table, recipe in _tables(neighbours, design, Path(folder)):
                expected, result = (
                    sketch(table, recipe.without_noise(), engine=where, insecure=True)
                    for where in ("threads", engine)
                )
                same = np.array_equal(expected.values, result.values)
                require(same, f"a {name} has other sums than in this process")
        release = partial(_sketch, design=design, engine=engine)
        _check_refusal(release)
        _check_replay(release, neighbours)


def check_feature_map(name: str) -> None:
    """Check a feature map: designs, sums, merging, files and learning.

    Parameters
    ----------
    name : str
        The registered name; the map needs a table.

    Examples
    --------
    >>> from privsketch.testing import check_feature_map
    >>> check_feature_map("one-bit")
    """
    for neighbours in _RELATIONS:
        design = _design(neighbours, feature_map=name)
        require(design.feature_map == name, "the design names another map")
        _check_file(design)
        table = _records()
        exact = partial(sketch, design=design.without_noise(), insecure=True)
        whole, single = exact(table), exact(table[:1])
        parts = [exact(part) for part in np.array_split(table, 3)]
        total = add_sketches(parts)
        require(np.array_equal(total.sums, whole.sums), "parts do not add up to the whole")
        _check_file(whole)
        pairs = single.sums.reshape(2, -1).T
        entries = {tuple(pair) for pair in feature_map(name).table.tolist()}
        one_record = all(tuple(pair) in entries for pair in pairs.tolist())
        require(one_record, "one record adds pairs that are not in the table")
        _check_centers(whole, {})
        _check_replay(partial(_sketch, design=design), neighbours)


def check_method(name: str, **options: Any) -> None:
    """Check a clustering method: budget, files, and replays on neighbouring tables.

    Parameters
    ----------
    name : str
        The registered name.
    **options
        Further parameters of `PrivateKMeans`.

    Examples
    --------
    >>> from privsketch.testing import check_method
    >>> check_method("lloyd")
    """
    for neighbours in _RELATIONS:
        for delta in (0.0, 1e-6):

            def fit(table: Floats, delta: float = delta, relation: Neighbours = neighbours) -> Any:
                estimator = PrivateKMeans(
                    2,
                    method=name,
                    epsilon=1.0,
                    delta=delta,
                    neighbours=relation,
                    domain=_DOMAIN,
                    missing="center",
                    random_state=0,
                    **options,
                )
                with warnings.catch_warnings():  # of fitting the same records several times
                    warnings.simplefilter("ignore", PrivsketchWarning)
                    return estimator.fit(table).model_

            model = fit(_records())
            require(model.centers.shape == (2, 2), "the model has other centers than asked for")
            within = model.receipt.epsilon <= 1.0 and model.receipt.delta <= delta
            require(within, "the receipt has more than the budget")
            _check_file(model)
            _check_replay(fit, neighbours)


def check_decoder(decoder: str | Decoder, **options: Any) -> None:
    """Check a decoder of k-means: centers, weights, files, and reproducible results.

    Parameters
    ----------
    decoder : str or callable
        The registered name, or the function itself.
    **options
        Further parameters of `learn_kmeans`.

    Examples
    --------
    >>> from privsketch.testing import check_decoder
    >>> check_decoder("cl-ompr")
    """
    exact = sketch(_records(), _design("add-remove").without_noise(), insecure=True)
    model = _check_centers(exact, {"decoder": decoder, **options})
    name = find_decoder(decoder)[1]
    require(model.decoder == name, "the model names another decoder")
    second = _check_centers(exact, {"decoder": decoder, **options})
    same = np.array_equal(model.centers, second.centers)
    require(same, "the same sketch and random_state give other centers")


# ---------------------------------------------------------------- parts of all checks


def _design(neighbours: Neighbours, **options: Any) -> Design:
    return Design.plan(
        n_components=2,
        budget=Budget(1.0, 1e-6, neighbours),
        n_records=_N_RECORDS,
        n_features=50,
        random_state=0,
        **{"domain": _DOMAIN, "feature_map": "fourier", **options},
    )


def _records(n_records: int = _N_RECORDS) -> Floats:
    rng = np.random.default_rng(0)
    noise = 0.1 * rng.normal(size=(n_records, 2))
    return np.asarray(_TRUE_CENTERS[rng.integers(2, size=n_records)] + noise)


def _sketch(table: Floats, design: Design, engine: Any = None) -> Sketch:
    return sketch(table, design, engine=engine)


def _tables(
    neighbours: Neighbours, design: Design, folder: Path
) -> Iterator[tuple[str, Any, Design]]:
    """Yield tables with the design for each; of a person all rows are the same."""
    import pyarrow as pa

    records = _records()
    yield "table of many blocks", _records(100_000), design
    yield "small table", records, design
    yield "table of one record", records[:1], design
    if neighbours == "add-remove":
        yield "table without records", records[:0], design
    paths = [folder / "a.npy", folder / "b.npy"]
    for path, part in zip(paths, np.array_split(records, 2), strict=True):
        np.save(path, part)
    yield "list of files", paths, design
    holes = np.where(records > 0.6, np.nan, records)
    yield "table with missing values", Table(holes, missing="center"), design
    persons = Schema([Number("x", -1, 1), Number("y", -1, 1)], person="who")
    columns = [pa.array(np.repeat(column, 2)) for column in (*records.T, np.arange(len(records)))]
    visits = pa.table(dict(zip(persons.all_names, columns, strict=True)))
    yield "table of persons", visits, _design(neighbours, domain=persons)


def _check_file(content: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        content.save(path)
        loaded = load(path)
    require(loaded.to_bytes() == content.to_bytes(), "a file that is loaded has other bytes")


def _check_refusal(release: Callable[[Floats], Any]) -> None:
    """Check that a missing value is refused before noise is drawn, by an error without values."""
    table = _records()
    table[7] = (np.nan, 0.123456)
    try:
        asked_questions = questions(lambda: release(table))
    except PrivsketchError as error:
        require("0.123456" not in str(error), "an error quotes a record")
    else:
        require(not asked_questions, "noise was drawn for a table with missing values")


def _check_centers(exact: Sketch, options: dict[str, Any]) -> Any:
    model = learn_kmeans(exact, 2, random_state=0, **options)
    order = np.argsort(model.centers[:, 0])
    distance = float(np.abs(model.centers[order] - _TRUE_CENTERS).max())
    require(distance <= _MAX_CENTER_ERROR, f"two clear clusters are missed by {distance:.2g}")
    require(abs(float(model.weights.sum()) - 1) < 1e-6, "weights do not add up to 1")
    _check_file(model)
    return model


def _check_replay(release: Callable[[Floats], Any], neighbours: Neighbours) -> None:
    for name, table, other in neighbouring_tables(_records(60), _DOMAIN, neighbours):
        try:
            replayed = replay(release, table, other)
        except PrivsketchError as error:
            if name != "missing":
                raise AssertionError(f"{name} record, {neighbours}: refused: {error}") from error
        except AssertionError as error:
            raise AssertionError(f"{name} record, {neighbours}: {error}") from error
        else:
            first, second = (_content(result) for result in (replayed.first, replayed.second))
            require(first == second, f"{name} record, {neighbours}: the results differ")


def _content(result: Any) -> bytes:
    """Return the bytes of all that is released, without random names."""
    return bytes(result.sums.tobytes() if isinstance(result, Sketch) else result.to_bytes())
