"""engine='cuda': the sums of threads bit for bit, wherever records are; and what it says without a
device. Tests marked `cuda` need one."""

from types import SimpleNamespace

import numpy as np
import pytest

import privsketch as ps
from privsketch._base.errors import KernelError, ParameterError, RecordError
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Ball, Box
from privsketch.features.maps import feature_map
from privsketch.kernels.cuda import driver
from privsketch.kernels.dense import ReferenceKernel
from privsketch.sketching.build import engine_sums
from privsketch.sketching.engines import cuda
from privsketch.sketching.sums import ExactSums, exact_sums
from privsketch.tables.device import device_table, is_device_table
from tests.reading import selection_of


def has_device():
    try:
        driver.device()
    except KernelError:
        return False
    return True


needs_device = [
    pytest.mark.cuda,
    pytest.mark.skipif(not has_device(), reason="no device of NVIDIA's"),
]


def planned(dim=10, domain=None, **options):
    options = {"n_components": 1, "n_features": 300, **options}
    return Design.plan(
        domain=domain or Box(-3, 3, dim=dim),
        budget=Budget(epsilon=1.0, delta=1e-6),
        random_state=0,
        **options,
    )


def table(n, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim))


def same(data, design, expected_data=None, n_threads=None, **facts):
    """Asserts that the device gives the sums of threads."""
    found = engine_sums(ps.Table(data, **facts), design, engine=ps.engines.Cuda(n_threads))
    data = data if expected_data is None else expected_data
    expected = engine_sums(ps.Table(data, **facts), design, engine="threads")
    assert found.n_records == expected.n_records
    assert found.n_kept == expected.n_kept
    np.testing.assert_array_equal(found.sums, expected.sums)


# --- on a device -------------------------------------------------------------------------------


