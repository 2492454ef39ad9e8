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
from tests.chance import exact_answers
from tests.taxicab import taxicab_design

FOLDER = Path(__file__).parent / "golden"
ONE_BAND = {"frequency_scale": (0.0625, 1.0)}
DESIGNS = {
    "gaussian": {"budget": ps.Budget(1.0, 1e-6), "n_features": 50, **ONE_BAND},
    "cube-one-bit": {
        "budget": ps.Budget(0.5),
        "feature_map": "one-bit",
        "n_features": 50,
        **ONE_BAND,
    },
    "laplace-replace": {
        "budget": ps.Budget(2.0, neighbours="replace"),
        "noise": "laplace",
        "domain": ps.Ball(dim=3, radius=2.5, center=[0.5, 0.0, -0.5]),
        "frequency_scale": 0.4,
        "n_features": 50,
        "columns": ["a", "b", "c"],
    },
    "structured": {
        "budget": ps.Budget(1.0, 1e-6),
        "frequencies": "structured",
        "n_features": 100,
        **ONE_BAND,
    },
    "planned-scales": {"budget": ps.Budget(1.0, 1e-6), "n_features": 100},
    "planned-scales-structured": {
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
    "moments-mean-replace": {
        "task": "pca",
        "budget": ps.Budget(1.0, 1e-6, "replace"),
        "domain": ps.Ball(dim=3, radius=2.5),
        "feature_map": "second-moments",
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
# Without a planner: ones that plan them may change, what they store may not.
MADE = {
    "taxicab": lambda: taxicab_design(
        ps.Schema([ps.Number(name, -2, 2, weight=w) for name, w in (("a", 1), ("b", 2), ("c", 1))])
    ),
    "taxicab-replace": lambda: taxicab_design(
        ps.Box(-2, 2, dim=3), ps.Budget(1.0, neighbours="replace")
    ),
}
# Masks are secret and fresh, so only the design and the stored release can be compared.
MASKED = {
    "masked": {
        "budget": ps.Budget(1.0),
        "noise": "laplace",
        "masks": "poisson:0.25+records:0.5",
        "n_features": 50,
        "n_records": 1000,
        **ONE_BAND,
    },
}


def golden_design(name):
    if name in MADE:
        return MADE[name]()
    settings = {"n_components": 2, "domain": ps.Box(-2, 2, dim=3), "random_state": 2021}
    return ps.Design.plan(**{**settings, **{**DESIGNS, **MASKED}[name]})


def golden_records():
    """250 fixed records without any random generator: fractional parts of multiples of sqrt(2)."""
    values = np.arange(1, 751) * 2**0.5
    return (4 * (values - np.floor(values)) - 2).reshape(250, 3)


@pytest.mark.parametrize("name", [*DESIGNS, *MADE, *MASKED])
def test_designs(name):
    assert ps.Design.load(FOLDER / f"{name}.json") == golden_design(name)


@pytest.mark.parametrize("name", [*DESIGNS, *MADE, *MASKED])
def test_sketches(name):
    stored = ps.Sketch.load(FOLDER / f"{name}.sketch")
    assert stored.design.fingerprint == golden_design(name).fingerprint == PRINTS[name][0]
    assert hashlib.sha256(stored.values.astype("<i8").tobytes()).hexdigest() == PRINTS[name][1]
    assert stored.sources == ("golden",)
    assert stored.to_bytes() == (FOLDER / f"{name}.sketch").read_bytes()


@pytest.mark.parametrize("name", [*DESIGNS, *MADE])
def test_exact_sums(name):
    # The integers before noise: any change of quantisation, phase or table shows here.
    with exact_answers():
        exact = ps.sketch(golden_records(), golden_design(name)).values
    assert hashlib.sha256(exact.astype("<i8").tobytes()).hexdigest() == PRINTS[name][2]
    # The stored release is that, plus noise of the stated size.
    design, stored = golden_design(name), ps.Sketch.load(FOLDER / f"{name}.sketch")
    deviation = np.sqrt(design.sum_noise.sums_law.variance)
    n = design.n_values
    assert np.abs(stored.values[:n] - exact[:n]).max() < 12 * deviation


@pytest.mark.parametrize("name", [*DESIGNS, *MADE, *MASKED])
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
        "4d2688afde83307521f48f6088f4ad8a67b4b48500f8f42302efe4d2a9ffaea8",
        "a6c4035a4f71fa878784d41b7c6b775a93ec715779a107bd285d28f037c3a027",
    ),
    "cube-one-bit": (
        "30ff1012eb39efb62c78034e1df8d3134ddbdcce11c586e45eab0243468842d9",
        "e335ca2650494fd7c79c1cb4c7d7cd25c43628b5905c7cd1ea25ccd0c78aa3a0",
        "5d2aed837800e35af4d1b23c5d28f21862603b805f2d4806b3f4e9d20793f8b9",
    ),
    "laplace-replace": (
        "2d2e90b864f8c0813aa4940e4003b81a4e909ae5db92dcf3551c467b0bf14d80",
        "83999c29928f028cff1fc42972f29b5c695ae6a07bae50874c1e8eeef4c4e3e0",
        "9705bd4b0d38b81f4715f5a2ad4f2456447f4a89aab97aefc4851af18b2a4444",
    ),
    "structured": (
        "59d8f76fb562c7fb1ed98478a4755505df34738991cece96af01519131b81862",
        "2f48b3853579a9e99e3f1db497d088e5e6e130ddb821c79aeb9f595795a46a10",
        "796fe04f49581bff3ca6758042041d7e7ed965ac1111c26f0438977d7cb28afa",
    ),
    "planned-scales": (
        "f1d9c5c1e7fa43203dada02345dd4222f575a2cc44a8fcad770847a3ac46ff59",
        "5cc520458661fe126b92f16cc5d07aa34a31de844307f3a2a0fe04a2f2890791",
        "7e0e3f150e5f6151fdf4de34786e0af3d73ca86590cec7e3f1e46177616ec426",
    ),
    "planned-scales-structured": (
        "a6a1d55a57e8aaad981db1e894fcbf3579a2d3d64aac42ab8a4fee45dc2c2ad0",
        "f35df3dacb96aeb74c1d6fdcf6cc5de25404c898bae49abc8636d62e90a395fb",
        "c3a5fb1f042e69b3deba9c3f1bcee760efa0908ecc93589b545dfa3104b1dc40",
    ),
    "quadratic-mean": (
        "2bf2805fbe5b767008fe6eae155a9c12085b9c9322b6cc4ab344f05d11e86ca9",
        "3f8af6a9567142e15bbc9dd37003e9e4acd9e6ca502d9815fbcb936482c8eefb",
        "971d9cd71fdd80fb23fbc1e68f3fc9a913b87f23e764a9daa8d9806e574eeb1e",
    ),
    "taxicab": (
        "86e623e8eb75004504e5a8179f49972376dc54082f921a466aaaba96c090abeb",
        "46d0aa08dd6dd349dcef466dcb1c2ed1ad78152f1a589a8c0431f707c3c3bb97",
        "0471b66bd01fa7ee8c3c496b0f8db9fd83421e63b545db4d0c8078ea56beae6d",
    ),
    "taxicab-replace": (
        "59240d515bef51919d764d74b93eec5dc0e7a84516c97375aea318d757d659ad",
        "a00c42eae5907a4769d8a48783151a5f83a5f7b676fb9a6bc30cd6a368b38a56",
        "abc0416770c889b4297a8d80f0274396ca4df265c7e0ac6a68e9bace688f33e9",
    ),
    "moments-mean-replace": (
        "f16c9df8d529661e8d06eeb55b73e352d1a27eb382e1dbcd7f98f5ff5e4a1db1",
        "366514484b7fd6cc932717325c6a7ab506e2fb4cc457263dcd79dcd206131ce0",
        "cd124e5fde8e51afb51932d1efc3ad827495387fcaf389fb563b7ad62e7cefe3",
    ),
    "second-moments": (
        "edc2f4fb10969ef1819f305f079d6ad616fe17cea89941fadd853086d38c5ebc",
        "4cc8db3eaa6604066c5cb9e1b62184c4a06e9057ef4a512c150ddb13ec538165",
        "61f134757d060630e0ed54ee0229d8f8eff6db3e948d588018932ec2df1cb5a2",
    ),
    "masked": (
        "aceb63fab2355da7b29c9296b2e8bd86d4e41748cf2e1d9cdac36abc4b730e77",
        "591e42b290073d947b75d74df04dcbf9ec62ccac6b26590ae7945ad555fb0acb",
    ),
}
