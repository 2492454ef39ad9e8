"""Every seam leads to something: who moves a name changes its line in tests/seams.py."""

import builtins

import pytest

from tests import seams


@pytest.mark.parametrize("name", seams.SEAMS)
def test_a_seam_leads_to_something(name):
    place, attribute = seams.owner(name)
    assert hasattr(place, attribute) or hasattr(builtins, attribute)


def test_what_is_replaced_comes_back():
    before = seams.get("files.FILE_VALUES")
    with seams.replaced("files.FILE_VALUES", 1):
        assert seams.get("files.FILE_VALUES") == 1
    assert seams.get("files.FILE_VALUES") == before
