"""A compiled kernel that differs from its definition refuses to run."""

from itertools import product

import numpy as np
import pytest

import privsketch as ps
from privsketch import KernelError
from privsketch.features import COSINE_COEFFICIENTS, SINE_COEFFICIENTS
from privsketch.kernels import (
    DOUBLE,
    I16,
    Value,
    atoms,
    decoder,
    dense,
    features,
    fma,
    hadamard,
    masses,
    nearest,
    pairs,
    quantiser,
    rint,
    select,
    trunc,
)
from tests import seams

pytestmark = pytest.mark.slow  # together more than a twentieth of a quick run

MODES = ("whole", "masked", "listed")
WIDTHS = (128, 256, 512)


def compile_dense(name="fourier", mode="whole"):
    return dense._compile.__wrapped__(name, mode)


def compile_hadamard(name="fourier", size=256, masked=False):
    return hadamard._compile.__wrapped__(name, size, masked)


def compile_decoder(kind="float", atom_widths=True, labels=False):
    return decoder.compile_evaluation.__wrapped__(kind, atom_widths, labels)


def compile_quantiser(number="f8", layout="rows", output="integers"):
    return quantiser.compile_quantiser.__wrapped__(number, layout, output)


def compile_cut(with_integers=True):
    return quantiser.compile_cut.__wrapped__(with_integers)


def compile_clusters(mode="residuals", norm=2):
    return nearest.compile_clusters.__wrapped__(mode, norm)


def refuses(compiled, *arguments):
    with pytest.raises(KernelError, match="differs from its definition") as caught:
        compiled(*arguments)
    assert isinstance(caught.value, ps.PrivsketchError)
    assert isinstance(caught.value, RuntimeError)


# --- what is right passes ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "bits", [128, *(pytest.param(b, marks=pytest.mark.audit) for b in WIDTHS[1:])]
)
def test_kernels_agree_with_their_definitions(bits, monkeypatch):
    seams.set(monkeypatch, "machine.vector_bits", lambda: bits)
    dense.tile_size.cache_clear()
    for mode in MODES:
        for name in ("fourier", "one-bit", "quadratic"):
            compile_dense(name, mode)
    for name in ("fourier", "one-bit"):
        compile_hadamard(name, 64, False)
        compile_hadamard(name, 1024, True)
    for kind in ("float", "double"):
        for atom_widths, labels in product((False, True), repeat=2):
            compile_decoder(kind, atom_widths, labels)
        pairs.compile_merges.__wrapped__(kind)
    pairs.compile_phases.__wrapped__()
    for is_label in ((False,), (False, False, True), (True, True), (False,) * 8):
        masses.compile_masses.__wrapped__(is_label)
    for number, layout in (("f8", "rows"), ("f4", "columns"), ("i8", "rows"), ("u1", "columns")):
        compile_quantiser(number, layout, "both")
    compile_cut()
    for mode in nearest.MODES:
        compile_clusters(mode, 1)
    monkeypatch.undo()
    dense.tile_size.cache_clear()


def test_the_largest_transform_agrees():
    compile_hadamard("one-bit", 2**15, False)


# --- what is planted does not ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "coefficients"),
    [("SINE_COEFFICIENTS", SINE_COEFFICIENTS), ("COSINE_COEFFICIENTS", COSINE_COEFFICIENTS)],
)
@pytest.mark.parametrize("place", range(3))
def test_a_coefficient_off_by_its_last_digit(name, coefficients, place, monkeypatch):
    wrong = list(coefficients)
    wrong[place] += 1
    monkeypatch.setattr(features, name, tuple(wrong))
    for mode in MODES:
        refuses(compile_dense, "fourier", mode)
    for masked in (False, True):
        refuses(compile_hadamard, "fourier", 64, masked)


@pytest.mark.slow
def test_one_wrong_phase_of_65536(monkeypatch):
    right = features.TableFeature.halves

    def wrong(self, phases, shift):
        index = right(self, phases, shift)
        flipped = (index ^ 12_345) < 1  # at one index only
        return select(flipped, index ^ 0x8000, index)

    seams.set(monkeypatch, "features.TableFeature.halves", wrong)
    for name in ("fourier", "one-bit"):
        for mode in MODES:
            refuses(compile_dense, name, mode)
        for size in (64, 2048):
            for masked in (False, True):
                refuses(compile_hadamard, name, size, masked)


