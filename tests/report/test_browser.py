"""The page in a real browser: it opens without errors, draws every line, changes its colours and fits a phone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ownstep.report import build, read
from ownstep.report import write as write_page

from .browser import Chromium, ask, chromium
from .conftest import METHODS, envelope, write
from .test_page import poisoned

WIDTHS = (1280, 390)
TOO_WIDE = """const inside = (e) => e.closest(".scroll, pre, .toc, .plot, svg.stage");
const tooWide = [...d.querySelectorAll("main *")].filter((e) => e.getClientRects().length && !inside(e)
  && e.getBoundingClientRect().right > w.innerWidth + 1).map((e) => e.outerHTML.slice(0, 80));
"""


UNFOLDED = """const unfolded = new Promise((done) => {
  for (const part of d.querySelectorAll("details")) part.open = true;
  setTimeout(done, 150);
});
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_and_draws_every_line_without_overflowing(browser, results, width):
    shown = ask(
        browser, build(read(results, "r")),
        UNFOLDED + "return unfolded.then(() => {" + TOO_WIDE
        + """const charts = [...d.querySelectorAll("figure.chart")];
        return { lines: charts.map((c) => Number(c.dataset.lines)),
                 plotted: w.eval("Charts").all.map((c) => c.plot.series.slice(1).filter((s) =>
                   s.label !== "range" && s.show).length),
                 sizes: charts.map((c) => c.querySelector("canvas").clientWidth),
                 named: charts.map((c) => c.querySelectorAll(".names button").length),
                 width: d.documentElement.scrollWidth,
                 wide: tooWide }; });""",
        width,
    )  # fmt: skip
    # In the order of the page: two worst-case curves; three methods and their constants with L-bar; four in the contest
    expected = [2, len(METHODS), 2, 4]
    assert shown["lines"] == expected
    assert shown["plotted"] == expected
    assert shown["named"] == expected
    assert all(100 < size <= width for size in shown["sizes"])
    assert shown["width"] <= width
    assert shown["wide"] == []


def test_the_repository_s_own_results_fit_a_phone(browser, own_page):
    shown = ask(
        browser, own_page,
        UNFOLDED + "return unfolded.then(() => {" + TOO_WIDE
        + """const charts = [...d.querySelectorAll("figure.chart")];
        return { wide: tooWide, width: d.documentElement.scrollWidth,
                 blank: charts.filter((c) => !(Number(c.dataset.lines) > 0)).length, charts: charts.length,
                 most: Math.max(...charts.map((c) => c.querySelectorAll(".names button").length)),
                 links: d.querySelectorAll("a[data-file][href]").length }; });""",
        390,
    )  # fmt: skip
    assert shown["wide"] == []
    assert shown["width"] <= 390
    assert shown["blank"] == 0
    assert shown["charts"] == own_page.count('<figure class="chart"')
    assert shown["most"] == 5
    assert shown["links"] == 0  # it does not lie in its folder, so it links to no file


def test_hovering_shows_values_zooming_and_hiding_work(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        UNFOLDED + """return unfolded.then(() => {
        const chart = w.eval("Charts").all[0], plot = chart.plot, out = {};
        plot.setCursor({ left: plot.valToPos(2, "x"), top: 10 });
        out.tip = d.getElementById("tip").innerText;
        plot.setScale("x", { min: 1, max: 2 });
        return new Promise((done) => setTimeout(() => {
          out.zoomed = [plot.scales.x.min, plot.scales.x.max];
          const button = () => chart.figure.querySelector(".names button");
          button().click();
          out.hidden = chart.plot.series.filter((s) => s.show === false).length;
          out.rows = chart.figure.querySelectorAll("details tbody tr").length;
          setTimeout(() => { out.pressed = button().getAttribute("aria-pressed"); done(out); }, 100);
        }, 100)); });""",
    )  # fmt: skip
    assert "rounds K 2" in seen["tip"]
    assert "GD 1/L\u0304" in seen["tip"]
    assert "0.25" in seen["tip"]  # 2^-2
    assert seen["zoomed"] == [1, 2]
    assert seen["hidden"] == 1
    assert seen["pressed"] == "false"
    assert seen["rows"] == 4


