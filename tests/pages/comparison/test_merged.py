"""Merging compares: what it finds is in the total, and in every model of the total."""

import json
from dataclasses import replace

import pytest

import privsketch as ps
from benchmarks.compare_sites import clinic_study
from privsketch.pages import report_page
from privsketch.sketching import Alarm, Verdict
from tests import seams
from tests.answers import validated
from tests.commands import INTEGRITY, refused, succeeded

pytestmark = pytest.mark.usefixtures("fixed_noise")


@pytest.fixture(scope="module")
def poisoned():
    """Sketches of five sites, of which site-1 has cholesterol in mg/dl."""
    return clinic_study(0, "cholesterol-x38.67")


@pytest.fixture(scope="module")
def total(poisoned):
    with pytest.warns(ps.PrivsketchWarning, match="site-1: cholesterol"):
        return ps.merge(poisoned)


@pytest.fixture(scope="module")
def files(poisoned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    for sketch in poisoned:
        sketch.save(folder / f"{sketch.sources[0]}.sketch")
    return sorted(folder.glob("*.sketch"))


def test_a_site_in_other_units_is_a_warning_and_stays_in_the_total(poisoned, total):
    (alarm,) = total.verdict.alarms
    assert alarm.source == "site-1"
    assert total.verdict.compared == tuple(f"site-{s}" for s in range(5))
    assert (total.values == ps.merge(poisoned, compare=False).values).all()


@pytest.mark.slow
def test_every_model_of_the_total_says_so_first(total):
    total = ps.Sketch.from_bytes(total.to_bytes())
    for model in (
        ps.learn_kmeans(total, 4, n_init=1),
        ps.learn_gaussian_mixture(total, 4, n_init=1, covariance_type="diag"),
    ):
        assert model.concerns[0].startswith("a source looks wrong: site-1: cholesterol")
        assert type(model).from_bytes(model.to_bytes()).concerns == model.concerns
        assert "site-1: cholesterol" in report_page(model, total)
    honest = ps.learn_kmeans(ps.merge(clinic_study(0)), 4, n_init=1)
    assert not any("looks wrong" in text for text in honest.concerns)


def test_components_of_the_total_say_so_too(make_records):
    design = ps.Design.plan(
        task="pca", n_components=1, domain=ps.Ball(dim=3, radius=3.0),
        budget=ps.Budget(epsilon=1.0, delta=1e-6), n_records=1000, random_state=1,
    )  # fmt: skip
    sites = [ps.sketch(make_records(500, seed=s), design, source=n) for s, n in enumerate("abc")]
    total = replace(ps.merge(sites), verdict=Verdict((Alarm("a", "odd"),), ("a", "b", "c")))
    assert ps.learn_pca(total).concerns[0] == "a source looks wrong: a: odd"


def test_fewer_than_three_sites_are_not_compared_and_the_total_says_so(poisoned):
    total = ps.merge(poisoned[:2])
    assert total.verdict.reasons == ("few",)
    assert "0 of 2 sources: a comparison needs 3 sketches" in total.describe()
    later = ps.merge([total, *poisoned[2:4]])
    assert later.verdict.compared == ("site-2", "site-3")
    assert later.verdict.reasons == ("few",)


def test_an_alarm_of_a_part_stays(poisoned, total):
    other = replace(
        poisoned[0],
        ids=("f",),
        sources=("f",),
        receipt=replace(poisoned[0].receipt, source="f"),
        values=poisoned[0].values + 1,
    )
    with pytest.warns(ps.PrivsketchWarning, match="site-1"):
        more = ps.merge([total, other])
    assert more.verdict.alarms == total.verdict.alarms
    assert more.verdict.reasons == ("few",)


def test_many_sketches_are_compared_only_if_asked(poisoned, monkeypatch):
    seams.set(monkeypatch, "comparison.MAX_MERGED", 3)
    assert ps.merge(poisoned).verdict.reasons == ("many",)
    with pytest.warns(ps.PrivsketchWarning):
        assert ps.merge(poisoned, compare=True).verdict.alarms


def test_commands_print_it_go_on_and_refuse_where_asked(files, tmp_path):
    output = tmp_path / "all.sketch"
    assert "site-1: cholesterol" in refused(
        tmp_path, "merge", *files, "-o", output, "--refuse-alarms", code=INTEGRITY
    )
    told = succeeded("merge", *files, "-o", output, "--json")
    answer = json.loads(told.stdout)
    validated(answer, "merge")
    assert [alarm["source"] for alarm in answer["verdict"]["alarms"]] == ["site-1"]
    assert answer["cautions"][0].startswith("a source looks wrong: site-1: cholesterol")
    assert "ALARM       a source looks wrong: site-1: cholesterol" in told.stderr
    assert "ALARM       site-1: cholesterol" in succeeded("inspect", output).stdout
    learned = succeeded("learn", output, "-k", "4", "--n-init", "1", "--json").stdout
    assert "site-1: cholesterol" in json.loads(learned)["concerns"][0]
    honest = succeeded("merge", files[0], *files[2:], "-o", tmp_path / "b", "--refuse-alarms")
    assert "compared    all 4 sources" in honest.stdout


def test_two_sketches_are_refused_where_one_looks_wrong(files, tmp_path):
    """A script that asks for it gets no total of two sites of which one is wrong."""
    output = tmp_path / "two.sketch"
    asked = ("-o", output, "--refuse-alarms")
    said = refused(tmp_path, "merge", *files[:2], *asked, code=INTEGRITY)
    assert "one of the two, site-1: cholesterol" in said
    told = succeeded("merge", files[0], files[2], *asked).stdout
    assert "compared with each other, none looks wrong" in told
    assert "compared    0 of 2 sources" in told  # as without the option: which one nobody can say


def test_a_sketch_alone_is_refused_where_alarms_are(files, tmp_path):
    asked = ("-o", tmp_path / "one.sketch", "--refuse-alarms")
    said = refused(tmp_path, "merge", files[0], *asked, code=INTEGRITY)
    assert "nobody has compared" in said
    succeeded("merge", files[0], *files[2:], "-o", tmp_path / "all.sketch")
    succeeded("merge", tmp_path / "all.sketch", *asked)  # it was compared when it was made
