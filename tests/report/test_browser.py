"""The page in a real browser: it opens without errors, draws every line, changes its colours and fits a phone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ownstep.report import build, explorer, read
from ownstep.report import write as write_page

from .browser import BROWSERS, Chromium, chromium
from .conftest import METHODS, write
from .test_page import poisoned

WIDTHS = (1280, 390)
ROOT = Path(__file__).parents[2]
TOO_WIDE = """const inside = (e) => e.closest(".scroll, pre, .toc, .plot, svg.stage");
const tooWide = [...d.querySelectorAll("main *")].filter((e) => e.getClientRects().length && !inside(e)
  && e.getBoundingClientRect().right > w.innerWidth + 1).map((e) => e.outerHTML.slice(0, 80));
"""


UNFOLDED = """const unfolded = new Promise((done) => {
  for (const part of d.querySelectorAll("details.more")) part.open = true;
  setTimeout(done, 150);
});
"""


@pytest.fixture(scope="module", params=BROWSERS)
def browser(request, tmp_path_factory):
    there, kind = BROWSERS[request.param]
    if there() is None:
        pytest.skip(f"{request.param} is not on this machine")
    return kind(tmp_path_factory.mktemp("browser"))


def ask(browser, html, script="return null;", width=1280):
    """What a script gives on the page, which must not have gone wrong."""
    answer = browser.ask({"html": html, "script": script, "width": width})
    assert answer["wrong"] == []
    return answer["value"]


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
                 legends: charts.map((c) => c.querySelectorAll(".legend button").length),
                 width: d.documentElement.scrollWidth,
                 wide: tooWide }; });""",
        width,
    )  # fmt: skip
    # In the order of the page: two worst-case curves; three methods and their constants with L-bar; four in the contest
    expected = [2, len(METHODS), 2, 4]
    assert shown["lines"] == expected
    assert shown["plotted"] == expected
    assert shown["legends"] == expected
    assert all(100 < size <= width for size in shown["sizes"])
    assert shown["width"] <= width
    assert shown["wide"] == []


