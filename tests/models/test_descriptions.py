"""Descriptions in a terminal: turned where they would be too wide, in units, with all fields."""

import numpy as np

import privsketch as ps
from privsketch import Receipt
from privsketch.facts import short_names
from privsketch.models import MAX_LINE_LENGTH, MAX_TABLE_LINES, center_lines

RECEIPT = Receipt("noise", 1.0, 0.0, "add-remove")


def model(schema, centers):
    weights = np.full(len(centers), 1 / len(centers))
    return ps.ClusterModel(
        np.asarray(centers, float), weights, 100.0, RECEIPT, "lloyd", schema=schema
    )


def test_few_columns_stay_beside_each_other():
    lines = center_lines(np.array([0.4, 0.6]), ["a", "b"], [["1", "2"], ["3", "4"]])
    assert [line.split() for line in lines] == [
        ["centers", "weight", "a", "b"],
        ["40.0%", "1", "2"],
        ["60.0%", "3", "4"],
    ]


def test_many_columns_are_lines_and_none_is_left_out():
    names = [f"column {j}" for j in range(20)]
    rows = [[str(10 * j + k) for j in range(20)] for k in range(3)]
    lines = center_lines(np.array([0.2, 0.3, 0.5]), names, rows)
    assert lines[0].split() == ["weight", "20.0%", "30.0%", "50.0%"]
    assert [line.split()[2:] for line in lines[1:]] == [
        list(cells) for cells in zip(*rows, strict=True)
    ]
    assert max(map(len, lines)) <= MAX_LINE_LENGTH


def test_very_many_columns_are_counted():
    names, rows = [f"c{j}" for j in range(100)], [["1"] * 100] * 2
    lines = center_lines(np.array([0.5, 0.5]), names, rows)
    assert len(lines) == MAX_TABLE_LINES + 2
    assert f"{100 - MAX_TABLE_LINES} more columns" in lines[-1]


def test_what_fits_in_neither_way_is_cut_at_the_end_of_the_line():
    names, rows = [f"c{j}" for j in range(20)], [["123456789"] * 20] * 30
    lines = center_lines(np.full(30, 1 / 30), names, rows)
    assert len(lines) == 31
    assert lines[0].endswith("...")


def test_units_stand_with_the_names_and_all_fields_are_told():
    schema = ps.Schema(
        [
            ps.Number("age", 0, 100, unit="years"),
            ps.Category("region", ["north", "south"]),
            ps.Flag("smoker"),
            *(ps.Number(f"n{j}", 0, 1) for j in range(6)),
        ]
    )
    centers = np.zeros((2, schema.dim))
    centers[:, 1] = 1.0
    text = model(schema, centers).describe()
    assert "age years     50.00   50.00" in text
    for name in ("region=north", "region=south", "region=other", "smoker", "n5"):
        assert name in text
    assert "missing values of any column: would have been refused" in text


def test_components_move_columns_in_their_units():
    schema = ps.Schema([ps.Number("age", 0, 100, unit="years"), ps.Flag("smoker")])
    found = ps.PCAModel(
        components=np.array([[0.6, 0.8]]),
        explained_variance=np.array([0.25]),
        standard_errors=np.array([0.01]),
        mean=np.zeros(2),
        centered=True,
        total_variance=0.5,
        noise_variance=0.25,
        lost_variance=0.0,
        n_standing_out=1,
        residual=1.0,
        expected_residual=1.0,
        n_records=100.0,
        method="eigenvectors",
        design_fingerprint="",
        receipt=RECEIPT,
        schema=schema,
    )
    text = found.describe()
    # Half a standard deviation's worth: 0.5 x 0.6 of half the range, 0.5 x 0.8 of a share.
    assert "+15.0 years" in text
    assert "+40.0 %" in text
    assert "variance    50.0% explained; 50.0% per direction left" in text


WARDS = ("South, General Medicine", "Southeast, General Medicine", "South, General Medicine 2")


def test_long_labels_of_a_column_stay_different():
    """Neither their starts nor their ends may be all that is left of them."""
    schema = ps.Schema([ps.Category("Department (2024)", WARDS), ps.Number("age", 0, 100)])
    lines = model(schema, np.zeros((2, schema.dim))).describe().splitlines()
    heads = [line[:30].split("  ")[0] for line in lines if line.startswith("Dep")]
    assert len(set(heads)) == len(heads) == len(WARDS) + 1  # and all others
    assert heads[:3] == [
        "Dep..24)=South, ..dicine",
        "Dep..24)=Southea..dicine",
        "Dep..24)=South, ..cine 2",
    ]


def test_short_names():
    assert short_names(["age", "a" * 30], 24) == ["age", f"{'a' * 11}..{'a' * 11}"]
    assert short_names(["ward=Surgery in the south wing"], 24) == ["ward=Surgery i..uth wing"]
    alike = [f"{'x' * 20}{j}{'y' * 20}" for j in range(3)]
    assert len(set(short_names(alike, 24))) == 3
    assert short_names(["n", "n"], 24) == ["n", "n"]
