"""`privsketch ledger`: limits of data sets, and what was spent. No command reads a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, remark, say, wants_json
from privsketch.cli.shell.chart import chart
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import EPSILON, PATH, choice
from privsketch.cli.shell.output import (
    STANDARD_OUTPUT,
    count_text,
    note,
    require_available,
    require_file,
    say_written,
    wrap_text,
    write,
)
from privsketch.cli.shell.spending import echo_warnings

if TYPE_CHECKING:
    from privsketch.ledger.book import Ledger
    from privsketch.ledger.contents import DataSet, Entry

_WIDTH = 79  # fits 80 columns


@click.group(cls=Group)
def ledger() -> None:
    """Keep the total cost of all releases below a limit.

    A ledger is a file for you alone. Its data sets have a name and a limit. Every release is
    entered before noise is drawn, and refused above the limit.

    \b
    privsketch ledger create budget.ledger
    privsketch ledger add budget.ledger visits --epsilon 3 --delta 1e-5
    privsketch ledger show budget.ledger
    """


@ledger.command()
@click.argument("file", type=PATH)
@choice(
    "--accounting",
    ["basic", "zcdp"],
    help="What decides at a limit: sums of epsilon and delta, or the sum of rho. The latter allows "
    "more Gaussian releases and needs a delta.",
)
@JSON
def create(file: Path, accounting: str) -> None:
    """Make a new, empty ledger, which only you can read.

    Keep it on a local file system: locks of network file systems are unreliable.

    \b
    privsketch ledger create budget.ledger --accounting zcdp
    """
    from privsketch.ledger.book import Ledger

    book = Ledger.create(file, accounting)  # type: ignore[arg-type]
    say(f"ledger      {file}, accounting {book.accounting}; for you alone")
    say(f"next        privsketch ledger add {file} NAME --epsilon ... --delta ...")
    answer(written=[file], ledger=file, accounting=book.accounting)


@ledger.command()
@click.argument("file", type=PATH)
@click.argument("name")
@click.option(
    "--epsilon", type=EPSILON, required=True, help="Largest total epsilon of all releases."
)
@click.option(
    "--delta", type=float, required=True, help="Largest total delta; 0 allows pure releases only."
)
@choice("--neighbours", ["add-remove", "replace"], help="Which change of a table stays hidden.")
@click.option(
    "--person",
    metavar="COLUMN",
    help="The column that names persons, if persons are protected instead of records.",
)
@click.option(
    "--without-rho",
    type=float,
    default=0.0,
    metavar="SHARE",
    help="With zcdp: share of the limit that is reserved for releases without a rho, such as "
    "masked sketches. The default is 0.",
)
@click.option(
    "--max-refusals",
    type=int,
    default=10,
    show_default=True,
    help="Number of releases that may be refused because of what records say.",
)
@click.option(
    "--period",
    type=click.Choice(["year", "quarter", "month"]),
    help="Part of the calendar with a limit of its own, --period-epsilon, beside the total one.",
)
@click.option(
    "--period-epsilon",
    type=float,
    metavar="EPSILON",
    help="Largest epsilon within a period; the total limit alone bounds delta.",
)
@click.option("--note", default="", help="A note for people.")
@JSON
def add(
    file: Path,
    name: str,
    epsilon: float,
    delta: float,
    neighbours: str,
    person: str | None,
    without_rho: float,
    max_refusals: int,
    period: str | None,
    period_epsilon: float | None,
    note: str,
) -> None:
    """Add a data set with its limit, which cannot be changed later.

    Deltas add up like epsilons: for ten releases with a delta of 1e-6 each, state 1e-5.

    \b
    privsketch ledger add budget.ledger visits --epsilon 3 --delta 1e-5
    privsketch ledger add budget.ledger labs --epsilon 3 --delta 1e-5 \\
        --period year --period-epsilon 1
    privsketch ledger add budget.ledger stays --epsilon 1 --delta 0 --person id
    """
    from privsketch.facts.budget import delta_caution, epsilon_caution

    book = _opened(file)
    book.add(
        name,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,  # type: ignore[arg-type]
        person=person,
        without_rho=without_rho,
        max_refusals=max_refusals,
        note=note,
        period=period,  # type: ignore[arg-type]
        period_epsilon=period_epsilon,
    )
    (data_set,) = (item for item in book.datasets() if item.name == name)
    say("\n".join(_description(data_set)))
    for text in filter(None, (epsilon_caution(epsilon), delta_caution(delta, None))):
        say(f"careful     {text}")
        remark("cautions", text)
    answer(ledger=file, data_set=data_set.to_json())


@ledger.command()
@click.argument("file", type=PATH)
@click.argument("name", required=False)
@click.option("--entries", "with_entries", is_flag=True, help="List every entry.")
@click.option("--report", type=PATH, metavar="FILE", help="Also write an HTML report.")
@click.option("--force", is_flag=True, help="Replace an existing report.")
@JSON
def show(
    file: Path, name: str | None, with_entries: bool, report: Path | None, force: bool
) -> None:
    """Show limits, what was spent and what is left.

    The output covers all data sets, or the one called NAME, with the spending over time. Costs are
    rounded up, and what is left is rounded down.

    \b
    privsketch ledger show budget.ledger
    privsketch ledger show budget.ledger visits --entries
    """
    if report is not None:
        require_file(report, "a report is a page of its own")
        require_available(report, force, "it would be replaced")
    book = _opened(file)
    book.require_intact()
    entries = book.entries(name)  # refuses an unknown name
    data_sets = [data_set for data_set in book.datasets() if name in (None, data_set.name)]
    if report is not None:
        from privsketch._base.formats import write_file
        from privsketch.pages.report.spending import spending_page

        page = spending_page(file.name, book.accounting, data_sets, entries)
        write(lambda path: write_file(path, page.encode()), report)
    if wants_json():
        answer(
            written=[] if report is None else [report],
            ledger=file,
            accounting=book.accounting,
            head=book.head,
            data_sets=[_facts(data_set, entries) for data_set in data_sets],
            entries=[entry.to_json() for entry in entries] if with_entries else None,
        )
        return
    say(f"ledger      {file}, accounting {book.accounting}; for its holder alone")
    if data_sets:
        say("\n".join(["", *_table(data_sets)]))
    else:
        say(f"            no data set yet: privsketch ledger add {file} NAME ...")
    for data_set in data_sets:
        say("\n".join(["", *_description(data_set), *_spending(data_set, entries)]))
        for entry in entries if with_entries else ():
            if entry.data_set == data_set.name:
                say(_entry_line(entry, data_set))
    say(f"\nhead        {book.head}")
    say("            keep it elsewhere, for privsketch ledger check --head")
    if report is not None:
        say_written(report)


@ledger.command()
@click.argument("file", type=PATH)
@click.argument("name")
@click.option("--design", type=PATH, help="Design of the requested sketch.")
@click.option("--epsilon", type=EPSILON, help="Cost of a release without a design.")
@click.option("--delta", type=float, help="Its delta; 0 if left out.")
@click.option(
    "--release",
    metavar="TEXT",
    help="What a release without a design publishes, in your words: for cluster, release, bounds.",
)
@click.option(
    "-o", "--output", type=PATH, required=True, metavar="FILE", help="HTML file to write."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@JSON
def approval(
    file: Path,
    name: str,
    design: Path | None,
    epsilon: float | None,
    delta: float | None,
    release: str | None,
    output: Path,
    force: bool,
) -> None:
    """Write a sheet on which somebody approves a release.

    It says what would be released of the data set NAME, what that promises, and what would be left
    of the limit. Nothing is spent.

    \b
    privsketch ledger approval budget.ledger visits \\
        --design study.json -o sheet.html
    privsketch ledger approval budget.ledger visits --epsilon 1 --delta 1e-6 \\
        --release "6 clusters of visits" -o sheet.html
    """
    from privsketch._base.formats import as_line, write_file
    from privsketch.cli.shell.signing import load_design
    from privsketch.facts.budget import Budget
    from privsketch.ledger.entry import cost_of_budget
    from privsketch.pages.report.approval import approval_page, design_facts

    require_file(output, "the sheet is a page of its own")
    require_available(output, force, "it would be replaced")
    if design is None and (epsilon is None or release is None):
        raise click.UsageError("state --design, or --epsilon and --release")
    if design is not None and (epsilon, delta, release) != (None, None, None):
        raise click.UsageError("a design has its own cost: leave out --epsilon, --delta, --release")
    book = _opened(file)
    data_set = book.data_set(name)
    if design is not None:
        recipe = load_design(design)
        budget, facts = recipe.budget, design_facts(recipe)
    else:
        budget = Budget(epsilon or 0.0, delta or 0.0, data_set.neighbours, unit=data_set.unit)
        facts = [("what is released", as_line(str(release)))]
    quote = book.quote(name, cost_of_budget(budget))
    page = approval_page(file.name, data_set, facts, budget, quote)
    write(lambda path: write_file(path, page.encode()), output)
    say(f"release     {quote.words}")
    say_written(output)
    answer(written=[output], ledger=file, data_set=name, allowed=quote.allowed, words=quote.words)


@ledger.command()
@click.argument("file", type=PATH)
@click.option(
    "--head",
    metavar="HASH",
    help="An earlier head of this ledger, which must still be the hash of one of its lines.",
)
@JSON
def check(file: Path, head: str | None) -> None:
    """Check that a ledger is whole.

    The check covers the file, every hash, every sum and every limit. The exit code is 5 if anything
    is wrong. The head is the hash of the last line, which `check` and `show` print. Write it down
    elsewhere: with --head you can check later that no line up to it was changed or removed.

    \b
    privsketch ledger check budget.ledger
    privsketch ledger check budget.ledger --head HASH
    """
    from privsketch._base.errors import AccessError, FileError

    last: str | None = None
    n_lines = 0
    try:
        book = _opened(file)
        problems = book.check(head=head)
        if not problems:
            exported = book.export()
            last, n_lines = exported["head"], exported["n_lines"]
    except AccessError:  # the file could not be read, so nothing is known about it
        raise
    except FileError as error:
        problems = [str(error)]
    answer(ledger=file, is_whole=not problems, problems=problems, head=last, n_lines=n_lines)
    for text in problems:
        say(f"problem     {text}")
    if problems:
        raise FileError(f"{file}: not a whole ledger; do not use it, and bring back a copy")
    remark = "" if head is None else "; the earlier head is the hash of one of them"
    say(f"whole       {count_text(n_lines, 'line')}, all hashes, sums and limits hold{remark}")
    say(f"head        {last}")


@ledger.command()
@click.argument("file", type=PATH)
@click.option("-o", "--output", type=PATH, help="File of the export; else standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@JSON
def export(file: Path, output: Path | None, force: bool) -> None:
    """Write a ledger as JSON, for people and other programs.

    The export has all data sets, entries and receipts, but neither marks nor the key. It contains
    your names, times and outputs: read it before you pass it on.

    \b
    privsketch ledger export budget.ledger -o budget.json
    """
    from privsketch._base.formats import write_file

    if output is not None:
        require_available(output, force, "it would be replaced")
    book = _opened(file)
    book.require_intact()
    content = book.export()
    target = STANDARD_OUTPUT if output is None else output
    if output is not None or not wants_json():
        text = json.dumps(content, indent=2) + "\n"
        write(lambda path: write_file(path, text.encode()), target)
    note("the export names your data sets and says when they were used", target)
    if output is None:  # with --json it is part of the answer
        answer(written=[], ledger=file, export=content)
        return
    say_written(output)
    answer(written=[output], ledger=file, export=None)


def _opened(file: Path) -> Ledger:
    """Open a ledger; warn its holder if others may read it."""
    from privsketch.ledger.book import Ledger

    with echo_warnings():
        return Ledger(file)


def _facts(data_set: DataSet, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return a data set and its spending over time, as facts of an answer."""
    from privsketch.ledger.contents import spending

    return {
        **data_set.to_json(),
        "used": float(data_set.limit.used(data_set.spent)),
        "spending": [
            {"time": step.time.isoformat(), "entry": step.entry, "used": step.used}
            for step in spending(data_set, entries)
        ],
    }


