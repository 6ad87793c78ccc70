"""Every recorded result is drawn as the house style asks: width, number of lines, names, sizes, colours."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from ownstep import plots
from ownstep.paper import EXPERIMENTS, load_experiment
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
