"""Any order of what people may do in a study, killed at any moment: one list for a key, ever."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import privsketch_studies as studies
from privsketch_studies import StudyError
from privsketch_studies.sealing import once, total_values, void_study
from privsketch_studies.sealing import tally as tally_module
from studies.tests.sealed import PURE, People, cast, integers
from tests import seams

LISTS = [(0, 1, 2), (0, 1, 2, 3), (1, 2, 3)]


class Killed(BaseException):
    """The process ends here."""


class killed_at:  # noqa: N801 - reads like a statement
    """Raise at the n-th step of what is written or added up; before it, or right after it."""

    STEPS = ((once, "_fill"), (once.os, "link"), (tally_module, "_add_up"), (once, "sync_folder"))

    def __init__(self, step, after):
        self.left, self.after, self.was_killed = step, after, False

    def __enter__(self):
        self.before = [getattr(module, name) for module, name in self.STEPS]
        for (module, name), function in zip(self.STEPS, self.before, strict=True):
            setattr(module, name, self._counted(function))
        return self

    def _counted(self, function):
        def step(*arguments):
            self.left -= 1
            if self.left == 0 and not self.after:
                self.was_killed = True
                raise Killed
            result = function(*arguments)
            if self.left == 0:
                self.was_killed = True
                raise Killed
            return result

        return step

    def __exit__(self, kind, error, trace):
        for (module, name), function in zip(self.STEPS, self.before, strict=True):
            setattr(module, name, function)
        return kind is Killed


class StudyMachine(RuleBasedStateMachine):
    """Two tellers of a pure study, whose tallies have fresh noise; three lists of ballots."""

    @initialize(is_open=st.sampled_from([True, True, True, False]))
    def begin(self, is_open):
        self.folder = tempfile.TemporaryDirectory()
        self.before = os.environ.get("PRIVSKETCH_HOME")
        os.environ["PRIVSKETCH_HOME"] = self.folder.name
        self.people = People(design=PURE)
        self.study = self.people.made()
        rng = np.random.default_rng(0)
        self.ballots = [cast(self.study, integers(rng, self.study), k) for k in self.people.holders]
        self.lists = None
        self.published = [{}, {}]  # what each teller has handed out, by list
        self.void = [False, False]
        self.n_tallies = 0
        if is_open:
            for teller in range(2):
                self.accept(teller, step=0, after=False)

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()
            if self.before is None:
                del os.environ["PRIVSKETCH_HOME"]
            else:
                os.environ["PRIVSKETCH_HOME"] = self.before

    @rule(teller=st.integers(0, 1), step=st.integers(0, 4), after=st.booleans())
    def accept(self, teller, step, after):
        with killed_at(step, after):
            self.study.accept(self.people.tellers[teller])
        if self.study.is_open and self.lists is None:
            self.checked = self.people.checked(self.study, self.ballots)
            self.lists = [
                self.people.closed(self.study, [self.ballots[n] for n in chosen])
                for chosen in LISTS
            ]

    @rule(teller=st.integers(0, 1))
    def accept_another(self, teller):
        other = self.people.made()
        accepted = self.people.tellers[teller].name in self.study.accepted
        if accepted:
            with pytest.raises(StudyError, match="another study"):
                other.accept(self.people.tellers[teller])

    @rule(
        teller=st.integers(0, 1),
        chosen=st.integers(0, 2),
        step=st.sampled_from([0] * 8 + list(range(1, 9))),
        after=st.booleans(),
    )
    def tally(self, teller, chosen, step, after):
        self.n_tallies += 1
        if self.lists is None:
            return
        key = self.people.study_keys[teller]
        try:
            with killed_at(step, after) as kill:
                found = studies.tally(
                    self.study, self.ballots, self.lists[chosen], key=key, checked=self.checked
                )
        except StudyError:
            assert self.void[teller] or self.other_use(teller, chosen)
            return
        if kill.was_killed:
            return
        assert not self.void[teller]
        known = self.published[teller].setdefault(chosen, found.to_bytes())
        assert known == found.to_bytes()

    def other_use(self, teller, chosen):
        """Whether a file says that the key is used, and not for this list."""
        key = self.people.study_keys[teller].fingerprint
        use = once.read_state(once.teller_file(key, "use"))
        return use is not None and use != b"list " + self.lists[chosen].digest.encode()

    @precondition(lambda self: self.n_tallies >= 4)  # else there is nothing left to do
    @rule(teller=st.integers(0, 1), step=st.integers(0, 4), after=st.booleans())
    def give_up(self, teller, step, after):
        try:
            with killed_at(step, after) as kill:
                void_study(self.study, key=self.people.tellers[teller], study_key_file=None)
        except StudyError:
            return
        if not kill.was_killed:
            assert not self.published[teller]
            self.void[teller] = True

    @rule()
    def join(self):
        for chosen in set(self.published[0]) & set(self.published[1]):
            tallies = [studies.Tally.from_bytes(self.published[n][chosen]) for n in range(2)]
            assert total_values(self.study, tallies).holders == LISTS[chosen]

    @invariant()
    def one_list_for_a_key_ever(self):
        if hasattr(self, "published"):
            assert all(len(lists) <= 1 for lists in self.published)


TestStudies = StudyMachine.TestCase
TestStudies.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


# ---------------------------------------------------------------- processes that are killed


def at_lines(reached):
    """Call `reached` with the number of lines of the code of sealed studies that were run."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        if "privsketch_studies/sealing" not in frame.f_code.co_filename:
            return None
        if event == "line":
            reached(count)
            count += 1
        return trace

    sys.settrace(trace)