def _table(data_sets: Sequence[DataSet]) -> list[str]:
    """Return the lines of a table with a row for each data set."""
    basic = data_sets[0].limit.accounting == "basic"
    unit = "epsilon, delta" if basic else "rho"
    head = f"{'data set':<22} {'limit':<16} {'spent':<16} {'left':<15} entries"
    lines = [head, f"{'':<22} {unit:<16} {unit:<16} {unit:<15}".rstrip()]
    for data_set in data_sets:
        limit, spent, left = data_set.limit, data_set.spent, data_set.left
        if left.rho is None or limit.rho is None:
            cells = [
                _pair(limit.epsilon, limit.delta, up=False),
                _pair(spent.epsilon, spent.delta, up=True),
                _pair(left.epsilon, left.delta, up=False),
            ]
        else:
            cells = [_number(limit.rho, False), _number(spent.rho, True), _number(left.rho, False)]
        name, n_entries = _short(data_set.name, 22), data_set.n_entries
        lines.append(f"{name:<22} {cells[0]:<16} {cells[1]:<16} {cells[2]:<15} {n_entries:>7}")
    return lines


def _number(value: Any, up: bool) -> str:
    from privsketch.ledger.cost import fraction_text

    return fraction_text(value, up=up, digits=3)


def _pair(epsilon: Any, delta: Any, *, up: bool) -> str:
    return f"{_number(epsilon, up)}, {_number(delta, up)}"


