from __future__ import annotations

import doctest
import json
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace

import pytest

from ownstep.paper import load_experiment
from ownstep.report import formatting
from ownstep.report.charts import Line, View, charts, given
from ownstep.report.drawing import Scale, chosen, picture, spaced
from ownstep.report.page import plain
from ownstep.report.palette import METHODS, OTHERS, Palette
from ownstep.report.tables import tables
from ownstep.report.titles import renamed

from .conftest import ROOT, neural

NOTHING = SimpleNamespace()


def drawn(result, module=NOTHING):
    return charts(module, result)[0]


def test_a_run_that_diverges_does_not_set_the_scale():
    result = neural(runs=3)
    for one, end in zip(result["arms"]["one arm"]["runs"], (0.5, 1e6, 1e7), strict=True):
        one["methods"]["Algorithm 1"]["loss"] = [2.0, 1.0, end]
    chart = drawn(result)[0]
    first = chart.views[0].lines[0]
    assert first.y == [2.0, 1.0, None]
    assert first.high == [2.0, 1.0, None]  # nor is the range of runs that pass 1.3 times the highest start
    assert first.low == [2.0, 1.0, None]
    assert "Losses above 5.2, as of runs that diverge, are not drawn" in chart.note
    assert "not drawn" not in drawn(neural(runs=3))[0].note


def test_a_shorter_run_has_no_accuracy_after_its_end():
    result = neural(runs=2)
    short = result["arms"]["one arm"]["runs"][1]["methods"]["Algorithm 1"]
    short["test_accuracy"] = {"rounds": [0, 10], "values": [0.1, 0.5]}
    line = drawn(result)[0].views[1].lines[0]
    assert (line.x, line.y, line.high) == ([0, 20], [0.1, 0.9], [0.1, 0.9])


def test_runs_become_their_median_with_their_range():
    loss, constants = drawn(neural(runs=3))
    assert [v.label for v in loss.views] == ["training loss", "test accuracy"]
    first = loss.views[0].lines[0]
    assert (first.name, first.x) == ("Algorithm 1", [0, 10, 20])
    assert first.y == [3.0, 1.0, 0.5]  # starts at 2, 3 and 4
    assert (first.low[0], first.high[0]) == (2.0, 4.0)
    assert loss.pointer == 'result.arms["one arm"].runs'
    assert constants.kind == "bars"
    assert constants.ticks == ["a", "b"]
    assert constants.views[0].lines[0].y == [1.0, 3.0]
    assert drawn(neural(runs=1))[0].views[0].lines[0].low is None


def test_one_run_of_several_methods_keeps_gaps_as_gaps():
    series = {m: {"round": [0, 1, 2], "gap": [1.0, None, float("inf")], "value": [3, 2, 1]} for m in "ab"}
    (chart,) = drawn({"arms": {"x": {"series": series, "plan": {"L": [1, 2]}}}})
    assert [v.label for v in chart.views] == ["(f − f*) / (f(x⁰) − f*)"]  # f(x) would be the same curve
    assert [line.name for line in chart.views[0].lines] == ["a", "b"]
    assert chart.views[0].lines[0].y == [1.0, None, None]
    assert chart.x_log


def test_evenly_spaced_series_get_their_rounds_back():
    runs = [{"series": {"a": [1.0, 0.5, 0.25]}}, {"series": {"a": [1.0, 0.7, 0.25]}}]
    (chart,) = drawn({"rounds": 1000, "axis": "alpha", "arms": [{"value": 0.1, "runs": runs}]})
    assert chart.title == "alpha = 0.1"
    assert chart.views[0].lines[0].x == [0, 10, 20]
    assert chart.views[0].lines[0].y[1] == pytest.approx(0.6)


def test_tables_by_rows_and_by_columns_are_drawn_over_what_rises():
    rows = [{"devices": n, "ratio": 1 / n, "gd": {"upper": 2.0}} for n in (2, 4, 1000)]
    (chart,) = drawn({"rows": rows})
    assert (chart.x, chart.x_log, chart.views[0].label) == ("devices", True, "ratio")
    (columns,) = drawn({"study": {"draws": [1, 10, 100], "L": [1.0, 2.0, 300.0], "names": ["a", "b", "c"]}})
    assert [line.name for line in columns.views[0].lines] == ["smoothness L"]
    assert columns.views[0].log  # it spans more than a factor of 50
    (family,) = drawn({"first": {m: {"rounds": [0, 1], "loss": [2.0, 1.0]} for m in ("GD", "ours")}})
    assert [line.name for line in family.views[0].lines] == ["GD", "ours"]
    assert not drawn({"rows": [{"method": m, "rounds": 1} for m in "abc"]})  # nothing rises: a table alone
    assert not drawn({"x": [1, 2], "y": "no list"})


