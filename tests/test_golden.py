"""Files written once must stay readable, with the same content, for good.

The files were written by:

    design = golden_design(name)
    design.save(f"{name}.json")
    ps.sketch(golden_records(), design, source="golden").save(f"{name}.sketch")
"""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from privsketch.testing import without_noise

FOLDER = Path(__file__).parent / "golden"
DESIGNS = {
    "gaussian": {"budget": ps.Budget(1.0, 1e-6)},
    "cube-one-bit": {"budget": ps.Budget(0.5), "feature_map": "one-bit"},
    "laplace-replace": {
        "budget": ps.Budget(2.0, neighbours="replace"),
        "noise": "laplace",
        "domain": ps.Ball(dim=3, radius=2.5, center=[0.5, 0.0, -0.5]),
        "frequency_scale": 0.4,
        "columns": ["a", "b", "c"],
    },
    "structured": {
        "budget": ps.Budget(1.0, 1e-6),
        "frequencies": "structured",
        "n_features": 100,
    },
    "quadratic-mean": {
        "task": "pca",
        "budget": ps.Budget(1.0),
        "domain": ps.Ball(dim=3, radius=2.5),
        "feature_map": "quadratic",
        "mean": "released",
        "n_records": 1000,
    },
    "second-moments": {
        "task": "pca",
        "budget": ps.Budget(1.0, 1e-6, "replace"),
        "domain": ps.Ball(dim=3, radius=2.5),
        "feature_map": "second-moments",
        "n_records": 1000,
    },
}
# Masks are secret and fresh, so only the design and the stored release can be compared.
MASKED = {
    "masked": {
        "budget": ps.Budget(1.0),
        "noise": "laplace",
        "masks": "poisson:0.25+records:0.5",
        "n_records": 1000,
    },
}


def golden_design(name):
    settings = {"n_components": 2, "domain": ps.Box(-2, 2, dim=3), "random_state": 2021}
    return ps.Design.plan(**{**settings, **{**DESIGNS, **MASKED}[name]})


def golden_records():
    """250 fixed records without any random generator: fractional parts of multiples of sqrt(2)."""
    values = np.arange(1, 751) * 2**0.5
    return (4 * (values - np.floor(values)) - 2).reshape(250, 3)


@pytest.mark.parametrize("name", [*DESIGNS, *MASKED])
def test_designs(name):
    assert ps.Design.load(FOLDER / f"{name}.json") == golden_design(name)


@pytest.mark.parametrize("name", [*DESIGNS, *MASKED])
def test_sketches(name):
    stored = ps.Sketch.load(FOLDER / f"{name}.sketch")
    assert stored.design.fingerprint == golden_design(name).fingerprint == PRINTS[name][0]
    assert hashlib.sha256(stored.values.astype("<i8").tobytes()).hexdigest() == PRINTS[name][1]
    assert stored.sources == ("golden",)
    assert stored.to_bytes() == (FOLDER / f"{name}.sketch").read_bytes()


@pytest.mark.parametrize("name", DESIGNS)
def test_exact_sums(name):
    # The integers before noise: any change of quantisation, phase or table shows here.
    with without_noise():
        exact = ps.sketch(golden_records(), golden_design(name)).values
    assert hashlib.sha256(exact.astype("<i8").tobytes()).hexdigest() == PRINTS[name][2]
    # The stored release is that, plus noise of the stated size.
    design, stored = golden_design(name), ps.Sketch.load(FOLDER / f"{name}.sketch")
    deviation = np.sqrt(design.sum_noise.sums_law.variance)
    n = design.n_values
    assert np.abs(stored.values[:n] - exact[:n]).max() < 12 * deviation


