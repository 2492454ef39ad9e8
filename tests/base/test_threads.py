"""Threads over blocks: order, what is read ahead, what is held, what an error leaves undone."""

import threading

import numpy as np
import pytest

from privsketch._base import chunks, in_threads

WAIT = 30.0  # seconds after which a test has failed


def pieces(n_pieces, n_rows, seen):
    for number in range(n_pieces):
        seen.append(number)
        yield np.full((n_rows, 1), number)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_blocks(n_threads):
    found = in_threads(lambda block: int(block[0, 0]), pieces(100, 3, []), n_threads)
    assert list(found) == list(range(100))


def test_a_block_is_read_while_threads_work_on_the_one_before():
    next_is_read = threading.Event()

    def blocks():
        yield np.zeros((2**18, 2))
        next_is_read.set()
        yield np.zeros((2**13, 2))

    # Pieces of the first block are done when the second one is there: nobody waits for them first.
    found = in_threads(lambda piece: next_is_read.wait(WAIT), chunks(blocks(), 2**14), 2)
    assert all(found)


@pytest.mark.parametrize(("n_rows", "at_most"), [(2**21, 4), (2**19, 4), (2**18, 8), (1, 32)])
def test_what_is_held_is_bounded(n_rows, at_most):
    """Of results nobody has asked for yet, and of blocks in the queue."""
    seen, done = [], 0
    rows = np.broadcast_to(np.zeros(1), (n_rows, 1))

    def blocks():
        for number in range(50):
            seen.append(number)
            yield rows

    for _ in in_threads(len, blocks(), 2):
        assert len(seen) - done <= at_most
        done += 1
    assert done == 50


def test_an_error_ends_what_has_not_begun():
    begun = []

    def work(block):
        begun.append(int(block[0, 0]))
        if begun[-1] == 0:
            raise KeyError
        threading.Event().wait(0.3)  # a busy machine has seconds to notice the error

    with pytest.raises(KeyError):
        list(in_threads(work, pieces(1000, 1, []), 2))
    assert len(begun) < 16  # of 32 that waited