def die_at(n_lines):
    """Be killed before that many lines more."""
    at_lines(lambda count: count >= n_lines and os.kill(os.getpid(), signal.SIGKILL))


def a_study():
    people = People(design=PURE)
    study = people.open_study()
    rng = np.random.default_rng(0)
    ballots = [cast(study, integers(rng, study), key) for key in people.holders]
    lists = [people.closed(study, [ballots[n] for n in chosen]) for chosen in LISTS[:2]]
    terms = {"key": people.study_keys[0], "checked": people.checked(study, ballots)}
    return terms, study, ballots, lists


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    """After how many lines the list is on disk, and after how many the tally."""
    now, found, link = [0], [], os.link

    def linked(*arguments):
        link(*arguments)
        found.append(now[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVSKETCH_HOME", str(tmp_path_factory.mktemp("home")))
        terms, study, ballots, lists = a_study()
        seams.set(patch, "once.os.link", linked)
        before = sys.gettrace()
        at_lines(lambda count: now.__setitem__(0, count))
        try:
            studies.tally(study, ballots, lists[0], **terms)
        finally:
            sys.settrace(before)
    assert len(found) == 2
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("which", [0, 1], ids=["list", "tally"])
@pytest.mark.parametrize("lines", [-200, -20, -5, -1, 0, 1, 2, 5, 20, 200])
def test_a_process_that_is_killed_leaves_one_list_at_most(
    moments, which, lines, tmp_path, monkeypatch
):
    """kill -9 around the moments that matter; then another list is tried, and the same again."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))
    terms, study, ballots, (first, second) = a_study()
    output = tmp_path / "a.tally"
    child = os.fork()
    if child == 0:
        try:
            die_at(moments[which] + lines)
            studies.tally(study, ballots, first, **terms).save(output)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    published = output.read_bytes() if output.exists() else None
    use = once.read_state(once.teller_file(terms["key"].fingerprint, "use"))
    assert (use is None) == (which == 0 and lines <= 0)
    if use is None:
        assert published is None
        studies.tally(study, ballots, second, **terms)
        return
    with pytest.raises(StudyError, match="tallies once"):
        studies.tally(study, ballots, second, **terms)
    again = studies.tally(study, ballots, first, **terms).to_bytes()
    assert published in (None, again)
    assert not list(Path(tmp_path / "home").rglob("*.part")) or published is None
