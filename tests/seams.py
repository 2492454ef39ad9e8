"""Inner names that tests replace, and where each of them stands.

Tests say the name on the left. When the house moves, a line on the right changes, and no test.
Public names, those of other libraries and objects of a test need no seam.
"""

import importlib
from contextlib import contextmanager
from operator import attrgetter

import pytest

# Name of the seam: module, colon, attribute.
SEAMS = {
    "aggregate.os": "privsketch.clustering.baselines.aggregate:os",
    "matrix.os": "privsketch.projection.matrix:os",
    "sums.os": "privsketch.sketching.sums:os",
    "parts.FILE_VALUES": "privsketch.tables.parts:FILE_VALUES",
}


def owner(name):
    """The module or class that a seam is in, and the name of the attribute there."""
    module, _, path = SEAMS[name].partition(":")
    place, _, attribute = path.rpartition(".")
    found = importlib.import_module(module)
    return (attrgetter(place)(found) if place else found), attribute


def get(name):
    """What stands there now."""
    found, attribute = owner(name)
    return getattr(found, attribute)


def set(patch, name, value, **options):
    """Replace what stands there until `patch`, a MonkeyPatch, is undone."""
    found, attribute = owner(name)
    patch.setattr(found, attribute, value, **options)


@contextmanager
def replaced(name, value):
    """Replace what stands there for a block."""
    with pytest.MonkeyPatch.context() as patch:
        set(patch, name, value)
        yield
