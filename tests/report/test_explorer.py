"""The explorer in a real browser: the race, the worst case and your devices."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path

import pytest

from ownstep.report import build, explorer, read
from ownstep.report import write as write_page

from .browser import Chromium, ask, chromium


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


def test_the_race_can_be_played_scrubbed_dragged_and_switched(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        r"""const race = d.getElementById("tab-race"), out = {};
        const told = () => race.querySelector("[data-told]").textContent;
        const own = () => Number(/own steps 1\/L.?: ([\d.]+)/.exec(told())[1]);
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


@pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")
def test_nothing_moves_for_those_who_asked_for_that(results, tmp_path):
    target = tmp_path / "index.html"
    write_page(results, target)
    page = Chromium(tmp_path).dump(target, "--force-prefers-reduced-motion")
    assert '<span data-round="">round 60</span>' in page  # the end, without a play
    assert "After 60 rounds" in page
    assert '<span data-round="">round 12</span>' in Chromium(tmp_path).dump(target)


def test_letters_of_the_race_keep_their_size_on_a_phone(browser, results):
    seen = ask(
        browser, build(read(results, "r")),
        """const svg = d.querySelector("#tab-race svg"), text = svg.querySelector("text");
        const code = d.querySelector("[data-command]");
        d.getElementById("open-gain").click();
        const clipped = code.scrollWidth > code.parentElement.clientWidth;
        d.getElementById("open-race").click();
        const size = parseFloat(w.getComputedStyle(text).fontSize);
        return { scale: svg.clientWidth / svg.viewBox.baseVal.width, size, clipped };""",
        390,
    )  # fmt: skip
    assert seen["scale"] * seen["size"] > 11
    assert not seen["clipped"]


def worst_cases() -> tuple[Path, dict]:
    """The grid that is shipped with the page."""
    path = Path(explorer.__file__).parent / "assets" / "worst_cases.json"
    return path, json.loads(path.read_text())


def certified(grid: dict, at: dict[str, float]) -> dict[str, float]:
    """Every method's worst case where the sliders stand: what the page has to show, looked up a second time."""
    axes, curves = grid["axes"], grid["curves"]
    apart = abs(axes["L"].index(at["L1"]) - axes["L"].index(at["L2"]))
    k, mu = axes["K"].index(at["K"]), f"{at['mu']:g}"
    found = {m: curves[m][mu][k] for m in ("GD 1/L-bar", "Nesterov", "ITEM", "GD best fixed step")}
    here = f"{apart}|{mu}|{at['rstar']:g}"
    found["Algorithm 1"] = curves["Algorithm 1"][f"{here}|{at['share']:g}"][k] if apart else found["GD 1/L-bar"]
    found["designed"] = curves["designed"].get(f"{here}|{at['K']}", [None])[0]
    return {method: value for method, value in found.items() if value}


NAMES = {"GD 1/L-bar": "GD, 1/L\u0304", "GD best fixed step": "the best fixed step", "designed": "the designed steps"}


