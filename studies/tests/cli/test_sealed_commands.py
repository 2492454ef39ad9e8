"""A sealed study from the shell: everybody's part, and what each of them may not do."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch_studies import StudyError
from privsketch_studies.sealing import signed_json, teller_file
from tests import seams
from tests.commands import BUDGET, INTEGRITY, USAGE, refused, run, succeeded

HOLDERS, TELLERS = ("h0", "h1", "h2", "h3"), ("a", "b")
COST = ["--accept-alone", 5]
N_RECORDS = 10_487  # of each holder


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with a study that all tellers have accepted; teller a is pinned."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))
    box = ["--box", -1, 1, "--dim", 2, "--epsilon", 0.5, "--delta", "1e-6"]
    shape = ["--features", 8, "--holders", 4, "--seed", 0]
    succeeded("design", "-k", 2, *box, *shape, "-o", "design.json")
    for n, name in enumerate(HOLDERS):
        np.save(f"{name}.npy", np.random.default_rng(n).uniform(-1, 1, size=(N_RECORDS, 2)))
        succeeded("key", "make", f"{name}.key", "--no-passphrase")
        succeeded(
            "study", "enrol", "design.json", "--key", f"{name}.key", *COST, "-o", f"{name}.card"
        )
    for name in (*TELLERS, "owner"):
        succeeded("key", "make", f"{name}.key", "--no-passphrase")
    for name in TELLERS:
        succeeded(
            "study",
            "enrol",
            "design.json",
            "--key",
            f"{name}.key",
            "--teller",
            "-o",
            f"{name}.card",
        )
    cards = [f"{name}.card" for name in (*HOLDERS, *TELLERS)]
    limits = ["--min-holders", 3, "--colluding", 1, "--owner", "owner.pub"]
    succeeded("study", "make", "design.json", *cards, *limits, "-o", "s.study")
    for name in TELLERS:
        succeeded("study", "accept", "s.study", "--key", f"{name}.key")
    succeeded("key", "trust", "a.pub")
    return tmp_path


def seal(name, *more):
    return succeeded(
        "study", "seal", "s.study", f"{name}.npy", "--key", f"{name}.key", *COST,
        "-o", f"{name}.ballot", *more,
    )  # fmt: skip


def tally(name, *more):
    arguments = ["--list", "s.closed", "--key", f"{name}.study.key", "-o", f"{name}.tally"]
    return ["study", "tally", "s.study", ".", *arguments, *more]


def check(*names):
    """All tellers check the ballots of these holders, or of all."""
    ballots = [f"{one}.ballot" for one in names or HOLDERS]
    for name in TELLERS:
        arguments = ["--key", f"{name}.study.key", "-o", f"{name}.checked"]
        run("study", "check", "s.study", *ballots, *arguments)


def close(*ballots):
    return [
        "study",
        "close",
        "s.study",
        *(ballots or ["."]),
        "--key",
        "owner.key",
        "-o",
        "s.closed",
    ]


def test_a_study_from_records_to_a_model(study):
    for name in HOLDERS:
        assert "nothing in it is secret" in seal(name).output
    for name in TELLERS:
        ballots = [f"{one}.ballot" for one in HOLDERS]
        key = ["--key", f"{name}.study.key", "-o", f"{name}.checked"]
        assert succeeded("study", "check", "s.study", *ballots, *key).output.count("valid") == 5
    succeeded(*close(), "--checked", "a.checked", "--checked", "b.checked")
    for name in TELLERS:
        assert f"destroy {name}.study.key" in succeeded(*tally(name)).output
    told = succeeded("study", "join", "s.study", "a.tally", "b.tally", "-o", "total.sketch").output
    assert "the parts of a sealed total cannot be compared" in told
    assert "at least 3 of the 4 holders" in told
    total = ps.Sketch.load("total.sketch")
    assert total.sources == HOLDERS
    # The count's own noise is Gaussian: 6 deviations, 2e-9. A holder more or less is 100 away.
    deviation = total.count_variance**0.5
    assert abs(total.n_records - 4 * N_RECORDS) < 6 * deviation < N_RECORDS / 10
    succeeded("learn", "total.sketch", "-k", 1, "--n-init", 1, "-o", "model.json")


def test_a_design_is_planned_for_those_who_share_its_noise(study):
    assert ps.Design.load("design.json").sharing == "holders"
    assert ps.Design.load("design.json").n_holders == 4
    pure = ["--box", -1, 1, "--dim", 2, "--epsilon", 0.5, "--delta", 0, "--holders", 4]
    succeeded("design", "-k", 2, *pure, "-o", "pure.json")
    assert ps.Design.load("pure.json").sharing == "tellers"
    assert run("design", "-k", 2, *pure[:-2], "--sharing", "tellers", "-o", "x").exit_code == USAGE


def test_a_study_says_what_is_next(study):
    def steps(*more):
        return json.loads(succeeded("study", "show", "s.study", *more, "--json").stdout)["next"]

    assert len(steps()) == 4
    assert steps("--me", "h2.pub") == ["h2: seal your records (privsketch study seal)"]
    for name in HOLDERS:
        seal(name)
    assert [text[:5] for text in steps()] == ["a: ch", "b: ch", "owner"]
    assert steps("--me", "a.pub") == [
        "a: check the ballots when all are cast (privsketch study check --key)"
    ]
    check()
    assert steps() == [
        "owner: close the list when all are cast and checked (privsketch study close)"
    ]
    succeeded(*close())
    assert [text[:1] for text in steps()] == ["a", "b"]
    for name in TELLERS:
        succeeded(*tally(name))
    assert steps("--me", "h0.pub")[0] == "anyone: join the tallies (privsketch study join)"
    assert "privsketch study settle" in steps("--me", "h0.pub")[1]
    assert "privsketch study destroy" in steps("--me", "a.pub")[1]
    end = ["--tally", "a.tally", "--tally", "b.tally"]
    succeeded("study", "destroy", "s.study", "--study-key", "a.study.key", *end)
    assert len(steps("--me", "a.pub")) == 1
    assert "privsketch study destroy" in steps("--me", "b.pub")[1]


def test_a_void_study_says_what_is_next(study):
    succeeded(
        "study", "void", "s.study", "--key", "a.key", "--study-key", "a.study.key", "-o", "a.void"
    )
    told = succeeded("study", "show", "s.study", "--me", "b.pub").output
    assert "void by the statement of a" in told
    assert "privsketch study void" in told
    assert "privsketch study destroy" in told


def test_keys_and_ballots_are_destroyed_when_a_study_has_ended(study):
    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close())
    succeeded(*tally("a"))
    destroy = ["study", "destroy", "s.study", ".", "--study-key", "a.study.key"]
    assert run(*destroy).exit_code == USAGE
    assert "'b' is missing" in refused(study, *destroy, "--tally", "a.tally", code=INTEGRITY)
    succeeded(*tally("b"))
    end = ["--tally", "a.tally", "--tally", "b.tally"]
    Path("note.txt").write_text("no key")
    other = [*destroy[:-1], "note.txt"]
    Path("note.txt").chmod(0o600)
    refused(study, *other, *end, code=INTEGRITY)
    result = succeeded(*destroy, *end)
    assert "removed     4 ballots, 4 copies" in result.output
    assert "solid-state" in result.stderr
    assert not list(study.glob("*.ballot"))
    assert not Path("a.study.key").exists()
    assert Path("a.key").exists()
    again = ["study", "seal", "s.study", "h0.npy", "--key", "h0.key", *COST, "-o", "h0.ballot"]
    assert "destroyed after its end" in refused(study, *again, code=INTEGRITY)
    succeeded("study", "join", "s.study", "a.tally", "b.tally", "-o", "total.sketch")


def test_lists_and_tallies_are_verified_by_anybody(study):
    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close(*(f"{name}.ballot" for name in HOLDERS[:3])))
    for name in TELLERS:
        succeeded(*tally(name))
    everything = ["h0.ballot", "h3.ballot", "a.tally", "b.tally", "s.closed"]
    told = succeeded("study", "check", "s.study", *everything).output
    assert told.count("valid") == 6
    assert "a closed list of 3 ballots, by owner" in told
    assert "a ballot of h0, which counts" in told
    assert "a ballot of h3, which is in no list" in told
    assert "a tally of b, over 3 ballots" in told
    answer = json.loads(succeeded("study", "check", "s.study", *everything, "--json").stdout)
    assert [one["file"] for one in answer["files"]] == ["s.study", *everything]
    assert [one["signer"]["name"] for one in answer["files"]][-3:] == ["a", "b", "owner"]

    Path("s.closed").rename("first.closed")
    succeeded(*close())
    told = run("study", "check", "s.study", "s.closed", "a.tally")
    assert told.exit_code == INTEGRITY
    assert "a tally of another list" in told.output
    assert (
        "another list than" in run("study", "check", "s.study", "s.closed", "first.closed").output
    )

    for file in ("first.closed", "a.tally"):
        data = bytearray(Path(file).read_bytes())
        data[len(data) // 2] ^= 1
        Path("bad").write_bytes(data)
        told = run("study", "check", "s.study", "bad")
        assert told.exit_code == INTEGRITY
        assert "REFUSED     bad" in told.output
    assert "not a ballot, list, tally" in run("study", "check", "s.study", "h0.npy").output
    assert (
        "none of its tellers is trusted"
        in run("study", "check", "s.study", "a.tally", "--trust", "h0.pub").output
    )


def test_seal_finds_its_ballot_in_the_mailbox(study, monkeypatch):
    seal("h0")
    Path("box").mkdir()
    Path("h0.ballot").rename("box/h0.ballot")
    monkeypatch.setenv("PRIVSKETCH_HOME", str(study / "elsewhere"))
    again = ["study", "seal", "s.study", "h1.npy", "--key", "h0.key", *COST, "--trust", "a.pub"]
    dry = json.loads(succeeded(*again, "--mailbox", "box", "--dry-run", "--json").stdout)
    assert dry["was_cast"]
    found = succeeded(*again, "--mailbox", "box", "-o", "again.ballot")
    assert "nothing is read" in found.stderr
    assert Path("again.ballot").read_bytes() == Path("box/h0.ballot").read_bytes()
    other = [
        "study",
        "seal",
        "s.study",
        "h1.npy",
        "--key",
        "h1.key",
        *COST,
        "--trust",
        "a.pub",
        "-o",
        "x",
    ]
    assert "not a folder" in refused(study, *other, "--mailbox", "nowhere", code=3)


def test_who_enrols_says_as_what(study):
    enrol = ["study", "enrol", "design.json", "--key", "h0.key", "-o", "new.card"]
    assert "--accept-alone" in run(*enrol).stderr
    assert run(*enrol).exit_code == USAGE
    assert run(*enrol, *COST, "--teller").exit_code == USAGE
    assert run(*enrol, *COST, "--study-key", "x.key").exit_code == USAGE
    assert "exists" in refused(study, *enrol[:-1], "h0.card", *COST, code=3)
    assert not Path("new.card").exists()


def test_other_numbers_of_holders_than_planned_are_told(study):
    cards = [f"{name}.card" for name in (*HOLDERS[:3], *TELLERS)]
    made = succeeded("study", "make", "design.json", *cards, "-o", "t.study")
    assert made.stderr.count("planned for 4 holders, and 3 have enrolled") == 1
    assert "plan the design again for 3" in made.stderr
    assert "planned for 4 holders" in succeeded("study", "show", "t.study").stderr
    assert "planned" not in succeeded("study", "show", "s.study").output


def test_study_keys_are_secret_and_never_overwritten(study):
    assert Path("a.study.key").stat().st_mode & 0o777 == 0o600
    again = ["study", "enrol", "design.json", "--key", "a.key", "--teller", "-o", "z.card"]
    assert "never overwritten" in refused(study, *again, "--study-key", "a.study.key", code=3)
    Path("a.study.key").chmod(0o644)
    seal("h0")
    found = run("study", "check", "s.study", "h0.ballot", "--key", "a.study.key")
    assert found.exit_code == INTEGRITY
    assert "chmod 600" in found.stderr


def test_a_study_key_has_the_passphrase_of_its_teller(study, monkeypatch):
    from privsketch.signing import is_locked

    seams.set(monkeypatch, "encryption.SCRYPT", {"n": 16, "r": 1, "p": 1})
    Path("secret").write_text("correct horse\n")
    Path("secret").chmod(0o600)
    with_it = ["--passphrase-file", "secret"]
    succeeded("key", "make", "c.key", *with_it)
    succeeded(
        "study", "enrol", "design.json", "--key", "c.key", "--teller", "-o", "c.card", *with_it
    )
    assert is_locked("c.study.key")
    assert ps.Key.load("c.study.key", passphrase="correct horse").public.for_study


def test_a_dry_run_shows_the_holder_its_records_and_makes_nothing(study):
    before = sorted(study.iterdir())
    arguments = ["study", "seal", "s.study", "h0.npy", "--key", "h0.key", *COST, "--dry-run"]
    told = succeeded(*arguments).output
    assert "private: " in told
    assert f"{N_RECORDS:,}" in told
    assert "all tellers together, or all other holders" in told
    assert "nothing was spent" in told
    for_machines = json.loads(succeeded(*arguments, "--json").output)
    del for_machines["fingerprint"]  # random digits, which may be any
    assert not any(f"{N_RECORDS:{form}}" in json.dumps(for_machines) for form in ("d", ","))
    assert sorted(study.iterdir()) == before


def test_a_dry_run_has_the_exit_code_of_a_check(study):
    """Planted: records of which most lie beyond the bounds, and a cell that is no number."""
    table = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    np.save("far.npy", table * [1, 100])
    np.savetxt("bad.csv", [["x", "y"], ["0.5", "oops"]], fmt="%s", delimiter=",")
    arguments = ["--key", "h0.key", *COST, "--dry-run"]
    for name in ("far.npy", "bad.csv"):
        checked = run("check", "design.json", name)
        for more in ([], ["--json"]):
            told = run("study", "seal", "s.study", name, *arguments, *more)
            assert told.exit_code == checked.exit_code == 3
            assert "nothing was spent" in told.stderr
    assert not list(study.glob("*.ballot"))


def test_a_study_asks_for_a_rounded_number_that_is_enough(study):
    seal_h0 = ["study", "seal", "s.study", "h0.npy", "--key", "h0.key", "--dry-run"]
    told = refused(study, *seal_h0, "--accept-alone", 0.51, code=BUDGET)
    (asked,) = re.findall(r"accept alone = (\d\.\d{1,3}), for", told)
    succeeded(*seal_h0, "--accept-alone", asked)


def test_no_ballot_without_a_pinned_teller_or_above_what_is_accepted(study):
    seal_h0 = ["study", "seal", "s.study", "h0.npy", "--key", "h0.key", "-o", "h0.ballot"]
    low = refused(study, *seal_h0, "--accept-alone", 0.51, code=BUDGET)
    assert "--accept-alone 0.51" in low
    assert run(*seal_h0).exit_code == USAGE  # there is no default
    succeeded("key", "trust", "--forget", "a")
    assert "none of the tellers is pinned" in refused(study, *seal_h0, *COST, code=INTEGRITY)
    succeeded(*seal_h0, *COST, "--trust", "b.pub")


def test_a_late_ballot_is_refused_where_a_closed_list_lies(study):
    for name in HOLDERS[:3]:
        seal(name)
    check(*HOLDERS[:3])
    late = ["study", "seal", "s.study", "h3.npy", "--key", "h3.key", *COST]
    data = signed_json("closed-list", {"study": "0" * 64, "ballots": []}, ps.Key.generate("eve"))
    Path("eve.closed").write_bytes(data)  # of nobody who may close this study
    succeeded(*late, "--dry-run")
    assert "no ballot   of h3" in succeeded(*close()).output
    for options in (["-o", "h3.ballot"], ["--dry-run"]):
        told = refused(study, *late, *options, code=INTEGRITY)
        assert "s.closed: the list of this study is closed" in told
        assert "no record was read" in told
    with pytest.raises(StudyError, match="is closed"):
        studies.seal(
            "h3.npy",
            studies.SealedStudy.load("s.study"),
            key=ps.Key.load("h3.key"),
            accept_alone=5,
            mailbox=".",
        )
    again = ["study", "seal", "s.study", "h0.npy", "--key", "h0.key", *COST, "-o"]
    assert json.loads(succeeded(*again, "again.ballot", "--json").stdout)["was_cast"]
    assert "s.closed has this ballot, and it counts" in succeeded(*again, "more.ballot").output


def test_a_ballot_that_the_closed_list_left_out_counts_nowhere(study):
    for name in HOLDERS:
        seal(name)
    check(*HOLDERS[:3])
    succeeded(*close(), "--leave-out", "h3")
    again = ["study", "seal", "s.study", "h3.npy", "--key", "h3.key", *COST, "-o", "again.ballot"]
    told = succeeded(*again).output
    assert "s.closed is closed without this ballot, and it counts nowhere" in told
    assert "put it into the mailbox" not in told


def test_a_ballot_that_came_after_the_checks_is_not_denied(study):
    """The list is not closed without it, unless the owner says so; its holder waits for checks."""
    for name in HOLDERS[:3]:
        seal(name)
    check(*HOLDERS[:3])
    seal("h3")
    steps = json.loads(succeeded("study", "show", "s.study", "--me", "h3.pub", "--json").stdout)
    assert steps["next"] == [
        "h3: wait for a and b to check your ballot (privsketch study check --key); without that it "
        "does not count"
    ]
    assert steps["mailbox"]["unchecked"] == [{"holder": "h3", "tellers": ["a", "b"]}]
    told = refused(study, *close(), code=INTEGRITY)
    assert "h3.ballot: the ballot of h3 is not checked by a and b" in told
    assert "--leave-out h3" in told
    assert not Path("s.closed").exists()
    assert run(*close(), "--leave-out", "h2").exit_code == USAGE  # it was checked, and counts
    left = succeeded(*close(), "--leave-out", "h3")
    assert "closed      3 ballots of 4 holders" in left.output
    assert "no ballot   of" not in left.output
    assert "the ballot of h3 is left out" in left.stderr
    shown = succeeded("study", "show", "s.study", "--me", "h3.pub")
    assert "the ballot of h3 is not on the closed list" in shown.stderr
    assert "h3: your ballot is not on the closed list and counts nowhere" in shown.output

    # The command that the refusal names runs as it stands, in the place of the earlier file.
    Path("s.closed").unlink()
    line = told.partition("Next, each of these tellers: privsketch ")[2].partition(";")[0]
    for name in TELLERS:
        words = line.replace("STUDY-KEY", f"{name}.study.key").replace("NAME", name).split()
        files = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
        succeeded(*(file for group in files for file in group))
    steps = json.loads(succeeded("study", "show", "s.study", "--me", "h3.pub", "--json").stdout)
    assert steps["next"] == ["h3: wait for owner to close the list"]
    assert "closed      4 ballots of 4 holders" in succeeded(*close()).output


def test_a_check_replaces_an_earlier_one_with_fewer_ballots_and_nothing_else(study):
    for name in HOLDERS[:3]:
        seal(name)
    check("h0", "h1")
    again = ["study", "check", "s.study", "--key", "a.study.key", "-o"]
    succeeded(*again, "a.checked", *(f"{name}.ballot" for name in HOLDERS[:3]))
    assert len(studies.CheckedBallots.load("a.checked").ballots) == 3
    before = Path("a.checked").read_bytes()
    told = refused(study, *again, "a.checked", "h0.ballot", code=3)
    assert "has ballots that this check does not have" in told
    ballots = [f"{name}.ballot" for name in HOLDERS[:3]]
    refused(study, *again, "b.checked", *ballots, code=3)  # of the other teller
    refused(study, *again, "h0.ballot", *ballots, code=3)
    assert Path("a.checked").read_bytes() == before


def test_a_check_of_no_ballots_is_not_written(study):
    told = refused(
        study, "study", "check", "s.study", "--key", "a.study.key", "-o", "a.checked",
        code=INTEGRITY,
    )  # fmt: skip
    assert "a check of no ballots says nothing" in told
    assert not Path("a.checked").exists()
    assert run("study", "check", "s.study", "-o", "a.checked").exit_code == USAGE


def test_a_teller_trusts_itself_and_needs_no_other_key(study):
    seal("h0")
    succeeded("key", "trust", "--forget", "a")
    check = ["study", "check", "s.study", "h0.ballot"]
    assert "pin it (privsketch key trust FILE.pub)" in run(*check).output
    succeeded(*check, "--key", "b.study.key", "-o", "b.checked")
    Path("home").rename("elsewhere")  # where no study was accepted
    told = run(*check, "--key", "a.study.key", "-o", "a.checked")
    assert told.exit_code == INTEGRITY
    assert not Path("a.checked").exists()


def test_a_list_without_enough_ballots_does_not_end_the_study(study):
    for name in HOLDERS[:2]:
        seal(name)
    check("h0", "h1")
    told = refused(study, *close(), code=INTEGRITY)
    assert "2 ballots count, but 3 or more are needed: a list waits" in told
    assert "is void" not in told


def test_a_second_seal_gives_the_first_ballot(study):
    seal("h0")
    again = ["study", "seal", "s.study", "h1.npy", "--key", "h0.key", *COST, "-o", "again.ballot"]
    found = succeeded(*again)
    assert "nothing is read" in found.stderr
    assert Path("again.ballot").read_bytes() == Path("h0.ballot").read_bytes()
    assert json.loads(succeeded(*again[:-1], "third.ballot", "--json").stdout)["was_cast"]


def test_a_bad_ballot_spoils_nothing(study):
    for name in HOLDERS:
        seal(name)
    data = bytearray(Path("h3.ballot").read_bytes())
    data[-200] ^= 1
    Path("h3.ballot").write_bytes(data)
    ballots = [f"{name}.ballot" for name in HOLDERS]
    result = run(
        "study", "check", "s.study", *ballots, "--key", "a.study.key", "-o", "a.checked", "--json"
    )
    assert result.exit_code == INTEGRITY
    assert [one["is_valid"] for one in json.loads(result.stdout)["files"]] == [True] * 4 + [False]
    assert "not checked by 'b'" in refused(study, *close(), code=INTEGRITY)
    one = ["--checked", "a.checked"]
    assert "not checked by 'b'" in refused(study, *close(), *one, code=INTEGRITY)
    told = run("study", "check", "s.study", *ballots, "--key", "b.study.key", "-o", "b.checked")
    assert "b.checked names the ballots that can be opened: send it" in told.stderr
    both = ["--checked", "a.checked", "--checked", "b.checked"]
    told = json.loads(succeeded(*close(), *both, "--json").stdout)
    assert (told["holders"], told["missing"]) == (["h0", "h1", "h2"], ["h3"])


def test_one_list_for_a_study_key(study):
    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close())
    first = succeeded(*tally("a"))
    assert "over 4 ballots" in first.output
    data = Path("a.tally").read_bytes()
    Path("s.closed").rename("first.closed")
    succeeded(*close(*(f"{name}.ballot" for name in HOLDERS[:3])))
    assert "tallies once" in refused(study, *tally("a", "--force"), code=INTEGRITY)
    Path("first.closed").replace("s.closed")
    succeeded(*tally("a", "--force"))
    assert Path("a.tally").read_bytes() == data
    key = ps.Key.load("a.study.key").fingerprint
    for name in ("use", "tally"):  # a restored backup
        teller_file(key, name).unlink()
    Path("s.closed").unlink()
    succeeded(*close(*(f"{name}.ballot" for name in HOLDERS[:3])))
    assert "has tallied another list" in refused(study, *tally("a", "--force"), code=INTEGRITY)


def test_a_ledger_counts_a_ballot_and_takes_it_back(study):
    succeeded("ledger", "create", "l.ledger")
    succeeded("ledger", "add", "l.ledger", "visits", "--epsilon", 1, "--delta", "1e-5")
    seal("h0", "--ledger", "l.ledger")
    told = succeeded("ledger", "show", "l.ledger", "visits").output
    assert "of 1 ballot instead of" in told
    assert "epsilon = 0.5" in told
    succeeded(
        "study", "void", "s.study", "--key", "a.key", "--study-key", "a.study.key", "-o", "a.void"
    )
    assert not Path("a.study.key").exists()
    settle = ["study", "settle", "s.study", "--holder", "h0", "--ledger", "l.ledger"]
    assert run(*settle).exit_code == USAGE
    assert run(*settle, "--void", "a.void", "--tally", "a.tally").exit_code == USAGE
    assert run(*settle, "--total", "total.sketch", "--trust", "a").exit_code == USAGE
    # Teller a is pinned, which is not enough.
    told = refused(study, *settle, "--void", "a.void", code=INTEGRITY)
    assert "'b' did not declare" in told
    assert "--trust" in told
    succeeded(*settle, "--void", "a.void", "--trust", "a")
    assert not ps.Ledger("l.ledger").total("visits").epsilon
    assert not ps.Ledger("l.ledger").total_alone("visits").epsilon


def test_a_ballot_that_a_ledger_refuses_is_not_made(study):
    succeeded("ledger", "create", "l.ledger")
    succeeded("ledger", "add", "l.ledger", "visits", "--epsilon", 0.1, "--delta", "1e-5")
    arguments = [
        "study",
        "seal",
        "s.study",
        "h0.npy",
        "--key",
        "h0.key",
        *COST,
        "--ledger",
        "l.ledger",
    ]
    refused(study, *arguments, "-o", "h0.ballot", code=BUDGET)
    assert run(*arguments, "--dry-run").exit_code == BUDGET


def test_a_rehearsal_costs_nothing_and_touches_no_key(study):
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*")}
    told = json.loads(succeeded("study", "rehearse", "s.study", "--turnout", 3, "--json").stdout)
    assert told["turnout"] == 3
    assert 0.3 < told["noise_ratio"] < 2
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*")} == before
    assert run("study", "rehearse", "s.study", "--turnout", 1).exit_code == USAGE


def test_what_belongs_to_another_study_is_told(study):
    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close())
    for name in TELLERS:
        succeeded(*tally(name))
    cards = [f"{name}.card" for name in (*HOLDERS, *TELLERS)]
    limits = ["--min-holders", 3, "--colluding", 1]
    succeeded("study", "make", "design.json", *cards, *limits, "-o", "t.study")
    other = refused(study, "study", "accept", "t.study", "--key", "a.key", code=INTEGRITY)
    assert "used for another study" in other
    assert "not signed by" in refused(
        study,
        "study",
        "seal",
        "t.study",
        "h0.npy",
        "--key",
        "h0.key",
        *COST,
        "-o",
        "x",
        code=INTEGRITY,
    )
    join = ["study", "join", "t.study", "a.tally", "b.tally", "-o", "x.sketch"]
    assert "of another study" in refused(study, *join, code=INTEGRITY)
    assert (
        run("study", "check", "h0.ballot", "s.study", "--key", "a.study.key").exit_code == INTEGRITY
    )


def test_everything_can_be_inspected(study):
    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close())
    succeeded(*tally("a"))
    for file, word in (
        ("s.study", "accepted by a, b"),
        ("h0.card", "a holder"),
        ("a.card", "study key"),
        ("h0.ballot", "digest"),
        ("s.closed", "4 ballots"),
        ("a.tally", "over 4 ballots"),
    ):
        assert word in succeeded("inspect", file).output
    assert ps.load("s.study").is_open
