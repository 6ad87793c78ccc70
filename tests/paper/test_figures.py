"""Every recorded result is drawn as the house style asks: width, number of lines, names, sizes, colours."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from ownstep import plots
from ownstep.engines import Comparison, describe
from ownstep.history import COLUMNS, History
from ownstep.paper import EXPERIMENTS, load_experiment
from ownstep.plots.lines import _apart
from ownstep.plots.panels import inches
from ownstep.problems import LeastSquares
from ownstep.report.palette import METHODS

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def figures():
    drawn = {}
    for name in EXPERIMENTS:
        result = json.loads((RESULTS / name / "result.json").read_text())["result"]
        drawn[name] = load_experiment(name).figure(result)
        drawn[name].set_dpi(300)
        drawn[name].get_layout_engine().execute(drawn[name])  # so that every text knows its place
    return drawn


def named(ax):
    return {line.get_label(): line for line in ax.get_lines() if not str(line.get_label()).startswith("_")}


def texts(figure):
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    for ax in figure.axes:  # ticks that lie beyond the axis are made, and not drawn
        for axis, (low, high) in ((ax.xaxis, sorted(ax.get_xlim())), (ax.yaxis, sorted(ax.get_ylim()))):
            slack = 1e-9 * (high - low)
            away = {t.label1 for t in axis.get_major_ticks() if not low - slack <= t.get_loc() <= high + slack}
            away |= {tick.label1 for tick in axis.get_minor_ticks()}
            away |= {tick.label2 for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())}
            found = [t for t in found if t not in away]
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_figure_fits_a_column_and_says_its_message(figures, name):
    figure = figures[name]
    assert figure.get_size_inches()[0] in (plots.COLUMN, plots.PAGE)
    assert len(figure.get_suptitle().split()) > 5
    for ax in figure.axes:
        lines = named(ax)
        assert len(lines) <= plots.MOST, sorted(lines)
        legend = ax.get_legend()
        assert legend is None or len(legend.get_texts()) <= plots.MOST
        if ax.axison and (ax.get_lines() or ax.patches):
            assert ax.get_xlabel()
    assert min(text.get_fontsize() for text in texts(figure)) >= plots.SMALLEST
    assert not any("$" in text.get_text() for text in texts(figure))  # exponents of formulas are smaller


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_text_is_cut_off_or_lies_on_another(figures, name):
    figure = figures[name]
    renderer, places = FigureCanvasAgg(figure).get_renderer(), {}
    for legend in (ax.get_legend() for ax in figure.axes):
        if legend is not None:
            legend.draw(renderer)  # places its texts
    for text in texts(figure):
        if isinstance(text, Annotation):
            text.update_positions(renderer)
        places[text] = Text.get_window_extent(text, renderer)
    for text, box in places.items():
        beyond = (-box.x0, -box.y0, box.x1 - figure.bbox.x1, box.y1 - figure.bbox.y1)
        assert max(beyond) < 3, text.get_text()
    for (one, a), (other, b) in combinations(places.items(), 2):
        wide, tall = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide < 5 or tall < 8, (one.get_text(), other.get_text())


def test_a_name_has_one_colour_in_all_figures(figures):
    colours = {}
    for figure in figures.values():
        for ax in figure.axes:
            for label, line in named(ax).items():
                colours.setdefault(label, set()).add(line.get_color().upper())
    assert {label: found for label, found in colours.items() if len(found) > 1} == {}


@pytest.mark.parametrize("method", sorted(set(METHODS) & set(plots.COLOURS)))
def test_figures_and_report_have_one_palette(method):
    assert plots.colour(method) == METHODS[method][0][0]


def made_history(value, switched_at=None) -> History:
    columns = {c: np.zeros(len(value)) for c in COLUMNS} | {"value": np.array(value, float)}
    return History("h", columns, np.zeros(1), np.zeros(1), "done", switched_at)


def test_what_is_drawn_is_what_was_measured():
    axes = plots.new_figure(1)[1]
    ax = axes[0, 0]
    x = np.array([1.0, 2.0, 4.0])
    low, high = np.array([1.0, 2.0, 3.0]), np.array([5.0, 7.0, 6.0])
    drawn = {"Algorithm 1": plots.Curve(x, [3.0, 4.0, 5.0], low, high), "Nesterov": plots.Curve(x, [9.0, 1.0, 2.0])}
    assert plots.curves(ax, drawn, names=False) == ["Algorithm 1", "Nesterov"]
    for name, curve in drawn.items():
        np.testing.assert_array_equal(named(ax)[name].get_xydata(), np.column_stack([curve.x, curve.y]))
    (band,) = ax.collections
    corners = {tuple(v) for v in band.get_paths()[0].vertices}
    assert corners == {*zip(x, low, strict=True), *zip(x, high, strict=True)}
    assert named(ax)["Algorithm 1"].get_linewidth() > named(ax)["Nesterov"].get_linewidth()


def test_a_race_is_drawn_by_its_gaps_and_rounds():
    plan = describe(LeastSquares(np.eye(2), np.ones(2)))
    histories = {
        "Algorithm 1": made_history([11.0, 3.0, 2.0, 1.0], switched_at=2), "GD 1/L-bar": made_history([11, 6, 4, 2]),
    }  # fmt: skip
    race = Comparison(histories, plan, 1.0)
    axes = plots.new_figure(1)[1]
    plots.convergence(axes[0, 0], race, "t", legend=None)
    lines = named(axes[0, 0])
    np.testing.assert_allclose(lines["Algorithm 1"].get_xydata(), [[1, 0.2], [2, 0.1], [3, np.nan]])
    np.testing.assert_allclose(lines["GD 1/L-bar"].get_ydata(), [0.5, 0.3, 0.1])
    (mark,) = (line for line in axes[0, 0].get_lines() if line.get_label() == "_switch")
    np.testing.assert_allclose(mark.get_xydata(), [[2, 0.1]])  # the point that the last round of own steps left
    ax = plots.demo({"toy": race}, gap=0.1).axes[0]
    assert [bar.get_width() for bar in ax.patches] == [2, 3]
    assert [text.get_text() for text in ax.texts] == [" 2", " 3 (1.5x slower)"]


@pytest.mark.parametrize(
    ("wanted", "step", "most", "placed"),
    [
        ([0.0, 50.0, 100.0], 10.0, 100.0, [0, 50, 100]),  # nobody is moved without need
        ([50.0, 50.0], 10.0, 100.0, [45, 55]),
        ([40.0, 42.0, 90.0], 10.0, 100.0, [36, 46, 90]),
        ([98.0, 99.0], 10.0, 100.0, [90, 100]),
        ([1.0, 2.0, 12.0], 10.0, 100.0, [0, 10, 20]),
    ],
)
def test_names_keep_apart_and_near_their_lines(wanted, step, most, placed):
    assert _apart(wanted, step, most) == pytest.approx(placed)


def test_lines_that_end_early_are_named_where_they_end():
    ax = plots.new_figure(1)[1][0, 0]
    for name, end in (("short", 4), ("long", 10)):
        ax.plot(range(1, end + 1), [end] * end, label=name)
    plots.name_lines(ax)
    beside = {text.get_text() for text in ax.texts if isinstance(text, Annotation)}
    inside = {text.get_text(): text.get_position() for text in ax.texts if not isinstance(text, Annotation)}
    assert beside == {"long"}
    assert set(inside) == {"short"}
    assert 0 <= inside["short"][0] < 0.9


def test_an_svg_is_the_same_file_twice_and_a_text_is_broken_to_fit(tmp_path):
    once, twice = (plots.save(plots.new_figure(1)[0], tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert once == twice
    assert b"<dc:date>" not in once
    text = "one two three four five six seven eight nine ten"
    lines = plots.wrapped(text, 1.0, 8).splitlines()
    assert " ".join(lines) == text
    assert len(lines) > 2
    assert max(inches(line, 8) for line in lines) <= 1.0
    assert [plots.power(v) for v in (0.001, 0.0009, 999_999.0, 1e6, 2e6)] == [
        "0.001",
        "9e-04",
        "999,999",
        "10⁶",
        "2e+06",
    ]
