"""A table of words whose cells are coloured by tones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privsketch._base.types import Floats
from privsketch.models.drawing.axes import INK, PALETTE, label

_DEEPEST = 0.6  # of a colour, so that words on it can be read


def heat_size(n_rows: int, n_columns: int) -> tuple[float, float]:
    """Width and height in inches at which words fit into cells."""
    return 2.0 + 0.85 * n_columns, 0.8 + 0.27 * n_rows


def draw_heat(
    axis: Any,
    names: Sequence[str],
    heads: Sequence[str],
    texts: Sequence[Sequence[str]],
    tones: Floats,
) -> None:
    """Rows of words with tones (n_rows, n_columns) from -1 to 1; NaN for no colour."""
    from matplotlib.colors import to_rgb

    strength = np.clip(np.nan_to_num(tones), -1.0, 1.0)
    cells = np.empty((*strength.shape, 4))
    cells[..., :3] = np.where(strength[..., None] >= 0, to_rgb(PALETTE[0]), to_rgb(PALETTE[1]))
    cells[..., 3] = _DEEPEST * np.abs(strength)
    axis.imshow(cells, aspect="auto", interpolation="nearest")
    for down, row in enumerate(texts):
        for across, text in enumerate(row):
            words = label(text)
            axis.text(across, down, words, ha="center", va="center", color=INK, fontsize=8)
    axis.set_yticks(range(len(names)), [label(name) for name in names])
    axis.set_xticks(range(len(heads)), [label(head) for head in heads])
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