def _description(data_set: DataSet) -> list[str]:
    """Describe a data set as it was added."""
    lines = [
        f"data set    {data_set.name}",
        f"protects    {data_set.unit.text}, neighbours {data_set.neighbours}",
        _line("limit", data_set.limit.text),
    ]
    if data_set.period is not None:
        lines.append(_line(f"per {data_set.period.every}", data_set.period.limit.text))
    return [*lines, f"note        {data_set.note}"] if data_set.note else lines


def _line(heading: str, text: str) -> str:
    return wrap_text(text, heading, 12, _WIDTH)


def _spending(data_set: DataSet, entries: Sequence[Entry]) -> list[str]:
    """Describe what was spent on a data set, with a chart over time."""
    from privsketch.ledger.contents import spending
    from privsketch.ledger.periods import pace

    used = data_set.limit.used(data_set.spent)
    share = 100 * used
    lines = [
        _line("spent", data_set.limit.spent_text(data_set.spent)),
        _line("left", data_set.limit.left_text(data_set.spent)),
        f"entries     {data_set.n_entries}, {float(share):.3g} % of the limit"
        + (f"; {data_set.n_open} reserved and never committed" if data_set.n_open else ""),
    ]
    if data_set.n_refusals:
        n_refusals, most = data_set.n_refusals, data_set.max_refusals
        lines.append(f"refusals    {n_refusals} because of what records say; {most} are allowed")
    if data_set.alone.n_entries:
        spent = data_set.limit.spent_text(data_set.alone)
        text = (
            f"{spent} of {count_text(data_set.alone.n_entries, 'ballot')} instead of what they "
            "count above, if everyone else in their studies colludes"
        )
        lines.insert(1, _line("alone", text))
    if data_set.period is not None:
        limit, within = data_set.period.limit, data_set.period_spent
        text = f"{limit.spent_text(within)} spent; {limit.left_text(within)} left"
        lines.append(_line("this period", f"{text} of this {data_set.period.every}'s limit"))
    steps = spending(data_set, entries)
    if not steps:
        return lines
    begin, now = datetime.fromisoformat(data_set.time), datetime.now(UTC)
    times = (step.time for step in steps)
    text = pace(used, times, now, period=data_set.period, limit=data_set.limit)
    if text:
        lines.append(_line("pace", text))
    return [*lines, *chart(steps, begin, max(now, steps[-1].time), width=_WIDTH)]


def _entry_line(entry: Entry, data_set: DataSet) -> str:
    """Describe an entry on one line: its time, its cost, what it was, where the result went."""
    state = "" if entry.state == "committed" else "reserved: "
    text = f"{state}{entry.what}" + (f", {entry.output}" if entry.output else "")
    charged = data_set.limit.charged_text(entry.charged)
    return _short(f"{entry.time[:16].replace('T', ' ')}  {charged}  {text}", _WIDTH)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