def test_charts_have_visible_controls_and_keep_their_ticks(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        UNFOLDED + """return unfolded.then(() => {
        const chart = w.eval("Charts").all[3], plot = () => chart.plot, out = { ticks: [] };
        const every = () => [...chart.figure.querySelectorAll(".views button")];
        const button = (label) => every().find((b) => b.textContent === label);
        const wait = () => new Promise((done) => setTimeout(done, 60));
        out.labels = every().filter((b) => !b.hidden).map((b) => b.textContent);
        out.whole = button("reset").disabled;
        const zoom = (n) => n === 0 ? null : wait().then(() => {
          button("+").click();
          return wait();
        }).then(() => { out.ticks.push(plot().axes[0]._splits.length); return zoom(n - 1); });
        return zoom(4).then(() => {
          out.zoomed = [plot().scales.x.min, plot().scales.x.max];
          out.enabled = !button("reset").disabled;
          button("−").click();
          return wait();
        }).then(() => {
          out.wider = plot().scales.x.max - plot().scales.x.min;
          button("reset").click();
          return wait();
        }).then(() => {
          out.again = [plot().scales.x.min, plot().scales.x.max];
          button("linear").click();
          out.scale = plot().scales.y.distr;
          return out;
        }); });""",
    )  # fmt: skip
    assert seen["labels"] == ["linear", "−", "+", "reset"]
    assert seen["whole"]
    assert seen["enabled"]
    assert all(3 <= count <= 12 for count in seen["ticks"]), seen["ticks"]  # on a logarithmic axis, four times zoomed
    assert 1 < seen["zoomed"][0] < seen["zoomed"][1] < 100
    assert seen["wider"] > seen["zoomed"][1] - seen["zoomed"][0]
    assert seen["again"] == [1, 100]
    assert seen["scale"] == 1


def test_charts_can_be_read_with_the_keyboard(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        UNFOLDED + """return unfolded.then(() => {
        const figure = d.querySelector("#pep-curves figure.chart"), plot = figure.querySelector(".plot"), out = {};
        const press = (key) => plot.dispatchEvent(new w.KeyboardEvent("keydown", { key, cancelable: true }));
        plot.focus();
        out.focused = d.activeElement === plot;
        out.label = plot.getAttribute("aria-label");
        out.said = ["ArrowRight", "ArrowRight", "End", "ArrowLeft", "Home"].map((key) => {
          press(key);
          return figure.querySelector(".read").textContent;
        });
        out.live = figure.querySelector(".read").getAttribute("aria-live");
        press("+");
        const chart = w.eval("Charts").all.find((c) => c.figure === figure);
        return new Promise((done) => setTimeout(() => {
          out.zoomed = chart.plot.scales.x.max;
          press("0");
          setTimeout(() => { out.whole = chart.plot.scales.x.max; done(out); }, 100);
        }, 100)); });""",
    )  # fmt: skip
    assert seen["focused"]
    assert "Lines: GD 1/L\u0304, Nesterov" in seen["label"]
    firsts = [text.split(":")[0] for text in seen["said"]]
    assert firsts == ["rounds K 0", "rounds K 1", "rounds K 3", "rounds K 2", "rounds K 0"]
    assert seen["said"][1] == "rounds K 1: GD 1/L\u0304 0.5; Nesterov 0.5"
    assert seen["live"] == "polite"
    assert seen["zoomed"] < 3 == seen["whole"]


def test_more_than_five_lines_are_shown_in_parts(browser, results):
    series = {f"method {i}": {"round": [1, 2, 3], "gap": [1.0, 0.5, 0.1 * i]} for i in range(1, 12)}
    write(results, "fedopt", envelope("fedopt", {"arms": {"two": {"series": series}}}))
    seen = ask(
        browser, build(read(results, "r")),
        UNFOLDED + """return unfolded.then(() => {
        const figure = d.querySelector("#fedopt figure.chart"), out = [];
        const more = [...figure.querySelectorAll(".views button")].find((b) => b.textContent.startsWith("lines"));
        for (let i = 0; i < 4; i++) {
          out.push([more.textContent, w.eval("Charts").all.find((c) => c.figure === figure).lines.map((l) => l.name)]);
          more.click();
        }
        return out; });""",
    )  # fmt: skip
    assert [part for part, _ in seen] == ["lines 1 of 3", "lines 2 of 3", "lines 3 of 3", "lines 1 of 3"]
    assert [len(names) for _, names in seen] == [5, 5, 3, 5]
    assert {name for _, names in seen for name in names} == set(series)


def test_the_theme_can_be_switched(browser, results):
    themes = ask(
        browser, build(read(results, "r")),
        """const button = d.getElementById("theme"), out = [];
        for (let i = 0; i < 4; i++) {
          out.push([d.documentElement.dataset.theme, w.getComputedStyle(d.body).backgroundColor]);
          button.click();
        }
        return out;""",
    )  # fmt: skip
    names, colours = zip(*themes, strict=True)
    assert sorted(names[:3]) == ["auto", "dark", "light"]
    assert names[3] == names[0]
    found = dict(themes)
    assert found["light"] != found["dark"]
    red = {name: int(re.findall(r"\d+", colour)[0]) for name, colour in found.items()}
    assert red["dark"] < 60 < 200 < red["light"]
    assert len(colours) == 4


def test_hostile_strings_stay_text(browser, results):
    write(results, "mnist", poisoned())
    seen = ask(
        browser, build(read(results, "r")),
        """return { pwned: w.pwned, images: d.images.length, tip: d.querySelectorAll("#mnist script").length,
                    text: d.getElementById("mnist").innerText.includes("<img src=x onerror=") };""",
        390,
    )  # fmt: skip
    assert seen == {"images": 0, "tip": 0, "text": True}


@pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
def test_it_opens_from_disk(results, tmp_path):
    target = tmp_path / "report" / "index.html"
    write_page(results, target)
    page = Chromium(tmp_path).dump(target, "--window-size=390,800")
    assert 'data-ready="yes"' in page
    assert 'class="picture"' in page  # drawn without a script
    assert 'class="runner"' in page  # and the race by one


def test_the_first_screen_answers(browser, results):
    """What was asked, the finding, the numbers and the first claims stand above the fold, on a desk and on a phone."""
    for width, fold, cards in ((1440, 900, 3), (390, 900, 2)):
        seen = ask(
            browser, build(read(results, "r")),
            """const bottom = (e) => e.getBoundingClientRect().bottom;
            return { title: d.querySelector("h1").innerText, lead: bottom(d.querySelector("header .lead")),
                     facts: [...d.querySelectorAll(".fact")].map(bottom),
                     cards: [...d.querySelectorAll(".claimcard")].map(bottom) };""",
            width,
        )  # fmt: skip
        assert seen["title"].endswith("?")
        assert max(seen["lead"], *seen["facts"]) < fold
        assert sum(bottom < fold for bottom in seen["cards"]) >= cards


SERIOUS = """return w.axe.run(d, { resultTypes: ["violations"] }).then((r) => r.violations
    .filter((v) => ["serious", "critical"].includes(v.impact))
    .map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(" | ")));"""
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nobody_is_kept_out(browser, results, theme):
    """axe-core finds no serious or critical barrier, with everything unfolded."""
    found = ask(
        browser, build(read(results, "r")),
        f"d.documentElement.dataset.theme = '{theme}'; w.eval({json.dumps(AXE.read_text())});"
        + UNFOLDED + "return unfolded.then(() => {" + SERIOUS + "});",
    )  # fmt: skip
    assert found == []


@pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
def test_nobody_is_kept_out_of_a_long_experiment(own_page, tmp_path):
    """The same on the widest tables and the most lines of the repository's own page, on a phone."""
    found = ask(
        Chromium(tmp_path), own_page,
        f"w.eval({json.dumps(AXE.read_text())});"
        """for (const part of d.querySelectorAll("article")) if (part.id !== "w8a") part.remove();
        """ + UNFOLDED + "return unfolded.then(() => {" + SERIOUS + "});",
        390,
    )  # fmt: skip
    assert found == []


@pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
def test_printed_it_is_short_and_whole(own_page, tmp_path):
    page = tmp_path / "index.html"
    page.write_text(own_page)
    sheet = Chromium(tmp_path).print(page)
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", sheet)) < 15
    # The printer's rules on the screen: they hide no bar, line or name of a chart, and cut off no line of code.
    shown = ask(
        Chromium(tmp_path), own_page.replace("@media print", "@media all"),
        """const seen = (e) => e.getClientRects().length > 0 && w.getComputedStyle(e).visibility === "visible";
        const cards = [...d.querySelectorAll("article .card")];
        const parts = cards.flatMap((c) => [...c.querySelectorAll("svg rect, svg path, svg text")]);
        const bars = parts.filter((e) => e.tagName === "rect"), code = [...d.querySelectorAll("#rerun pre")];
        return { bars: bars.length, hidden: parts.filter((e) => !seen(e)).length,
                 kinds: [...new Set(bars.map((e) => e.getAttribute("class")))].sort(),
                 folded: [...d.querySelectorAll("details")].filter(seen).length,
                 title: w.getComputedStyle(d.querySelector("h1")).fontSize,
                 cut: code.filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1).length };""",
        700,
    )  # fmt: skip
    assert shown["bars"] >= 18
    assert shown["kinds"] == ["down", "up", "whole"]
    assert shown["hidden"] == 0
    assert shown["folded"] == 0
    assert shown["title"] == pytest.approx("26.6667px")
    assert shown["cut"] == 0


def test_the_first_screen_keeps_its_numbers_in_one_row(browser, results):
    rows = ask(
        browser, with_facts(build(read(results, "r"))),
        """return [1024, 768].map((width) => {
          w.frameElement.style.width = `${width}px`;
          return [...d.querySelectorAll(".fact")].map((e) => Math.round(e.getBoundingClientRect().top));
        });""",
    )  # fmt: skip
    for tops in rows:
        assert len(tops) == 3
        assert max(tops) - min(tops) < 12


def with_facts(html: str) -> str:
    """With the third number, which the small results do not have."""
    words = "speed-ups of own steps remain when step length and sampling are equal"
    third = f'<div class="fact"><b>0 of 12</b> <span>{words}</span></div>'
    return html.replace('<div class="facts">', f'<div class="facts">{third}', 1)
