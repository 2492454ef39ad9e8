"""Ways in which one sparse record could speak for others: each was a fault once.

What a record contributes must depend on that record alone. SciPy holds a sparse table in three
arrays, and these can be in states in which it does not.
"""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

import privsketch as ps
from privsketch import RecordError
from privsketch.clustering import cluster_sparse, clustered
from privsketch.testing import questions
from tests.reading import read_blocks, read_sparse_blocks

DIM, N_ROWS, N_STORED = 4, 100, 40


# --- entries that are stored several times ------------------------------------------------------


def stored_often(fmt, *, last_in_order):
    """Rows with columns stored many times over, and a last row that has each of them once.

    1e30 + 1 - 1e30 is 0 or 1: sums of these rows tell in which order they were added up. SciPy
    sorts all rows as soon as one is not in order, and puts what has the same column anywhere.
    """
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, 2, size=(N_ROWS, N_STORED)), axis=1)
    values = np.zeros((N_ROWS, N_STORED))
    for row, own in zip(values, columns, strict=True):
        row[rng.choice(np.flatnonzero(own == 0), 3, replace=False)] = [1e30, 1.0, -1e30]
    columns = np.append(columns, [0, 1] if last_in_order else [1, 0]).astype(np.int32)
    values = np.append(values, [0.5, 0.5])
    lengths = [*[N_STORED] * N_ROWS, 2]
    shape = N_ROWS + 1, DIM
    if fmt == "coo":
        return coo_array((values, (np.repeat(np.arange(N_ROWS + 1), lengths), columns)), shape)
    return csr_array((values, columns, np.append(0, np.cumsum(lengths))), shape)


@pytest.mark.parametrize("fmt", ["csr", "coo"])
@pytest.mark.parametrize("read", [read_blocks, read_sparse_blocks])
def test_how_a_record_is_stored_changes_no_other(read, fmt):
    def rows(**how):
        blocks = read(stored_often(fmt, **how), DIM)
        return np.concatenate([b if isinstance(b, np.ndarray) else b.toarray() for b in blocks])

    np.testing.assert_array_equal(rows(last_in_order=True), rows(last_in_order=False))


@pytest.mark.parametrize("fmt", ["csr", "coo"])
@pytest.mark.parametrize("n_nonzero", [None, 2])
def test_nor_what_is_released(fmt, n_nonzero):
    """Two tables that are the same but for how one record is stored."""

    def run(table):
        options = (
            {"method": "sketch"} if n_nonzero is None else {"options": {"n_nonzero": n_nonzero}}
        )
        ps.PrivateKMeans(
            2,
            epsilon=1.0,
            delta=1e-6,
            domain=ps.Ball(radius=2.0),
            n_records=N_ROWS,
            random_state=0,
            **options,
        ).fit(table)

    tables = [stored_often(fmt, last_in_order=in_order) for in_order in (True, False)]
    one, other = (questions(partial(run, table)) for table in tables)
    assert len(one) == len(other)
    np.testing.assert_array_equal(one[0].values, other[0].values)


# --- columns that the table does not have -------------------------------------------------------


def reaching_beyond():
    """A first record that names columns 0, DIM, 2 DIM, ...: column 0 of all rows, if taken so.

    SciPy builds such a matrix without a word, and makes it dense without looking.
    """
    columns = np.concatenate([np.arange(0, DIM * N_ROWS, DIM), np.tile(np.arange(DIM), N_ROWS - 1)])
    values = np.concatenate([np.full(N_ROWS, 0.9), np.zeros(DIM * (N_ROWS - 1))])
    starts = np.append(0, N_ROWS + DIM * np.arange(N_ROWS))
    return csr_array((values, columns.astype(np.int32), starts), shape=(N_ROWS, DIM))


COMMON = {"domain": ps.Ball(DIM, 2.0), "budget": ps.Budget(1.0, 1e-6), "n_records": N_ROWS}
RELEASES = {
    "sketch": lambda table: ps.sketch(
        table, ps.Design.plan(task="kmeans", n_components=2, random_state=0, **COMMON)
    ),
    "kmeans": lambda table: ps.PrivateKMeans(
        2, epsilon=1.0, delta=1e-6, domain=ps.Ball(radius=2.0), method="lloyd", random_state=0
    ).fit(table),
    "sparse": lambda table: clustered(
        cluster_sparse, table, 2, n_nonzero=2, random_state=0, **COMMON
    ),
}


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_columns_beyond_the_table_are_refused(release, spent):
    with pytest.raises(RecordError, match="column") as refused:
        release(reaching_beyond())
    assert not spent
    assert not any(sign.isdigit() for sign in str(refused.value).replace(str(DIM), ""))