class TestOnADevice:
    pytestmark = needs_device

    @pytest.mark.parametrize("dim", [1, 2, 5, 10, 16, 17, 31, 40, 64, 100, 200, 256, 300, 500])
    def test_any_number_of_columns(self, dim):
        same(table(3001, dim), planned(dim))

    @pytest.mark.parametrize("n", [0, 1, 7, 128, 129, 50_000])
    def test_any_number_of_records(self, n):
        same(table(n, 10), planned(10))

    @pytest.mark.parametrize("n_features", [6, 16, 17, 300, 1024, 5000])
    def test_any_number_of_features(self, n_features):
        same(table(2000, 10), planned(10, n_features=n_features))

    @pytest.mark.parametrize("name", ["one-bit", "fourier"])
    def test_maps_with_tables(self, name):
        same(table(20_000, 11), planned(11, feature_map=name))

    @pytest.mark.parametrize("name", ["quadratic", "second-moments"])
    def test_maps_of_principal_components(self, name):
        options = {} if name == "second-moments" else {"n_features": 60}
        design = planned(
            domain=Ball(12, 4.0), task="pca", feature_map=name, **{"n_features": None, **options}
        )
        same(table(20_000, 12), design)

    def test_the_mean_is_summed_too(self):
        design = planned(
            domain=Ball(12, 4.0),
            task="pca",
            feature_map="quadratic",
            n_features=60,
            mean="released",
        )
        assert len(engine_sums(table(9, 12), design, engine="cuda").sums) == 60 + 12
        same(table(20_000, 12), design)

    def test_structured_frequencies_are_summed_on_the_host(self):
        same(table(5000, 10), planned(10, frequencies="structured"))

    @pytest.mark.parametrize("domain", [Ball(10, 3.0, 0.5), Box([-3] * 9 + [0], [3] * 9 + [1])])
    @pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1", "i8", ">f8", "b1"])
    def test_domains_and_number_types(self, domain, dtype):
        same(
            (2 * table(5000, 10)).clip(0 if dtype == "u1" else -99).astype(dtype),
            planned(10, domain),
        )

    def test_other_orders_of_memory_and_columns(self):
        x = table(5000, 20)
        same(np.asfortranarray(x[:, :10]), planned(10))
        same(x[::3, ::2], planned(10))
        same(x, planned(10), columns=list(range(19, 9, -1)))

    def test_iterables_of_blocks(self):
        x = table(5000, 10)
        same(iter([x[:100], x[100:4000], x[4000:]]), planned(10), expected_data=x, n_threads=3)

    def test_missing_values(self):
        x = table(5000, 10)
        x[77, 3], x[78, 4] = np.nan, np.inf
        for domain in (Box(-3, 3, dim=10), Ball(10, 3.0)):
            same(x, planned(10, domain), missing_missing="center")
            with pytest.raises(RecordError, match="missing"):
                engine_sums(x, planned(10, domain), engine="cuda")

    def test_many_copies_at_once(self, monkeypatch):
        monkeypatch.setattr("privsketch.sketching.engines.cuda._COPY_BYTES", 10_000)
        seen = []
        same(table(30_000, 10), planned(10), n_threads=8, progress=seen.append)
        assert sum(seen) == 2 * 30_000

    def test_records_that_are_drawn_leave_the_others(self, monkeypatch):
        kept = np.random.default_rng(0).random(20_000) < 0.3
        for place in ("engines.cuda", "sums"):
            monkeypatch.setattr(f"privsketch.sketching.{place}.bernoulli", lambda n, rate: kept[:n])
        design = planned(10, masks="records:0.3")
        found = engine_sums(table(20_000, 10), design, engine="cuda")
        monkeypatch.undo()
        expected = engine_sums(table(20_000, 10)[kept], planned(10), engine="threads")
        assert (found.n_records, found.n_kept) == (20_000, kept.sum())
        np.testing.assert_array_equal(found.sums, expected.sums)

    @pytest.mark.parametrize("dim", [10, 40])
    @pytest.mark.parametrize("name", ["fourier", "one-bit"])
    def test_block_masks(self, dim, name, monkeypatch):
        from privsketch.sketching.engines import cuda

        drawn = []

        def noted(count, size, kept):
            drawn.append(np.argsort(rng.random((count, size)), axis=1) < kept)
            return drawn[-1]

        rng = np.random.default_rng(0)
        monkeypatch.setattr(cuda, "subsets", noted)
        design = planned(dim, feature_map=name, n_features=8 * dim, masks=f"block:{3 * dim}")
        x = table(3000, dim)
        found = engine_sums(x, design, engine=ps.engines.Cuda(1))
        from privsketch.features.fixedpoint import Quantiser

        f, domain = design.frequencies, design.domain
        reference = ReferenceKernel(
            feature_map(name), f.matrix(domain), f.offsets(domain), f.turn_bits
        )
        kept = np.repeat(np.concatenate(drawn), dim, axis=1)
        assert kept.sum() == 3000 * 3 * dim
        np.testing.assert_array_equal(found.sums, reference.sums(Quantiser(domain)(x), kept))

    @pytest.mark.parametrize("library", ["torch", "cupy", "jax.numpy"])
    def test_arrays_on_the_device_are_read_where_they_are(self, library):
        module = pytest.importorskip(library)
        x = table(5000, 20).astype(np.float32)
        there = module.asarray(x)
        if library == "torch":
            there = there.cuda()
        assert is_device_table(there)
        for design in (
            planned(20),
            planned(20, Ball(20, 3.0)),
            planned(20, frequencies="structured"),
        ):
            same(there, design, expected_data=x)
            found = engine_sums(there, design)  # without being told where
            np.testing.assert_array_equal(found.sums, exact_sums([x], design).sums)
        same(there, planned(3), expected_data=x, columns=[19, 0, 7])
        if library != "jax.numpy":
            same(there[::3, 4:14], planned(10), expected_data=x[::3, 4:14])

    def test_pinned_arrays_are_copied_from_where_they_are(self):
        torch = pytest.importorskip("torch")
        x = torch.from_numpy(table(5000, 10)).pin_memory().numpy()
        assert driver.is_pinned(x)
        assert not driver.is_pinned(table(5, 10))
        same(x, planned(10))

    def test_a_kernel_that_differs_is_not_used(self, monkeypatch):
        from privsketch.kernels.cuda import features, sums

        coefficients = (*features.COSINE_COEFFICIENTS[:-1], features.COSINE_COEFFICIENTS[-1] + 1)
        monkeypatch.setattr(features, "COSINE_COEFFICIENTS", coefficients)
        shape = sums.shape_for(10, 33, 5, has_lists=False)
        function = sums._loaded.__wrapped__("fourier", shape)
        assert not sums._agrees("fourier", shape, function)
        monkeypatch.undo()
        assert sums._agrees("fourier", shape, sums._loaded.__wrapped__("fourier", shape))


# --- without one -------------------------------------------------------------------------------


@pytest.mark.skipif(has_device(), reason="there is a device")
def test_without_a_device_nothing_is_read():
    def unread():
        raise AssertionError
        yield

    with pytest.raises(KernelError, match=r"engine='cuda'.*use engine='threads'"):
        engine_sums(unread(), planned(), engine="cuda")


