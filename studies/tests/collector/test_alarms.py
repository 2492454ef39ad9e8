"""Alarms of a comparison of the sites, as pages, commands and pulled totals repeat them."""

import json
import re
import time

import numpy as np
import pytest

import privsketch as ps
from privsketch_studies.collector import make_study
from studies.tests.collector.test_web_pages import Browser
from studies.tests.server import World, serving
from tests.commands import succeeded

pytestmark = pytest.mark.slow
DESIGN = ps.Design.plan(
    n_components=3,
    domain=ps.Box([0, 0], [100, 200], columns=["age", "systolic"]),
    n_records=2000,
    budget=ps.Budget(1.0, 1e-6),
    random_state=0,
)
ALARM = "east: systolic: 0.1333 times what the others have"


def sketch_of(name, number):
    """A sketch of a site; all are alike, but east measures in kilopascals."""
    rng = np.random.default_rng(number)
    centers = np.array([[25, 110], [50, 150], [80, 130]])[rng.integers(3, size=2000)]
    records = centers + rng.normal(size=(2000, 2)) * [5, 8]
    return ps.sketch(records * [1, 0.1333 if name == "east" else 1], DESIGN, source=name)


@pytest.fixture
def alarming(tmp_path):
    """A store with a study of three sites, one of which has other units."""
    world = World(str(tmp_path / "c.db"))
    make_study(world.store, "lungs", DESIGN.to_bytes(), owner="olga")
    for number, name in enumerate(("west", "mid", "east")):
        world.add(name, "site", study="lungs")
        data = sketch_of(name, number).to_bytes()
        assert world.push(name, data, study="lungs").status_code == 201
    yield world
    world.store.close()


def test_commands_repeat_an_alarm(alarming, tmp_path):
    (tmp_path / "olga.token").write_text(alarming.tokens["olga"])
    (tmp_path / "olga.token").chmod(0o600)
    store = str(tmp_path / "c.db")
    shown = succeeded("collector", "show", "--store", store)
    assert f"careful     alarm in lungs: {ALARM}" in shown.stderr
    assert "alarm in heart" not in shown.stderr
    facts = json.loads(succeeded("collector", "show", "--store", store, "--json").stdout)
    assert ALARM in facts["cautions"][0]
    with serving(store) as address:
        url, token = f"{address}/studies/lungs", ["--token-file", tmp_path / "olga.token"]
        for _ in range(2):  # also where nothing has changed
            pulled = succeeded("collector", "pull", url, "-o", tmp_path / "box", *token)
            assert f"careful     alarm in lungs: {ALARM}" in pulled.stderr
        url = f"{address}/studies/heart"
        pulled = succeeded("collector", "pull", url, "-o", tmp_path / "other", *token)
        assert "alarm" not in pulled.stderr


def test_pages_repeat_an_alarm_and_expect_nothing_good(alarming):
    olga, east = Browser(alarming, "olga"), Browser(alarming, "east")
    while "being compared" in (text := olga.text("/studies/lungs")):
        time.sleep(0.05)
    expected = text.partition("What to expect of the total")[2].partition("</section>")[0]
    assert re.findall(r'<span class="chip \w+">([^<]+)</span>', expected) == ["In doubt"]
    for page in ("", "/models", "/sources"):
        assert "systolic: 0.1333 times" in olga.text(f"/studies/lungs{page}")
    text = east.text("/studies/lungs")
    assert "Check the units of your table" in text
    assert "There is nothing for you to do now" not in text