@pytest.mark.parametrize(("name", "feature"), features.TABLE_FEATURES.items())
def test_a_wrong_excess(name, feature, monkeypatch):
    cosine, sine = feature.excess
    for excess in ((cosine + 1, sine), (cosine, sine - 1)):
        monkeypatch.setattr(type(feature), "excess", excess)
        refuses(compile_dense, name)
        refuses(compile_hadamard, name)


@pytest.mark.slow
def test_sums_that_are_widened_too_late(monkeypatch):
    seams.set(monkeypatch, "features.FourierFeature.max_records", 264)
    refuses(compile_dense, "fourier", "whole")
    refuses(compile_hadamard, "fourier", 64, False)
    seams.set(monkeypatch, "features.FourierFeature.max_records", 528)  # masks keep one half
    for mode in MODES:
        refuses(compile_dense, "fourier", mode)
    for size, masked in ((64, True), (1024, False)):
        refuses(compile_hadamard, "fourier", size, masked)


@pytest.mark.parametrize("half", [0x0000FFFF, 0xFFFF0000])
def test_one_record_of_two_left_out(half, monkeypatch):
    right = features.TableFeature.masked

    def wrong(self, halves, n_records, masks):
        found = right(self, halves, n_records, masks)
        whole = found.bits_as(features.I32.vector(found.kind.lanes // 2))
        return (whole & half).bits_as(found.kind) if n_records == 2 else found

    seams.set(monkeypatch, "features.TableFeature.masked", wrong)
    for name in ("fourier", "one-bit"):
        for mode in MODES:
            refuses(compile_dense, name, mode)
        refuses(compile_hadamard, name)


@pytest.mark.parametrize("name", ["high_product", "rounded_product"])
def test_products_that_round_otherwise(name, monkeypatch):
    right = getattr(features, name)
    monkeypatch.setattr(features, name, lambda a, b: right(a, b) + 1)
    refuses(compile_dense)
    refuses(compile_hadamard)


def test_squares_of_products_without_their_sign(monkeypatch):
    seams.set(monkeypatch, "builder.Value.signed_to", Value.unsigned_to)
    for mode in MODES:
        refuses(compile_dense, "quadratic", mode)


def test_masks_upside_down(monkeypatch):
    def wrong(mask, one, other):
        return select(mask, other, one)

    seams.set(monkeypatch, "features.select", wrong)
    refuses(compile_dense, "fourier", "masked")
    refuses(compile_dense, "quadratic", "masked")
    refuses(compile_hadamard, "fourier", 64, True)


def test_pairs_of_columns_with_a_wrong_sign(monkeypatch):
    def wrong(a, b):
        product = a.signed_to(features.I32) * b.signed_to(features.I32)
        even = range(0, product.kind.lanes, 2)
        return product.shuffled(even) - product.shuffled([place + 1 for place in even])

    seams.set(monkeypatch, "dense.pairwise_products", wrong)
    seams.set(monkeypatch, "butterflies.pairwise_products", wrong)
    refuses(compile_dense)
    refuses(compile_hadamard)


@pytest.mark.parametrize("size", [64, 256, 2048])
def test_butterflies_the_wrong_way_round(size, monkeypatch):
    def wrong(values, bits):
        for bit in bits:
            for low in range(len(values)):
                high = low | 1 << bit
                if low != high:
                    a, b = values[low], values[high]
                    values[low], values[high] = a + b, b - a

    seams.set(monkeypatch, "butterflies.butterflies", wrong)
    refuses(compile_hadamard, "fourier", size)


def test_one_pass_left_out(monkeypatch):
    seams.set(monkeypatch, "butterflies.Batch.butterfly_pass", lambda self, places, *, read: None)
    refuses(compile_hadamard, "fourier", 4096)


def test_lanes_that_do_not_rotate(monkeypatch):
    seams.set(monkeypatch, "butterflies.rotate", lambda values, rotation: None)
    refuses(compile_hadamard, "one-bit", 128)


@pytest.mark.parametrize(("kind", "relative"), [("float", 1e-4), ("double", 1e-12)])
@pytest.mark.parametrize("name", ["half sine", "half cosine", "power of two"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_wrong_coefficient_of_the_decoder(kind, relative, name, place, monkeypatch):
    right = atoms._coefficients

    def wrong(function, n_terms):
        coefficients = list(right(function, n_terms))
        if function == name:
            coefficients[place] *= 1 + relative
        return coefficients

    seams.set(monkeypatch, "atoms.coefficients", wrong)
    refuses(compile_decoder, kind, True)


def test_derivatives_of_the_decoder_with_a_wrong_sign(monkeypatch):
    def wrong(a, b, c):
        return fma(a, b, -c) if hasattr(c, "kind") else fma(a, b, c)

    seams.set(monkeypatch, "decoder.fma", wrong)
    for atom_widths in (False, True):
        refuses(compile_decoder, "double", atom_widths)


def test_products_of_factors_with_a_wrong_sign(monkeypatch):
    right = decoder._product
    seams.set(monkeypatch, "decoder.product", lambda a, b: right(a, (b[0], -b[1])))
    for atom_widths in (False, True):
        refuses(compile_decoder, "double", atom_widths, True)
        compile_decoder("double", atom_widths)  # has none


def test_merges_that_forget_the_second_atom(monkeypatch):
    right = pairs._MergeWriter.add_cost

    def wrong(self, *arguments):
        self.routine.pointers["second"] = self.routine.pointers["first"]
        return right(self, *arguments)

    seams.set(monkeypatch, "pairs.MergeWriter.add_cost", wrong)
    for kind in ("float", "double"):
        refuses(pairs.compile_merges.__wrapped__, kind)


@pytest.mark.parametrize("name", ["masses.normal", "masses.part_rows", "masses.fma"])
def test_masses_with_an_error(monkeypatch, name):
    right = seams.get(name)
    wrong = {
        "masses.normal": lambda z: (right(z)[0], right(z)[1], right(z)[2] * 1.000001),
        "masses.part_rows": lambda *arguments: right(*arguments)[::-1][:1] * arguments[2],
        "masses.fma": lambda a, b, c: fma(a, -b, c),
    }
    masses._compiled_factors.cache_clear()
    seams.set(monkeypatch, name, wrong[name])
    refuses(masses.compile_masses.__wrapped__, (False, False, False))
    masses._compiled_factors.cache_clear()


def test_phases_with_a_wrong_sign(monkeypatch):
    seams.set(monkeypatch, "pairs.fma", lambda a, b, c: fma(a, b, -c))
    refuses(pairs.compile_phases.__wrapped__)


def test_the_decoder_without_its_last_derivative(monkeypatch):
    right = decoder._EvaluationWriter.scatter

    def wrong(self, name, *arguments):
        if name != "by_variance":
            right(self, name, *arguments)

    seams.set(monkeypatch, "decoder.EvaluationWriter.scatter", wrong)
    refuses(compile_decoder, "float", True)
    compile_decoder("float", False)  # has none


# --- records to integers -----------------------------------------------------------------------


def every_quantiser_is_refused(number="f8"):
    for layout in ("rows", "columns"):
        for output in ("integers", "wholes"):
            refuses(compile_quantiser, number, layout, output)


def test_limits_that_are_not_kept(monkeypatch):
    seams.set(monkeypatch, "quantiser.clip", lambda x, low, high: select(low < x, x, low))
    every_quantiser_is_refused()


def test_rounding_down_instead_of_to_the_nearest(monkeypatch):
    seams.set(monkeypatch, "quantiser.rint", trunc)
    seams.set(monkeypatch, "quantiser.rounded_integers", lambda x: trunc(x).signed_to(I16))
    every_quantiser_is_refused()


def test_halves_away_from_zero(monkeypatch):
    def wrong(x):
        nothing = x.constant(0.0)
        return trunc(x + select(x < nothing, x.constant(-0.5), x.constant(0.5)))

    seams.set(monkeypatch, "quantiser.rint", wrong)
    for layout in ("rows", "columns"):
        refuses(compile_quantiser, "f8", layout, "wholes")


def test_integers_read_without_their_sign(monkeypatch):
    kind, _ = quantiser.INPUTS["i4"]
    monkeypatch.setitem(quantiser.INPUTS, "i4", (kind, False))
    every_quantiser_is_refused("i4")


def test_a_flag_that_is_never_raised(monkeypatch):
    right = quantiser._QuantiserRoutine.quantised

    def wrong(self, source, lanes, tables):
        unchanged = list(self.all_finite)
        units = right(self, source, lanes, tables)
        self.all_finite[:] = unchanged
        return units

    seams.set(monkeypatch, "quantiser.quantised", wrong)
    every_quantiser_is_refused("f4")


def test_columns_that_are_not_turned(monkeypatch):
    seams.set(monkeypatch, "quantiser.transposed", lambda tile: tile)
    refuses(compile_quantiser, "f8", "columns", "wholes")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("trunc", rint),
        ("sqrt", lambda x: x),
        ("lane_sum", lambda x: x.shuffled([0]).bits_as(DOUBLE)),
    ],
)
def test_a_ball_with_a_wrong_edge(name, wrong, monkeypatch):
    monkeypatch.setattr(quantiser, name, wrong)
    for with_integers in (False, True):
        refuses(compile_cut, with_integers)


# --- sums over clusters ------------------------------------------------------------------------


def every_cluster_sum_is_refused(modes=nearest.MODES, norms=(1, 2)):
    for mode in modes:
        for norm in norms:
            refuses(compile_clusters, mode, norm)


def test_of_centers_as_near_the_last_one(monkeypatch):
    seams.set(monkeypatch, "nearest.Group.is_nearer", lambda self, score, best: score <= best)
    every_cluster_sum_is_refused(("sums", "residuals", "lengths"))


def test_residuals_that_are_rounded_to_the_nearest(monkeypatch):
    seams.set(monkeypatch, "nearest.trunc", rint)
    every_cluster_sum_is_refused(("residuals",))


def test_residuals_that_are_not_cut(monkeypatch):
    seams.set(
        monkeypatch,
        "nearest.Group.longest",
        lambda self, length, radius: radius,
    )
    every_cluster_sum_is_refused(("residuals",))


def test_lengths_with_signs(monkeypatch):
    seams.set(monkeypatch, "nearest.absolute", lambda x: x)
    every_cluster_sum_is_refused(("residuals", "lengths"), norms=(1,))


def test_squared_lengths_as_lengths(monkeypatch):
    seams.set(monkeypatch, "nearest.sqrt", lambda x: x)
    every_cluster_sum_is_refused(("residuals",), norms=(2,))


@pytest.mark.parametrize("lanes", [0, nearest.LANES])
def test_columns_that_are_left_out(lanes, monkeypatch):
    right = nearest._Group.columns

    def wrong(self, carried=None):
        return (pair for pair in right(self, carried) if pair[0] != lanes)

    seams.set(monkeypatch, "nearest.Group.columns", wrong)
    every_cluster_sum_is_refused(("sums", "residuals"))


def test_bins_with_their_lower_edge(monkeypatch):
    seams.set(monkeypatch, "nearest.Group.is_below", lambda self, edge, length: edge <= length)
    every_cluster_sum_is_refused(("lengths",))


def test_a_refused_kernel_is_not_kept(monkeypatch):
    blocks = hadamard.StructuredBlocks(
        np.ones((1, 64), np.int8), np.ones((1, 64), np.int8), np.ones((1, 64), np.int32), 64, 64
    )
    arguments = hadamard.feature_map("fourier"), blocks, np.zeros(64, np.uint32)
    hadamard._compile.cache_clear()
    with monkeypatch.context() as planted:
        seams.set(planted, "butterflies.rotate", lambda values, rotation: None)
        for _ in range(2):
            refuses(hadamard.StructuredKernel, *arguments)
    hadamard.StructuredKernel(*arguments)