def test_rows_are_flattened_into_a_table():
    rows = [{"method": "a", "rounds": {"0.1": 3, "0.01": None}, "seconds": 2.0}, {"method": "b", "rounds": {"0.1": 4}}]
    (table,) = tables({"arms": {"x": {"rows": rows}}})
    assert table.columns == ["method", "rounds 0.1"]  # nobody reached 0.01, and nobody asks for seconds
    assert table.rows == [["a", 3], ["b", 4]]
    assert table.left_out == 0
    (long,) = tables({"rows": [{"method": "a", "rounds": k} for k in range(75)]})
    assert [row[1] for row in long.rows] == list(range(60))
    assert long.left_out == 15


def test_an_experiment_s_own_charts_come_first_and_broken_ones_fall_back():
    line = {"name": "a", "x": [1, 2], "y": [3, 4]}
    own = SimpleNamespace(charts=lambda result: [{"title": "mine", "lines": [line], "y": "size"}])
    (chart,) = drawn(neural(), own)
    assert (chart.title, chart.views[0].label, chart.views[0].lines[0].y) == ("mine", "size", [3.0, 4.0])
    broken = SimpleNamespace(charts=lambda result: result["not there"])
    assert len(drawn(neural(), broken)) == 2
    with pytest.raises(ValueError, match="'a' has 2 x and 1 y"):
        given({"title": "", "lines": [line | {"y": [1]}]})


@pytest.mark.parametrize(
    "arm",
    [
        {"runs": [{"methods": {"a": {"rounds": [0, "x"], "loss": [1, 2]}}}]},
        {"runs": [{"methods": {"a": {"rounds": [0, float("nan")], "loss": [1, 2]}}}]},
        {"runs": [{"devices": {"L": [1.0], "names": ["a", "b"]}}]},
        {"runs": [{"methods": {"a": {"rounds": [], "loss": []}}}, 3, None]},
        {"series": {"a": {"round": [1, 2], "gap": ["<b>", {}]}}},
        {"curves": {"a": [{"upper": 1.0, "rounds": "many"}]}},
    ],
)
def test_data_that_makes_no_sense_costs_its_chart_and_no_more(arm):
    sound = {"round": [1, 2, 3], "gap": [3.0, 2.0, 1.0]}
    found = drawn({"first": sound, "arms": {"x": arm}})
    assert found[0].views[0].lines[0].y == [3.0, 2.0, 1.0]
    for chart in found:
        json.dumps(plain(chart, Palette()), allow_nan=False)


def test_a_line_runs_from_left_to_right():
    chart = given({"title": "", "lines": [{"name": "a", "x": [3, 1, 2], "y": [9, 1, None], "low": [8, 0, 3]}]})
    assert (chart.views[0].lines[0].x, chart.views[0].lines[0].y) == ([1, 2, 3], [1, None, 9])
    assert chart.views[0].lines[0].low == [0, 3, 8]


def test_too_many_charts_are_cut_and_counted():
    result = {str(i): {"only": {"round": [1, 2], "gap": [1, 2]}} for i in range(20)}
    found, left = charts(NOTHING, result)
    assert (len(found), left) == (12, 8)


@pytest.mark.parametrize("path", sorted(ROOT.glob("results/*/result.json")), ids=lambda p: p.parent.name)
def test_every_result_in_the_repository_has_charts_with_something_on_them(path):
    report = json.loads(path.read_text())
    for chart in drawn(report["result"], load_experiment(report["name"])):
        for view in chart.views:
            assert view.lines
            for line in view.lines:
                assert len(line.x) == len(line.y)
                assert line.x == sorted(line.x)
                assert any(v is not None for v in line.y)


def test_a_method_looks_the_same_everywhere_and_unlike_its_neighbours():
    palette = Palette()
    first = palette.looks(["Algorithm 1", "FedAdam", "FedAdam tuned", "unheard of", "GD 1/L-bar"])
    assert len({str(look) for look in first}) == 5
    again = palette.looks(["unheard of", "Algorithm 1"])
    assert again == [first[3], first[0]]
    assert first[0] == METHODS["Algorithm 1"]
    assert first[2][0] == first[1][0]  # the same colour, another dash
    many = palette.looks([f"line {i}" for i in range(25)])
    assert len({str(look) for look in many}) == 25


