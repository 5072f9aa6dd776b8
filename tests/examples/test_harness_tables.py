"""The one table writer: what a table looks like, and how numbers look in it."""

import math

import pytest

from examples.harness.tables import markdown, median, number, origins, spread

ROWS = [["ksd", "12"], ["L-BFGS-B", "3"]]


def test_a_table():
    assert markdown(["method", "passes"], ROWS).splitlines() == [
        "| method | passes |",
        "|---|---|",
        "| ksd | 12 |",
        "| L-BFGS-B | 3 |",
    ]


def test_numbers_are_flush_right():
    rule = markdown(["method", "passes", "seconds"], []).splitlines()[1]
    assert rule == "|---|---|---|"
    rule = markdown(["method", "passes", "seconds"], [], numbers=True).splitlines()[1]
    assert rule == "| --- | ---: | ---: |"


def test_a_padded_table_has_columns_of_one_width():
    assert markdown(["method", "passes"], ROWS, numbers=True, padded=True).splitlines() == [
        "| method   | passes |",
        "|----------|-------:|",
        "| ksd      | 12     |",
        "| L-BFGS-B | 3      |",
    ]


def test_every_row_has_all_columns():
    with pytest.raises(ValueError, match="zip"):
        markdown(["method", "passes"], [["ksd"]])


def test_numbers_that_are_none():
    assert number(1234.5, ",.0f") == "1,234"
    assert number(math.nan, ".2f") == ""
    assert number(math.inf, ".2f", infinite="never") == "never"


def test_medians_leave_out_what_is_unknown():
    assert median([1, math.nan, 3, 10]) == 3
    assert median([1, math.inf]) == math.inf
    assert math.isnan(median([]))


def test_the_spread_over_seeds():
    assert spread([0.5], "%") == "0.5%"
    assert spread([1, 2, 6]) == "3 [1, 6]"


def test_origins_are_named_once():
    runs = [{"date": "2020-01-02", "seed": 0}, {"date": "2020-01-02", "seed": 1}]
    assert origins([*runs, {"date": "2020-01-01"}], "{date}") == "2020-01-01; 2020-01-02"