def test_a_fault_of_the_device_reaches_the_caller(monkeypatch):
    # Threads that wait for a stream would wait for ever if the one that failed kept it.
    class Faulty:
        def memory(self, name, n_bytes):
            raise KernelError("a fault")

        def finish(self):
            raise KernelError("a fault, again")

    monkeypatch.setattr(cuda, "_Lane", Faulty)
    monkeypatch.setattr(cuda, "_DeviceSums", lambda design: None)
    monkeypatch.setattr(cuda, "_Quantisers", lambda work: None)
    monkeypatch.setattr(cuda, "to_device", lambda array: None)
    monkeypatch.setattr(cuda, "is_pinned", lambda array: False)
    monkeypatch.setattr(cuda, "device", lambda: SimpleNamespace(use=lambda: None))
    with pytest.raises(KernelError, match="again"):
        cuda._from_host(
            (table(5, 10) for _ in range(50)), SimpleNamespace(design=planned()), 4, None
        )


def test_more_records_than_sums_of_a_device_hold_are_summed_in_parts(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_RECORDS", 100)
    seen = []

    def part(blocks, work, n_threads, progress):
        sizes = [len(block) for block in blocks]
        seen.append(sizes)
        return ExactSums(np.array([2**62 if sizes else 0]), sum(sizes), sum(sizes))

    monkeypatch.setattr(cuda, "_part_from_host", part)
    found = cuda._from_host((table(size, 2) for size in (60, 60, 99, 1, 30)), None, 1, None)
    assert seen == [[60, 60], [99, 1], [30]]
    assert found.n_records == 250
    assert found.sums.tolist() == [2**63 - 1]  # it does not wrap
    assert cuda._from_host([], None, 1, None).n_records == 0


class OnDevice:
    """An array that says it is on a device."""

    def __init__(self, **said):
        self.said = {"shape": (7, 10), "typestr": "<f4", "data": (4096, True), "version": 3, **said}

    @property
    def __cuda_array_interface__(self):
        return self.said


def test_arrays_on_a_device_need_its_engine():
    assert is_device_table(OnDevice())
    assert not is_device_table(np.zeros((3, 2)))
    assert not is_device_table("file.npy")
    with pytest.raises(ParameterError, match="engine='threads' with an array on a device"):
        engine_sums(OnDevice(), planned(), engine="threads")


def test_where_the_columns_of_a_device_array_are():
    everything = selection_of(10, None, None)
    plain = device_table(OnDevice(), everything)
    assert (plain.address, plain.n, plain.row) == (4096, 7, 10)
    assert plain.places == tuple(range(10))
    assert plain.dtype == np.float32
    turned = device_table(OnDevice(strides=(4, 28)), everything)
    assert (turned.row, turned.places) == (1, tuple(range(0, 70, 7)))
    some = device_table(OnDevice(), selection_of(2, [9, 3], None))
    assert some.places == (9, 3)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"shape": (7,)}, "2 dimensions"),
        ({"shape": (7, 9)}, "9 columns"),
        ({"typestr": "<c8"}, "not numeric"),
        ({"mask": OnDevice()}, "without gradients"),
        ({"strides": (10, 4)}, "without gradients"),  # records would lie in each other
        ({"typestr": None, "shape": None}, "without gradients"),
    ],
)
def test_arrays_on_a_device_that_are_no_tables(said, words):
    with pytest.raises(RecordError, match=words):
        device_table(OnDevice(**said), selection_of(10, None, None))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "?"])
def test_dlpack_says_the_same(dtype):
    array = np.zeros((6, 20), dtype)[::2, 3:13]
    array.flags.writeable = True
    capsule_only = type(
        "Tensor",
        (),
        {"__dlpack_device__": lambda self: (2, 0), "__dlpack__": lambda self: array.__dlpack__()},
    )()
    assert is_device_table(capsule_only)
    found = device_table(capsule_only, selection_of(10, None, None))
    assert (found.address, found.n, found.row) == (array.ctypes.data, 3, 40)
    assert found.places == tuple(range(10))
    assert found.dtype == array.dtype


def test_what_the_device_has_kernels_for():
    from privsketch.sketching.engines.cuda import has_kernel

    assert has_kernel(planned())
    assert has_kernel(planned(masks="block:100"))
    assert not has_kernel(planned(masks="uniform:100"))
    assert not has_kernel(planned(frequencies="structured"))
    assert not has_kernel(planned(600, n_features=400))
    assert not has_kernel(SimpleNamespace(masks=None, feature_map="second-moments"))