def test_the_repository_s_own_results_fit_a_phone(browser):
    found = read(ROOT / "results", "../results")
    html = build(found)
    shown = ask(
        browser, html,
        UNFOLDED + "return unfolded.then(() => {" + TOO_WIDE
        + """const charts = [...d.querySelectorAll("figure.chart")];
        return { wide: tooWide, width: d.documentElement.scrollWidth,
                 blank: charts.filter((c) => !(Number(c.dataset.lines) > 0)).length, charts: charts.length }; });""",
        390,
    )  # fmt: skip
    assert shown["wide"] == []
    assert shown["width"] <= 390
    assert shown["blank"] == 0
    assert shown["charts"] == html.count('<figure class="chart"')


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
          chart.draw();
          const button = d.querySelector("figure.chart .legend button");
          button.click();
          out.hidden = chart.plot.series.filter((s) => s.show === false).length;
          const details = d.querySelector("figure.chart details");
          details.open = true;
          setTimeout(() => { out.rows = details.querySelectorAll("tbody tr").length; done(out); }, 100);
        }, 100)); });""",
    )  # fmt: skip
    assert "rounds K 2" in seen["tip"]
    assert "GD 1/L\u0304" in seen["tip"]
    assert "0.25" in seen["tip"]  # 2^-2
    assert seen["zoomed"] == [1, 2]
    assert seen["hidden"] == 1
    assert seen["rows"] == 4


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


def test_the_gain_follows_the_sliders(browser, results):
    gains = ask(
        browser, build(read(results, "r")),
        """const gain = () => Number(d.querySelector("[data-gain]").textContent), out = [gain()];
        for (const name of ["All alike", "MNIST, five devices"]) {
          [...d.querySelectorAll(".presets button")].find((b) => b.textContent === name).click();
          out.push(gain());
        }
        [...d.querySelectorAll(".presets button")][0].click();
        const slider = d.querySelector(".sliders input.L");
        slider.value = Math.log(3);
        slider.dispatchEvent(new w.Event("input"));
        out.push(gain());
        return out;""",
    )  # fmt: skip
    L = (119, 145, 178, 336, 488)
    by_hand = sum(L) / 5 * sum(1 / v for v in L) / 5
    assert gains == pytest.approx([(1 / 3 + 3) ** 2 / 4, 1, by_hand, 1], abs=0.006)


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


def test_the_race_can_be_played_scrubbed_dragged_and_switched(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        r"""const race = d.getElementById("tab-race"), out = {};
        const told = () => race.querySelector("[data-told]").textContent;
        const own = () => Number(/own steps 1\/L.? ([\d.]+)/.exec(told())[1]);
        const scrub = race.querySelector("[data-k]");
        const go = (k) => { scrub.value = k; scrub.dispatchEvent(new w.Event("input")); };
        go(60);
        out.settled = own();
        out.apart = Number(/settle ([\d.]+) away/.exec(told())[1]);
        go(10);
        race.querySelector("[data-switch]").click();
        go(60);
        out.repaired = own();
        const start = race.querySelector('[data-handle="start"]'), before = start.getAttribute("cx");
        const at = start.getBoundingClientRect(), x = at.left + at.width / 2, y = at.top + at.height / 2;
        start.dispatchEvent(new w.PointerEvent("pointerdown", { clientX: x, clientY: y, bubbles: true }));
        w.dispatchEvent(new w.PointerEvent("pointermove", { clientX: x + 60, clientY: y }));
        w.dispatchEvent(new w.PointerEvent("pointerup", {}));
        out.moved = Number(race.querySelector('[data-handle="start"]').getAttribute("cx")) - Number(before);
        go(0);
        race.querySelector("[data-play]").click();
        return new Promise((done) => setTimeout(() => { out.played = Number(scrub.value); done(out); }, 900));""",
    )  # fmt: skip
    assert seen["settled"] == pytest.approx(seen["apart"], abs=0.02)  # own steps end at the wrong point
    assert seen["repaired"] < 0.05  # and the switch repairs it
    assert seen["moved"] > 20
    assert seen["played"] >= 1


def test_the_worst_case_follows_sliders_and_map_and_can_be_shared(browser, results):
    grid = json.loads((Path(explorer.__file__).parent / "assets" / "worst_cases.json").read_text())
    axes = grid["axes"]
    seen = ask(
        browser, build(read(results, "r")),
        """const tab = d.getElementById("tab-worst"), out = {};
        d.getElementById("open-worst").click();
        const told = () => tab.querySelector("[data-told]").textContent;
        const put = (name, i) => {
          const input = tab.querySelector(`[data-axis="${name}"]`);
          input.value = i;
          input.dispatchEvent(new w.Event("input"));
          input.dispatchEvent(new w.Event("change"));
          return input.getAttribute("aria-valuetext");
        };
        out.first = told();
        out.points = tab.querySelectorAll(".certified").length;
        out.words = put("K", 3);
        out.moved = told();
        tab.querySelector('[data-cell="0 0"]').dispatchEvent(new w.Event("click"));
        out.clicked = told();
        out.here = tab.querySelectorAll("[data-map] .here").length;
        out.map = tab.querySelector("[data-map]").getAttribute("aria-label");
        out.note = tab.querySelector("[data-certified]").textContent;
        out.state = w.eval("Explorer").state();
        return out;""",
    )  # fmt: skip
    curves = grid["curves"]
    key, middle = f"9|{0.06:g}|0.1|0.5", axes["K"].index(10)
    here = {m: curves[m]["0.06"][middle] for m in ("GD 1/L-bar", "Nesterov", "ITEM", "GD best fixed step")}
    here |= {"Algorithm 1": curves["Algorithm 1"][key][middle]}
    here |= {"designed": curves["designed"]["9|0.06|0.1|10"][0]}
    best, second = sorted(here.values())[:2]
    assert best == here["designed"]
    assert "The designed steps have the smallest worst case after 10 rounds" in seen["first"]
    assert f"{second / best:.2f} times below the best fixed step" in seen["first"]
    assert f"{here['GD 1/L-bar'] / here['Algorithm 1']:.2f} times below GD" in seen["first"]
    assert seen["points"] >= 5 * len(axes["K"])
    assert seen["words"] == f"rounds K {axes['K'][3]}"
    assert f"after {axes['K'][3]} rounds" in seen["moved"]
    cell = curves["Algorithm 1"]["9|0.06|0|0.25"][3] / curves["GD 1/L-bar"]["0.06"][3]
    assert f"{1 / cell:.2f} times below GD" in seen["clicked"]
    assert seen["here"] == 1
    assert "of gradient descent in" in seen["map"]
    assert "certificate in exact fractions" in seen["note"]
    assert seen["state"]["worst"] == {
        "ratio": axes["ratio"].index(9), "mu": axes["mu"].index(0.06), "rstar": 0, "share": 0, "K": 3,
    }  # fmt: skip


def test_every_shipped_worst_case_is_a_proved_number_on_a_small_file():
    path = Path(explorer.__file__).parent / "assets" / "worst_cases.json"
    grid = json.loads(path.read_text())
    assert path.stat().st_size < 500_000
    assert {"command", "commit", "versions"} <= set(grid["made"])
    axes, gd = grid["axes"], grid["curves"]["GD 1/L-bar"]
    for mu in axes["mu"]:
        # GD at step 1/L on F(mu, L) with L = R0 = 1, in closed form (Taylor, Hendrickx and Glineur, 2017)
        closed = [mu / (mu - 1 + (1 - mu) ** (-2 * k)) / 2 for k in axes["K"]]
        assert gd[f"{mu:g}"] == pytest.approx(closed, rel=1e-3)
        assert all(a >= (1 - 1e-9) * b for a, b in zip(gd[f"{mu:g}"], closed, strict=True))  # upper ends
    for key, curve in grid["curves"]["Algorithm 1"].items():
        ratio, mu, rstar, share = key.split("|")
        assert len(curve) == len(axes["K"])
        if float(rstar) > 0:  # a larger class has no smaller worst case
            below = grid["curves"]["Algorithm 1"][f"{ratio}|{mu}|0|{share}"]
            assert all(a >= 0.999 * b for a, b in zip(curve, below, strict=True) if a and b)


def test_pasted_devices_give_the_gain_and_a_command(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        """const tab = d.getElementById("tab-gain"), out = {};
        d.getElementById("open-gain").click();
        const put = (name, text) => {
          const field = tab.querySelector(`[data-paste-${name}]`);
          field.value = text;
          field.dispatchEvent(new w.Event("change"));
        };
        put("l", "1 4; 10");
        put("w", "2, 1, 1");
        out.gain = Number(tab.querySelector("[data-gain]").textContent);
        out.command = tab.querySelector("[data-command]").textContent;
        put("l", "1, -4");
        out.error = tab.querySelector("[data-paste-told]").textContent;
        return out;""",
    )  # fmt: skip
    assert seen["gain"] == pytest.approx((0.5 * 1 + 0.25 * 4 + 0.25 * 10) * (0.5 + 0.25 / 4 + 0.025), abs=0.006)
    assert seen["command"] == "ownstep plan --L 1,4,10 --weights 0.5,0.25,0.25"
    assert "got -4" in seen["error"]


def test_nobody_is_kept_out(browser, results):
    """axe-core finds no serious or critical barrier, in light and in dark."""
    axe = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
    for theme in ("light", "dark"):
        found = ask(
            browser, build(read(results, "r")),
            f"d.documentElement.dataset.theme = '{theme}'; w.eval({json.dumps(axe)});"
            """return w.axe.run(d, { resultTypes: ["violations"] }).then((r) => r.violations
                .filter((v) => ["serious", "critical"].includes(v.impact))
                .map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(" | ")));""",
        )  # fmt: skip
        assert found == []
