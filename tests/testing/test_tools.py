"""The tools for tests find what they are for."""

from types import SimpleNamespace

import numpy as np
import pytest

import privsketch as ps
from privsketch.facts import compose_sequential
from privsketch.noise import (
    add_noise,
    choice_law,
    gaussian_law,
    laplace_law,
    picks_law,
    threshold_law,
)
from privsketch.testing import (
    Tape,
    exact_answer,
    moved,
    neighbouring_tables,
    questions,
    replaced_noise,
    replay,
)

TABLE = np.array([[0.25], [0.5], [-1.0]])


def counted(rows, *, scale=1.0, ask_twice=False, law=None):
    """A mechanism of somebody's own: a noisy count of records, and one of those above 0."""
    law = law or laplace_law(1, 2, 1.0, "add-remove")
    values = np.array([len(rows) * scale, (rows > 0).sum()], dtype=np.int64)
    law = laplace_law(2, 2, 1.0, "add-remove") if law is None else law
    parts = [add_noise(values, law, source=None)]
    if ask_twice and len(rows) > 2:
        parts.append(add_noise(values, law, source=None))
    receipt = compose_sequential("counts", [part[1] for part in parts], None)
    return SimpleNamespace(numbers=parts[0][0], receipt=receipt)


RIGHT = laplace_law(2, 2, 1.0, "add-remove")


def test_a_right_mechanism_passes():
    found = replay(lambda rows: counted(rows, law=RIGHT), TABLE, TABLE[:-1])
    assert (found.first.numbers == found.second.numbers).all()
    assert found.largest_move == found.share_of_budget == 0.5
    found = replay(lambda rows: counted(rows, law=RIGHT), TABLE, TABLE[1:])
    assert found.largest_move == found.share_of_budget == 1.0


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda rows: counted(rows), "more than a law declares"),
        (lambda rows: counted(rows, law=RIGHT, ask_twice=True), "fewer questions"),
        (lambda rows: counted(rows, law=RIGHT, scale=2.0), "more than a law declares"),
        (
            lambda rows: counted(rows, law=laplace_law(len(rows), 2, 1.0, "add-remove")),
            "another law",
        ),
        (
            lambda rows: SimpleNamespace(
                receipt=compose_sequential("n", [counted(rows, law=RIGHT).receipt] * 2, None)
                if len(rows) > 2
                else counted(rows, law=RIGHT).receipt
            ),
            "depends on records",
        ),
    ],
)
def test_wrong_ones_do_not(run, words):
    with pytest.raises(AssertionError, match=words):
        replay(run, TABLE, TABLE[1:])


def test_how_far_a_wrong_one_goes_is_measured():
    found = replay(lambda rows: counted(rows, law=RIGHT, scale=3.0), TABLE, TABLE[1:], check=False)
    assert found.moves == (2.0,)
    assert found.largest_move == found.share_of_budget == 2.0
    assert found.moves_of("laplace") == found.moves
    assert found.moves_of("gaussian") == ()


def test_a_result_needs_a_receipt():
    with pytest.raises((TypeError, AttributeError)):
        replay(lambda rows: SimpleNamespace(receipt="none"), TABLE, TABLE[1:])


def test_what_a_move_costs():
    law = gaussian_law(25, 2, 1.0, 1e-6, "add-remove")
    far, rho = moved(np.array([3, 4]), np.array([0, 0]), law)
    assert far == pytest.approx(1.0)
    assert float(rho) == pytest.approx(25 / (2 * law.scale**2))


def test_questions_without_noise_and_with():
    def run():
        add_noise(np.array([5, 6]), RIGHT, source=None)

    (question,) = questions(run)
    assert question.values.tolist() == question.answer.tolist() == [5, 6]
    tape = Tape(push=100.0)
    tape.recorded(run)
    assert (tape.questions[0].answer > 100).all()
    assert tape.laws == [RIGHT]
    assert questions(run, noisy=True)[0].law == RIGHT
    (question,) = questions(run, answer=lambda values, law: 0 * values)
    assert question.answer.tolist() == [0, 0]


def test_a_tape_is_replayed_as_often_as_one_likes():
    def run(value):
        return add_noise(np.array([value, 6]), RIGHT, source=None)[0].tolist()

    tape = Tape()
    first = tape.recorded(lambda: run(5))
    for value in (5, 7, 9):
        assert tape.replayed(lambda v=value: run(v)) == first
        assert [values.tolist() for values in tape.again] == [[value, 6]]
    with pytest.raises(AssertionError, match="fewer questions"):
        tape.replayed(lambda: None)
    with pytest.raises(AssertionError, match="more questions"):
        tape.replayed(lambda: (run(5), run(5)))


@pytest.mark.parametrize(
    ("law", "values", "answer"),
    [
        (RIGHT, [3, -4], [3, -4]),
        (choice_law(9, 3, 1.0, "add-remove"), [7, 4, 9], [1]),
        (threshold_law(5, 9, 1.0, "add-remove"), [[2, 5], [4, 4], [8, 6]], [2, 8]),
        (picks_law(9, 2, 3, 2, 1.0, "add-remove"), [[1, -9, 5]], [[1, 2]]),
    ],
)
def test_exact_answers(law, values, answer):
    assert exact_answer(np.array(values), law).tolist() == answer


def test_replaced_noise_is_what_it_is_given():
    with replaced_noise(lambda values, law: (values + 1, law.scale)):
        values, _ = add_noise(np.array([1, 2]), RIGHT, source=None)
    assert values.tolist() == [2, 3]


def test_receipts_of_exact_answers_say_so():
    tape = Tape(answer=exact_answer)
    values, receipt = tape.recorded(lambda: add_noise(np.array([1, 2]), RIGHT, source=None))
    assert values.tolist() == [1, 2]
    assert receipt.sampler.startswith("INSECURE")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("domain", [ps.Ball(3, 2.0, 1.0), ps.Box([-1, 0, 0], [1, 2, 9])])
def test_neighbouring_tables_differ_in_one_record(domain, neighbours):
    table = np.random.default_rng(0).normal(size=(6, 3))
    seen = set()
    for name, one, other in neighbouring_tables(table, domain, neighbours):
        seen.add(name)
        assert abs(len(one) - len(other)) == (neighbours == "add-remove")
        rows, others = ([row.tobytes() for row in part] for part in (one, other))
        kept = [row for row in rows if row in others]
        assert len(kept) == max(len(one), len(other)) - 1
    assert {"edge", "corner", "outlier", "missing"} <= seen