def test_what_is_no_method_has_no_method_s_colour():
    methods = {hue for name, (hue, _) in METHODS.items() if name not in ("L of the device", "L-bar")}
    names = ["float64", "float32", "iid", "by label", "by norm", "p = 0.7", "2 of 5 rounds local", "distance"]
    looks = Palette().looks(names)
    assert len({str(look) for look in looks}) == len(names)
    assert {hue for hue, _ in looks} <= set(OTHERS)
    assert not methods & set(OTHERS)


def test_methods_that_are_not_alike_have_not_one_colour():
    hue = {name: look[0] for name, look in METHODS.items()}
    assert hue["ITEM"] != hue["L-BFGS"]
    assert hue["designed steps"] != hue["own curvature"]
    assert hue["own steps, ITEM"] == hue["own steps"] != hue["GD tuned"]
    palette = Palette()
    assert palette.looks(["over GD 1/L-bar", "over GD matched step"]) == [
        METHODS["GD 1/L-bar"],
        METHODS["GD matched step"],
    ]
    assert palette.looks(["Nesterov 1/L-bar (first split)"]) == [METHODS["Nesterov"]]


def test_figures_and_page_agree_on_colours():
    looks = pytest.importorskip("ownstep.plots.looks")
    for name in ("Algorithm 1", "own curvature", "GD 1/L-bar", "GD matched step", "GD tuned", "Nesterov", "L-BFGS"):
        assert looks.COLOURS[name].lower() == METHODS[name][0][0].lower()


def test_labels_keep_apart_and_inside():
    for wanted in ([10, 10, 10, 11], [200, 201, 202], [20, 60, 61, 62, 150]):
        middles = spaced(wanted, [15.0] * len(wanted), 8, 220)
        assert all(b - a >= 15 - 1e-9 for a, b in pairwise(middles))
        assert middles[0] >= 8
        assert middles[-1] <= 220
    assert spaced([20, 100], [15.0, 15.0], 8, 220) == [20, 100]  # nobody is moved without need


@pytest.mark.parametrize(("low", "high"), [(0.001, 1000), (1, 90), (0.9, 4), (20, 30), (101, 102)])
def test_a_logarithmic_axis_has_ticks_however_narrow(low, high):
    ticks = Scale(low, high, 0, 100, log=True).ticks()
    assert 3 <= len(ticks) <= 8
    assert all(0.999 * low <= t <= 1.001 * high for t in ticks)


def test_a_picture_has_five_lines_at_most_and_names_them():
    lines = [Line(name, [0, 1], [1.0, 0.5]) for name in ("a", "GD tuned", "b", "c", "Algorithm 1", "Nesterov", "d")]
    view = View("loss", lines, False)
    assert [line.name for line in chosen(view)][:3] == ["Algorithm 1", "GD tuned", "Nesterov"]
    assert len(chosen(view)) == 5
    assert [line.name for line in chosen(view, ("b", "a", "not there"))] == ["b", "a"]
    svg = str(picture(given({"title": "t", "lines": [vars(line) for line in lines]}), Palette(), "What it shows"))
    assert svg.count('class="leader"') == 5
    assert 'aria-label="What it shows. Algorithm 1: from 1 to 0.5' in svg


def test_titles_and_lines_are_in_plain_words():
    line = {"name": "label", "x": [1, 2], "y": [3, 4]}
    shown = renamed("curvature", given({"title": "w8a 1e-05, ten devices: over the rank", "lines": [line]}))
    assert plain(shown, Palette())["title"] == "W8A at mu = 1e-5, ten devices: a higher rank needs fewer exchanges"
    assert shown.views[0].lines[0].name == "by label"
    assert (
        renamed("w8a", given({"title": "subset, by label", "lines": []})).title
        == "The paper's subset of W8A, split by label"
    )
    assert renamed("unheard of", given({"title": "as it is", "lines": []})).title == "as it is"


def test_numbers_are_spelt_for_reading():
    assert [formatting.ranged(v) for v in (-12.34, -9.99, 10.0, 9.99)] == ["−12.3", "−9.99", "10.0", "9.99"]
    assert doctest.testmod(formatting).failed == 0
    assert doctest.testmod(import_module("ownstep.report.cards.speeds")).failed == 0