def times(value: float) -> str:
    """A factor as the page writes it."""
    return f"{value:.3f}" if value < 1.095 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def test_the_worst_case_follows_sliders_and_map_and_can_be_shared(browser, results):
    grid = worst_cases()[1]
    axes = grid["axes"]
    first = {"L1": 0.333, "L2": 3, "mu": 0.06, "rstar": 0.1, "K": 10, "share": 0.5}  # the paper's constants
    assert all(value in axes[name.rstrip("12")] for name, value in first.items())
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
        out.ratios = tab.querySelector("[data-ratios]").textContent;
        out.points = tab.querySelectorAll(".certified").length;
        out.words = put("K", 3);
        out.moved = told();
        tab.querySelector('[data-cell="0 0"]').dispatchEvent(new w.Event("click"));
        out.clicked = told();
        out.here = tab.querySelectorAll("[data-map] .here").length;
        out.map = tab.querySelector("[data-map]").getAttribute("aria-label");
        out.note = tab.querySelector("[data-certified]").textContent;
        out.state = JSON.parse(JSON.stringify(w.eval("Explorer").state()));
        const last = tab.querySelector('[data-axis="L1"]').max;
        put("L1", last);
        put("L2", 0);
        out.swapped = told();
        put("L1", 0);
        put("L2", last);
        out.extreme = told();
        put("L2", 0);
        out.alike = told();
        return out;""",
    )  # fmt: skip
    here = certified(grid, first)
    (best, least), (second, more) = sorted(here.items(), key=lambda item: item[1])[:2]
    subject = NAMES.get(best, best)
    assert seen["first"].lower().startswith(subject.replace("the best", "gd at the best").lower())
    assert f"{times(more / least)} times below {NAMES.get(second, second)}." in seen["first"]
    assert f"{here['GD 1/L-bar'] / here['Algorithm 1']:.2f} times below GD" in seen["first"]
    assert "Only ratios matter" in seen["ratios"]
    assert "= 9," in seen["ratios"]
    assert seen["points"] >= 5 * len(axes["K"])
    assert seen["words"] == f"rounds K {axes['K'][3]}"
    assert f"after {axes['K'][3]} rounds" in seen["moved"]
    corner = first | {"K": axes["K"][3], "rstar": axes["rstar"][0], "share": axes["share"][0]}
    here = certified(grid, corner)
    assert f"{times(here['GD 1/L-bar'] / here['Algorithm 1'])} times below GD" in seen["clicked"]
    assert seen["here"] == 1
    assert "of gradient descent in" in seen["map"]
    assert "certificate in exact fractions" in seen["note"]
    assert seen["state"]["worst"] == corner  # values, so that an address outlives a change of the grid
    here = certified(grid, corner | {"L1": axes["L"][0], "L2": axes["L"][-1]})
    over = here["Algorithm 1"] / here["GD 1/L-bar"]
    assert f"{times(max(over, 1 / over))} times {'above' if over > 1 else 'below'} GD" in seen["extreme"]
    assert seen["swapped"] == seen["extreme"]  # which of the two is called the first does not matter
    assert "so Algorithm 1 is GD" in seen["alike"]


def test_every_shipped_worst_case_is_a_proved_number_on_a_small_file():
    path, grid = worst_cases()
    assert path.stat().st_size < 500_000
    assert {"command", "commit", "versions"} <= set(grid["made"])
    axes, gd = grid["axes"], grid["curves"]["GD 1/L-bar"]
    for a, b in pairwise(axes["L"]):  # one factor between neighbours: how far apart two stand is their ratio
        assert b / a == pytest.approx(axes["L"][-1] ** (2 / (len(axes["L"]) - 1)), rel=0.01)
    for mu in axes["mu"]:
        # GD at step 1/L on F(mu, L) with L = R0 = 1, in closed form (Taylor, Hendrickx and Glineur, 2017)
        closed = [mu / (mu - 1 + (1 - mu) ** (-2 * k)) / 2 for k in axes["K"]]
        assert gd[f"{mu:g}"] == pytest.approx(closed, rel=1e-3)
        assert all(a >= (1 - 1e-9) * b for a, b in zip(gd[f"{mu:g}"], closed, strict=True))  # upper ends
    ours = grid["curves"]["Algorithm 1"]
    places = product(range(1, len(axes["L"])), axes["mu"], axes["rstar"], axes["share"])
    assert set(ours) == {f"{apart}|{mu:g}|{rstar:g}|{share:g}" for apart, mu, rstar, share in places}
    for key, curve in ours.items():
        apart, mu, rstar, share = key.split("|")
        assert len(curve) == len(axes["K"])
        if float(rstar) > 0:  # a larger class has no smaller worst case
            below = ours[f"{apart}|{mu}|0|{share}"]
            assert all(a >= 0.999 * b for a, b in zip(curve, below, strict=True) if a and b)
    points = [value for curves in grid["curves"].values() for curve in curves.values() for value in curve]
    assert sum(value is None for value in points) < 0.01 * len(points)  # what has no proof in time is left out


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
