"""The demo of a collector: a service and everybody else in processes of their own."""

import re

import pytest

import privsketch as ps
from privsketch_studies.collector import Store, verify_store
from tests.commands import DATA, USAGE, refused, succeeded

pytestmark = pytest.mark.browser  # takes pictures where Chromium is there


@pytest.mark.slow
def test_the_demo_shows_the_model_of_an_open_and_of_a_sealed_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = succeeded("collector", "demo", "--records", 1000, "-o", "out").output
    assert re.search(r"serving at http://127\.0\.0\.1:\d+", told)
    assert told.count("uploaded ") == 5
    pages = tmp_path / "out" / "pages"
    for name in ("groups-model", "sealed-model"):
        text = (pages / f"{name}.html").read_text(encoding="utf-8")
        assert "Clusters, 6" in text
        assert "What it cost" in text
        assert 'href="style.css"' in text
    assert "5 of 5 sites" in (pages / "groups.html").read_text(encoding="utf-8")
    assert ">Tallied<" in (pages / "sealed.html").read_text(encoding="utf-8")
    store = Store(str(tmp_path / "out" / "collector" / "collector.db"))
    # 5 sketches; 7 cards, the study, 2 acceptances, 5 ballots, 2 checks, the list, 2 tallies
    assert verify_store(store).n_uploads == 5 + 20
    store.close()
    model = ps.load(tmp_path / "out" / "olga" / "model.json")
    assert model.receipt.epsilon == 0.5
    assert ps.load(tmp_path / "out" / "olga" / "sealed-model.json").receipt.epsilon == 0.05
    tokens = [path.read_text().strip() for path in (tmp_path / "out").glob("*/*.token")]
    assert len(tokens) == 8
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for path in written:
        if path.suffix != ".token":
            data = path.read_bytes()
            assert not [token for token in tokens if token.encode() in data], path
    refused(tmp_path, "collector", "demo", "-o", "out", code=DATA)


def test_the_demo_of_a_collector_is_of_both_kinds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(tmp_path, "collector", "demo", "--sealed", code=USAGE)
