"""A holder's limits: a design that asks for more is refused before a record is read."""

import pytest

import privsketch as ps
from privsketch import BudgetError, ParameterError
from privsketch.facts import require_limits
from tests.commands import BUDGET, run


@pytest.mark.parametrize(
    ("asked", "limit", "is_allowed"),
    [
        (0.1, 0.1, True),
        (0.1, 0.1000001, True),
        (0.1000001, 0.1, False),
        (0.30000000000000004, 0.3, False),  # 0.1 + 0.2 in floats
        (0.3, 0.30000000000000004, True),
        (1.0, 1, True),
        (1e-30, 0, False),
    ],
)
def test_epsilons_are_compared_as_decimals(asked, limit, is_allowed):
    budget = ps.Budget(asked)
    if is_allowed:
        require_limits(budget, max_epsilon=limit)
    else:
        with pytest.raises(BudgetError, match="above max_epsilon"):
            require_limits(budget, max_epsilon=limit)


def test_a_delta_of_zero_allows_pure_designs_only():
    require_limits(ps.Budget(1.0), max_delta=0)
    with pytest.raises(BudgetError, match="delta = 1e-100, which is above max_delta=0"):
        require_limits(ps.Budget(1.0, 1e-100), max_delta=0)


def test_a_large_delta_does_not_get_around_a_limit_of_epsilon():
    """To publish the table with probability 0.5 has epsilon = 1e-30 and delta = 0.5."""
    require_limits(ps.Budget(0.1, 1e-6), max_epsilon=0.1)
    with pytest.raises(BudgetError, match=r"delta = 0\.5, with which no epsilon protects"):
        require_limits(ps.Budget(1e-30, 0.5), max_epsilon=0.1)
    require_limits(ps.Budget(0.1, 0.5), max_epsilon=0.1, max_delta=0.5)  # who says so


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf"), "much", True])
def test_limits_are_numbers(limit):
    with pytest.raises(ParameterError, match="max_delta"):
        require_limits(ps.Budget(1.0), max_delta=limit)


def test_nothing_is_read_or_spent_above_a_limit(make_design, spent):
    def blocks():
        pytest.fail("a record was read")
        yield

    for limits in ({"max_epsilon": 0.999}, {"max_delta": 1e-7}):
        with pytest.raises(BudgetError, match="no record was read"):
            ps.sketch(blocks(), make_design(), **limits)
    assert not spent


@pytest.mark.parametrize(
    ("option", "limit", "word"),
    [
        ("--max-epsilon", "0.9999999", "epsilon = 1, which is above --max-epsilon 0.9999999"),
        ("--max-delta", "0", "delta = 1e-06, which is above --max-delta 0"),
    ],
)
def test_commands_refuse_in_the_words_of_the_shell(make_design, folder, option, limit, word, spent):
    make_design().save("study.json")
    # There is no table: a design that is refused never gets as far as that.
    for more in (["-o", "site.sketch"], ["--dry-run"]):
        told = run("sketch", "study.json", "missing.csv", option, limit, *more)
        assert told.exit_code == BUDGET
        assert word in told.stderr
        assert "nothing was spent" in told.stderr
    assert not spent


def test_a_design_at_its_limits_is_sketched(make_design, folder):
    make_design().save("study.json")
    (folder / "data.csv").write_text("a,b,c\n" + "1,2,3\n" * 20)
    limits = ("--max-epsilon", "1", "--max-delta", "1e-6")
    told = run("sketch", "study.json", "data.csv", "-o", "site.sketch", *limits)
    assert told.exit_code == 0, told.output
