"""The total of holders that share its noise, as a sketch: how it was added up is not its matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import MergeError, ParameterError
from privsketch.design.recipe import Design
from privsketch.facts.budget import checked_source
from privsketch.noise.mechanism import OWN_SAMPLER, SAMPLERS
from privsketch.noise.sharing.plan import Sharing
from privsketch.sketching.sketch import Sketch, ids_of
from privsketch.sketching.verdict import Verdict


def joined_sketch(
    design: Design,
    words: npt.NDArray[np.int64] | npt.NDArray[np.uint64],
    sharing: Sharing,
    *,
    sources: Sequence[str],
    study: str,
    exact_count: int | None = None,
    sampler: str = OWN_SAMPLER,
) -> Sketch:
    """Return a sketch of the total of `sources`, with the noise and the receipt of a shared total.

    Charges nothing: the words are released already.

    Parameters
    ----------
    design : Design
    words : (n_words,) int64 or uint64
        The total at the level of this turnout, modulo 2^64, noise included.
    sharing : Sharing
        That of the study, for the noise of this design.
    sources : list of str
        Names of all holders in the total; their number is the turnout.
    study : str
        Its random name, without a colon.
    exact_count : int, optional
        Number of records in all, where the design makes it public.
    sampler : str
        What drew the noise, as receipts say it; anything insecure stays so.
    """
    if sharing.noise != design.sum_noise:
        raise ParameterError("sharing: it is for the noise of another design")
    if words.shape != (sharing.n_words,) or words.dtype not in (np.int64, np.uint64):
        raise ParameterError(f"words: expected {sharing.n_words} 64-bit integers")
    names = tuple(checked_source(source) for source in sources)
    if len(set(names)) != len(names):
        raise MergeError("join: a source occurs twice; every holder is in a total once")
    if ":" in checked_source(study):
        raise ParameterError("study", study, "expected a name without a colon")
    if (design.count == "public") != (exact_count is not None):
        raise ParameterError("exact_count: expected where the number of records is public, only")
    if sampler not in SAMPLERS:
        raise ParameterError("sampler", sampler, "expected what a receipt says")
    total = sharing.total(len(names), study)
    values = np.ascontiguousarray(words).view(np.int64).copy()
    receipt = total.receipt(design.sum_noise, sampler).naming(design.mapping.origin)
    verdict = Verdict(reasons=("sealed",)) if len(names) > 1 else None
    return Sketch(values, design, receipt, ids_of(total), names, exact_count, (), (total,), verdict)
