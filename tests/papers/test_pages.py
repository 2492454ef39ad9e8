"""Pages about the papers: made of a text and of results, and up to date in this repository."""

import shutil
from pathlib import Path

import pytest

from papers.harness import pages, results
from papers.harness.targets import TARGETS, find_targets
from privsketch import ParameterError

PAPERS = Path(__file__).parents[2] / "docs" / "papers"
NAMES = ("jll-figure1", "jll-table1")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """A figure and a table in their smallest size."""
    folder = tmp_path_factory.mktemp("reproduced")
    return {
        target.name: results.run(target, folder, "tiny", lambda share: None)
        for target in find_targets(NAMES)
    }


@pytest.fixture
def papers(tmp_path):
    """A folder of papers with one text, and a folder of results in which nothing is yet."""
    (tmp_path / "text").mkdir()
    text = "# JLL\n\n{{jll-figure1}}\n\nbetween\n\n{{jll-table1}}\n\nand {{jll-table1}} inside\n"
    (tmp_path / "text" / "jll.md").write_text(text)
    return tmp_path


@pytest.mark.slow
def test_a_page_has_what_lies_beside_its_text(papers, outcomes):
    for name in NAMES:
        for path in outcomes[name].files:
            (papers / "jll").mkdir(exist_ok=True)
            shutil.copy(path, papers / "jll")
    pages.main([str(papers)])
    page = (papers / "jll.md").read_text()
    assert "![Figure 1: the records in three dimensions](jll/jll-figure1.png)" in page
    assert "and {{jll-table1}} inside" in page  # only whole lines are places
    for name in NAMES:
        words = outcomes[name].text
        table = words.split("\n\n", 1)[1]
        assert table.splitlines()[0] in page
        assert " ".join(words.splitlines()[-1].split()) in " ".join(page.split())
    assert page.index("jll-figure1.png") < page.index("between") < page.index("accuracy of k-means")
    before = {path: path.stat().st_mtime_ns for path in papers.rglob("*") if path.is_file()}
    pages.main([str(papers)])
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_pages_and_words_follow_the_rows(papers, outcomes):
    (papers / "jll").mkdir()
    csv_path, txt_path = outcomes["jll-table1"].files
    changed = csv_path.read_text().replace("0.9783", "0.8765")
    (papers / "jll" / "jll-table1.csv").write_text(changed)
    shutil.copy(txt_path, papers / "jll")
    pages.main([str(papers), "jll"])
    words = (papers / "jll" / "jll-table1.txt").read_text()
    assert words.splitlines()[-1] == txt_path.read_text().splitlines()[-1]
    assert words != txt_path.read_text()


def test_a_page_says_what_was_not_run(papers):
    pages.main([str(papers)])
    page = (papers / "jll.md").read_text()
    assert "jll-figure1 was not run yet: `python -m papers jll-figure1`" in page


def test_a_text_that_asks_for_what_is_no_target(papers):
    (papers / "text" / "jll.md").write_text("{{jll-table2}}\n")
    with pytest.raises(ParameterError, match=r"jll\.md: \{\{jll-table2\}\} is no target"):
        pages.main([str(papers)])
    assert not (papers / "jll.md").exists()


@pytest.mark.parametrize("paper", pages.papers_of(PAPERS))
def test_pages_are_up_to_date(paper):
    # After a change of a text, of rows or of the words about them: make docs.
    for path, content in pages.made_from(PAPERS, [paper]).items():
        assert path.read_text() == content, f"{path.name}: run make docs"


def test_every_target_has_its_place_on_a_page():
    for paper in pages.papers_of(PAPERS):
        text = (PAPERS / "text" / f"{paper}.md").read_text()
        own = [target.name for target in TARGETS if target.short_paper == paper]
        assert all(f"\n{{{{{name}}}}}\n" in text for name in own)