@pytest.mark.parametrize("name", ["kmeans-model", "center-model"])
def test_models_of_two_kinds_are_models_of_one(name, tmp_path):
    """Version 0.1 had a kind of file for clusters of sketches, and another one for all others.

    Two clusters of 2,000 equal records at -0.5 and 0.5, from a sketch and by Lloyd's rounds.
    """
    found = ps.load(FOLDER / f"{name}.json")
    assert type(found) is ps.ClusterModel
    assert (found.density is not None) == (name == "kmeans-model")
    assert found.method == ("sketch" if name == "kmeans-model" else "lloyd")
    order = np.argsort(found.centers[:, 0])
    np.testing.assert_allclose(found.centers[order], [[-0.5, -0.5], [0.5, 0.5]], atol=0.05)
    found.save(tmp_path / "again.json")
    again = ps.load(tmp_path / "again.json")
    np.testing.assert_array_equal(again.centers, found.centers)
    assert again.receipt == found.receipt
    assert '"format": "privsketch-cluster-model"' in (tmp_path / "again.json").read_text()


@pytest.mark.parametrize("name", [*DESIGNS, *MASKED])
def test_any_file_of_ours_can_be_loaded(name):
    assert ps.load(FOLDER / f"{name}.json") == ps.Design.load(FOLDER / f"{name}.json")
    found = ps.load(FOLDER / f"{name}.sketch")
    assert found.to_bytes() == (FOLDER / f"{name}.sketch").read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b'{"format": "privsketch-cat"}', b"\x89PNG"]
)
def test_other_files_are_refused(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ps.PrivsketchError, match="file"):
        ps.load(tmp_path / "file")


# Fingerprint of the design, SHA-256 of the released values, SHA-256 of the exact sums.
PRINTS = {
    "gaussian": (
        "51db52f1dfb01ff200ad2c4c1106f90c301a8e852e5c750cfd473daafaab1abb",
        "c9e6b70313fd7f363f309647a100271bad522ba22e4c280ad51f68acb49c42eb",
        "603a5340dc579b45d8f6701256fa2ad9419c4206fc2ce8a73b8978c29a41faa1",
    ),
    "cube-one-bit": (
        "30ff1012eb39efb62c78034e1df8d3134ddbdcce11c586e45eab0243468842d9",
        "2e59dc4800129adbd7c534bccb836fe6c6654b81c81a41384d76a02ae136af0a",
        "5d2aed837800e35af4d1b23c5d28f21862603b805f2d4806b3f4e9d20793f8b9",
    ),
    "laplace-replace": (
        "2d2e90b864f8c0813aa4940e4003b81a4e909ae5db92dcf3551c467b0bf14d80",
        "a2026eb68006d4e360a45192a9a3b2b5339ef672a010711ab40faf1f0fc9efd6",
        "f44b5d729cd36d84b20f0ad2d03acb4e3a50277359934ea69a3fa231c9888eba",
    ),
    "structured": (
        "59d8f76fb562c7fb1ed98478a4755505df34738991cece96af01519131b81862",
        "028f9b36f5cda6eb41e5758a06b36c793a8319caf2300e3a2cae250d46b631a3",
        "56c3d6fb7c81f883bd68a319c349bde71fbec076540ebb8f753941ae188f4882",
    ),
    "quadratic-mean": (
        "2bf2805fbe5b767008fe6eae155a9c12085b9c9322b6cc4ab344f05d11e86ca9",
        "af37c5d583e9bc4d919ad709052779b407ccf759e76a4caa7166b34a45392c2a",
        "971d9cd71fdd80fb23fbc1e68f3fc9a913b87f23e764a9daa8d9806e574eeb1e",
    ),
    "second-moments": (
        "edc2f4fb10969ef1819f305f079d6ad616fe17cea89941fadd853086d38c5ebc",
        "b4eac4c5920f8e55d6254e72ec40c34e3c6b3dd30f936c288d442c84fca77842",
        "61f134757d060630e0ed54ee0229d8f8eff6db3e948d588018932ec2df1cb5a2",
    ),
    "masked": (
        "aceb63fab2355da7b29c9296b2e8bd86d4e41748cf2e1d9cdac36abc4b730e77",
        "b8a9a0a56dc25f173f71155ba47f63d608b8759e48a374f0dee10e56f80d9b5d",
    ),
}
