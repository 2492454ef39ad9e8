"""Code for processors other than the one at hand: chosen, checked, and looked at."""

import re

import pytest

from benchmarks.processors import PROCESSORS, compiled_for, runs_here
from privsketch.kernels import dense, hadamard, machine, nearest, quantiser

X86 = ("plain x86-64", "SSSE3", "AVX2", "AVX-512", "Sapphire Rapids", "Zen 4")


def instructions(name, mode="whole", map_name="fourier"):
    processor = PROCESSORS[name]
    lanes = processor.vector_bits // 32
    shape = dense.Shape(lanes, 2, 8 if lanes == 16 else 4)
    source = dense.sums_routine(map_name, shape, mode, processor.words)
    return machine.assembly(source, processor)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_kernels_agree_on_every_processor_that_runs_here(name):
    processor = PROCESSORS[name]
    if not runs_here(processor):
        pytest.skip("this machine lacks its instructions")
    with compiled_for(processor):
        for map_name in ("fourier", "one-bit", "quadratic"):
            for mode in ("whole", "masked", "listed"):
                dense._compile(map_name, mode)  # compares all phases, and refuses
        for map_name in ("fourier", "one-bit"):
            hadamard._compile.__wrapped__(map_name, 256, True)


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("name", X86)
def test_quantisers_and_clusters_agree_on_every_processor_that_runs_here(name):
    processor = PROCESSORS[name]
    if not runs_here(processor):
        pytest.skip("this machine lacks its instructions")
    with compiled_for(processor):
        for layout in ("rows", "columns"):
            quantiser.compile_quantiser.__wrapped__("f8", layout, "both")
        quantiser.compile_cut.__wrapped__(True)
        for mode in nearest.MODES:
            nearest.compile_clusters.__wrapped__(mode, 1)


@pytest.mark.parametrize(
    ("name", "rounding", "product"),
    [
        ("SSSE3", r"roundpd.*%xmm", r"mulpd.*%xmm"),
        ("AVX2", r"vroundpd.*%ymm", r"vfmadd231pd.*%ymm"),
        ("AVX-512", r"vrndscalepd.*%zmm", r"vfmadd231pd.*%zmm"),
        ("Zen 4", r"vrndscalepd.*%zmm", r"vfmadd231pd.*%zmm"),
        ("NEON", r"frinti\s", r"fmla\s"),
    ],
)
def test_records_are_quantised_and_compared_with_centers_in_vectors(name, rounding, product):
    processor = PROCESSORS[name]
    with compiled_for(processor):
        for layout in ("rows", "columns"):
            module = quantiser.quantiser_routine("f8", layout, "both")
            code = machine.assembly(module, processor)
            assert re.search(rounding, code)
            assert not re.search(r"\bcallq?\b|\bbl\b", code)
        assert re.search(product, machine.assembly(nearest.clusters_routine("sums", 2), processor))


@pytest.mark.parametrize(
    ("name", "wanted", "unwanted"),
    [
        ("plain x86-64", r"pmulhw.*%xmm", r"pmulhrsw"),
        ("SSSE3", r"pmulhrsw.*%xmm", r"%ymm"),
        ("AVX2", r"vpmulhrsw.*%ymm", r"%zmm"),
        ("AVX-512", r"vpmulhrsw.*%zmm", r"vpdpwssd"),
        ("Sapphire Rapids", r"vpdpwssd.*%zmm", r"vpmaddwd"),
        ("Zen 4", r"vpdpwssd.*%zmm", r"vpmaddwd"),
        ("NEON", r"sqrdmulh", r"\bbl\b"),
        ("NEON, any", r"addp\s", r"\bbl\b"),
    ],
)
def test_the_instructions_that_make_it_fast(name, wanted, unwanted):
    code = instructions(name)
    assert re.search(wanted, code)
    assert not re.search(unwanted, code)
    assert not re.search(r"\bcallq?\b|fmaf", code)


def test_without_its_preference_a_processor_splits_the_dot_product():
    # What the preference is for; if this fails, it is not needed any more.
    processor = PROCESSORS["Sapphire Rapids"]
    plain = machine.Processor(processor.triple, processor.name, processor.words - {"fast-dpwssd"})
    source = dense.sums_routine("fourier", dense.Shape(16, 2, 8), "whole", plain.words)
    assert "vpmaddwd" in machine.assembly(source, plain)


def test_a_processor_is_what_it_says_of_itself_not_what_its_name_says(monkeypatch):
    # A virtual machine may hide instructions of the processor that it names.
    import llvmlite.binding as llvm

    hidden = {"sse2": True, "ssse3": True, "avx2": True, "avx512f": False, "avx512bw": False}
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: hidden)
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "znver4")
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    found = machine.this_processor.__wrapped__()
    assert found.vector_bits == 256
    assert "fast-dpwssd" not in found.words
    lanes = dense.sums_routine("fourier", dense.Shape(8, 2, 4), "whole", found.words)
    assert "%zmm" not in machine.assembly(lanes, found)
    hidden.update(avx512f=True, avx512bw=True, avx512vnni=True)
    assert machine.this_processor.__wrapped__().vector_bits == 512
    assert "fast-dpwssd" in machine.this_processor.__wrapped__().words
    monkeypatch.setattr(llvm, "get_host_cpu_features", dict)
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "arm64-apple-darwin")
    assert machine.this_processor.__wrapped__().words == {"neon"}
