"""A compiled kernel that differs from its definition refuses to run."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.errors import KernelError
from privsketch.features.fourier import COSINE_COEFFICIENTS, SINE_COEFFICIENTS
from privsketch.kernels import butterflies, decoder, dense, features, hadamard
from privsketch.kernels import dense as fourier
from privsketch.kernels.builder import I64, fma, select

MODES = ("whole", "masked", "listed")
WIDTHS = (128, 256, 512)


def compile_dense(name="fourier", mode="whole"):
    return dense._compile.__wrapped__(name, mode)


def compile_hadamard(name="fourier", size=256, masked=False):
    return hadamard._compile.__wrapped__(name, size, masked)


def compile_decoder(kind="float", own_widths=True):
    return decoder.compile_evaluation.__wrapped__(kind, own_widths)


def refuses(compiled, *arguments):
    with pytest.raises(KernelError, match="differs from its definition") as caught:
        compiled(*arguments)
    assert isinstance(caught.value, ps.PrivsketchError)
    assert isinstance(caught.value, RuntimeError)


# --- what is right passes ----------------------------------------------------------------------


@pytest.mark.parametrize("bits", WIDTHS)
def test_kernels_agree_with_their_definitions(bits, monkeypatch):
    monkeypatch.setattr("privsketch.kernels.machine.vector_bits", lambda: bits)
    dense.tile_size.cache_clear()
    for mode in MODES:
        for name in ("fourier", "one-bit", "quadratic"):
            compile_dense(name, mode)
    for name in ("fourier", "one-bit"):
        compile_hadamard(name, 64, False)
        compile_hadamard(name, 1024, True)
    for kind in ("float", "double"):
        compile_decoder(kind, False)
        compile_decoder(kind, True)
        decoder.compile_merges.__wrapped__(kind)
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
    wrong[place] = float(np.nextafter(np.float32(wrong[place]), np.float32(np.inf)))
    monkeypatch.setattr(features, name, tuple(wrong))
    for mode in MODES:
        refuses(compile_dense, "fourier", mode)
    for masked in (False, True):
        refuses(compile_hadamard, "fourier", 64, masked)


def test_one_wrong_phase_of_65536(monkeypatch):
    right = features.OneBitFeature.of_index

    def wrong(self, index):
        cosine, sine = right(self, index)
        flipped = (index ^ 12_345) < 1  # at one index only
        return cosine, select(flipped, sine ^ 2, sine)

    monkeypatch.setattr(features.OneBitFeature, "of_index", wrong)
    for mode in MODES:
        refuses(compile_dense, "one-bit", mode)
    for size in (64, 2048):
        for masked in (False, True):
            refuses(compile_hadamard, "one-bit", size, masked)


def test_a_wrong_excess(monkeypatch):
    monkeypatch.setattr(features.FourierFeature, "excess", features.FourierFeature.excess + 1)
    refuses(compile_dense)
    refuses(compile_hadamard)


def test_squares_of_products_without_their_sign(monkeypatch):
    def wrong(self, phase, shift):
        wide = phase.unsigned_to(I64)
        square = wide * wide >> shift.unsigned_to(I64).splat(phase.kind.lanes)
        return square.unsigned_to(features.I32), phase.constant(0)

    monkeypatch.setattr(features.QuadraticFeature, "of_phase", wrong)
    for mode in MODES:
        refuses(compile_dense, "quadratic", mode)


def test_masks_upside_down(monkeypatch):
    def wrong(mask, pair, feature):
        nothing = pair[0].constant(feature.excess)
        return select(mask, nothing, pair[0]), select(mask, nothing, pair[1])

    monkeypatch.setattr(fourier, "kept", wrong)
    monkeypatch.setattr(butterflies, "kept", wrong)
    refuses(compile_dense, "fourier", "masked")
    refuses(compile_hadamard, "fourier", 64, True)


def test_pairs_of_columns_with_a_wrong_sign(monkeypatch):
    def wrong(a, b):
        product = a.signed_to(features.I32) * b.signed_to(features.I32)
        even = range(0, product.kind.lanes, 2)
        return product.shuffled(even) - product.shuffled([place + 1 for place in even])

    monkeypatch.setattr(fourier, "pairwise_products", wrong)
    monkeypatch.setattr(butterflies, "pairwise_products", wrong)
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

    monkeypatch.setattr(butterflies, "butterflies", wrong)
    refuses(compile_hadamard, "fourier", size)


def test_one_pass_left_out(monkeypatch):
    monkeypatch.setattr(butterflies._Batch, "butterfly_pass", lambda self, places, *, read: None)
    refuses(compile_hadamard, "fourier", 4096)


def test_lanes_that_do_not_rotate(monkeypatch):
    monkeypatch.setattr(butterflies, "rotate", lambda values, rotation: None)
    refuses(compile_hadamard, "one-bit", 128)


@pytest.mark.parametrize(("kind", "relative"), [("float", 1e-4), ("double", 1e-12)])
@pytest.mark.parametrize("name", ["_half_sine", "_half_cosine", "_power_of_two"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_wrong_coefficient_of_the_decoder(kind, relative, name, place, monkeypatch):
    right = getattr(decoder, name)

    def wrong(n_terms):
        coefficients = list(right(n_terms))
        coefficients[place] *= 1 + relative
        return coefficients

    monkeypatch.setattr(decoder, name, wrong)
    refuses(compile_decoder, kind, True)


def test_derivatives_of_the_decoder_with_a_wrong_sign(monkeypatch):
    def wrong(a, b, c):
        return fma(a, b, -c) if hasattr(c, "kind") else fma(a, b, c)

    monkeypatch.setattr(decoder, "fma", wrong)
    for own_widths in (False, True):
        refuses(compile_decoder, "double", own_widths)


def test_merges_that_forget_the_second_atom(monkeypatch):
    right = decoder._MergeWriter.grown

    def wrong(self, merge, new, place, n_features, total):
        self.routine.pointers["second"] = self.routine.pointers["first"]
        return right(self, merge, new, place, n_features, total)

    monkeypatch.setattr(decoder._MergeWriter, "grown", wrong)
    for kind in ("float", "double"):
        refuses(decoder.compile_merges.__wrapped__, kind)


def test_the_decoder_without_its_last_derivative(monkeypatch):
    right = decoder._EvaluationWriter.scatter

    def wrong(self, name, *arguments):
        if name != "by_variance":
            right(self, name, *arguments)

    monkeypatch.setattr(decoder._EvaluationWriter, "scatter", wrong)
    refuses(compile_decoder, "float", True)
    compile_decoder("float", False)  # has none


def test_a_refused_kernel_is_not_kept(monkeypatch):
    blocks = hadamard.StructuredBlocks(
        np.ones((1, 64), np.int8), np.ones((1, 64), np.int8), np.ones((1, 64), np.int32), 64, 64
    )
    arguments = hadamard.feature_map("fourier"), blocks, np.zeros(64, np.uint32)
    hadamard._compile.cache_clear()
    with monkeypatch.context() as planted:
        planted.setattr(butterflies, "rotate", lambda values, rotation: None)
        for _ in range(2):
            refuses(hadamard.StructuredKernel, *arguments)
    hadamard.StructuredKernel(*arguments)
