"""Appendix, Fig. 9: Algorithm 1 when devices stay away, twenty of them with two classes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep.engines import Bernoulli, Bursts, Cohort, Missing, Outages, Participation, Stragglers
from ownstep.engines import run as run_method
from ownstep.history import finite
from ownstep.methods import GD, Method
from ownstep.paper.machinery import mnist_problem
from ownstep.paper.machinery.bootstrap import number
from ownstep.paper.machinery.neural import OURS, OURS_DEFAULT, POOLED
from ownstep.paper.machinery.runner import Pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "Algorithm 1 stays robust when each of twenty devices takes part with probability 0.7 to 1 (MNIST)."

SAYS = "The curves for p = 0.7, 0.8, 0.9 and 1 lie close to each other (Fig. 9 of the appendix)."
WHY = (
    "They agree for independent absences. The paper does not say what becomes of an absent device's share. Here "
    "the other shares are rescaled. Other choices and other kinds of absence are shown too."
)
NOTICE = mnist_problem.notice

SETTINGS = (
    *mnist_problem.SETTINGS,
    ("split", "two classes per device, twenty devices", "two shards of sorted labels per device (McMahan et al.)", ""),
    ("p", "0.7, 0.8, 0.9, 1.0", "the same", ""),
    ("missing share", "not said", "rescaled; and dropped, and last known gradients", "the three usual choices"),
    ("runs", "not said", "5 draws of images and absences unless asked otherwise", "one draw proves little"),
    ("other absences", "none", "logistic regression: cohorts, bursts, stragglers, a device that dies, one that returns",
     "independent absences are the kindest"),
    ("robust", "curves close to each other", "at most 1.1/p times the rounds of p = 1 to every level",
     "p of the devices do p of the work"),
)  # fmt: skip

PROBABILITIES = (0.7, 0.8, 0.9, 1.0)
DEVICES, SLACK, SEEDS = 20, 1.1, 5
RULES: tuple[Missing, ...] = ("rescale", "drop", "last")


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """Algorithm 1 and pooled GD under every absence, seed by seed; ``quick`` takes digits and fewer rounds."""
    rounds, levels = 150 if quick else 1000, mnist_problem.levels(quick, (0.5, 0.3) if quick else (0.1, 0.03))
    kept, arms = pieces or Pieces(), []

    @lru_cache(maxsize=1)
    def setting(s: int) -> mnist_problem.Setting:  # made only if something is left to run
        return mnist_problem.problem(quick, s, mnist_problem.two_classes(DEVICES, s))

    about = kept(f"plan, seed {seed}", lambda: {"model": setting(seed).model, "plan": setting(seed).plan.to_dict()})
    for s in range(seed, seed + (seeds or (1 if quick else SEEDS))):
        found = cases(s, rounds)
        if mnist_problem.on_gpu(quick):
            found = {name: case for name, case in found.items() if for_network(name, s == seed)}
        for name, (p, rule) in found.items():
            arms.append(kept(f"{name}, seed {s}", _arm, setting, s, name, p, rule, rounds, levels, progress, s == seed))
    return completed(about | {"levels": list(levels), "rounds": rounds, "arms": arms}, quick)


def for_network(name: str, first: bool) -> bool:
    """Is this absence one for the network: the paper's, and with the first draw every choice for the missing share?"""
    return name.startswith("p =") and (name.endswith("rescale") or (first and name.startswith("p = 0.7")))


def cases(seed: int, rounds: int) -> dict[str, tuple[float, Participation | None]]:
    """Every absence by name, with the share of devices that are there."""
    out: dict[str, tuple[float, Participation | None]] = {}
    for missing in RULES:
        for p in PROBABILITIES:
            if p < 1 or missing == "rescale":
                out[f"p = {p:g}, {missing}"] = (p, Bernoulli(p, missing, seed) if p < 1 else None)
    return out | {
        "14 of 20, rescale": (0.7, Cohort(14, seed=seed)),
        "bursts of 10 rounds, rescale": (0.7, Bursts(0.3 / 7, 0.1, seed=seed)),
        "stragglers, rescale": (0.7, Stragglers(1.0, float(-np.log(0.3)), seed=seed)),
        "one dies, rescale": (0.95, Outages(((0, rounds // 4, None),))),
        "one dies, last": (0.95, Outages(((0, rounds // 4, None),), missing="last")),
        "one returns, rescale": (0.95, Outages(((0, rounds // 4, rounds // 2),))),
    }


def _arm(
    make: Callable[[int], mnist_problem.Setting],
    seed: int,
    name: str,
    p: float,
    rule: Participation | None,
    rounds: int,
    levels: tuple[float, ...],
    progress: bool | None,
    first: bool,
) -> dict[str, Any]:
    setting = make(seed)
    out: dict[str, Any] = {"name": name, "p": p, "seed": seed, "methods": {}}
    methods: dict[str, Method] = mnist_problem.ours(setting.model, rounds, first) | {POOLED: GD("mean")}
    for label, method in methods.items():
        history = run_method(
            method, setting.problem, rounds, devices=setting.plan.devices, participation=rule, progress=progress,
            name=label,
        )  # fmt: skip
        gap = history.gap(setting.optimum)
        out["methods"][label] = {
            "rounds": {f"{t:g}": history.rounds_to(t, setting.optimum) for t in levels},
            "final_gap": finite(float(gap[-1])),
            "accuracy": setting.accuracy(history.x),
            "switched_at": history.switched_at,
            "share_present": 1.0 if history.took_part is None else float(history.took_part.mean()),
            "gap": [finite(float(g)) for g in gap[:: max(1, rounds // 100)]],
        }
    return out


def slowdowns(result: Mapping[str, Any], name: str, method: str = OURS) -> dict[str, list[float]]:
    """Rounds under an absence over rounds with everyone there, by level, one per seed; infinite if it never arrives."""
    ran = [arm for arm in result["arms"] if method in arm["methods"]]
    everyone = {a.get("seed", 0): a["methods"][method]["rounds"] for a in ran if a["p"] == 1}
    out: dict[str, list[float]] = {}
    for arm in (a for a in ran if a["name"] == name):
        here = arm["methods"][method]["rounds"]
        for level, k in everyone[arm.get("seed", 0)].items():
            if k:
                out.setdefault(level, []).append(np.inf if here[level] is None else here[level] / k)
    return out


def _named(result: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [arm for arm in result["arms"] if arm["name"] == name]


def _names(result: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(arm["name"] for arm in result["arms"]))


completed = partial(mnist_problem.with_network, "participation")


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """See :func:`judge`; of the paper's network, where it was trained."""
    return mnist_problem.judged(result, judge)


def judge(result: Mapping[str, Any]) -> dict[str, Any]:
    """Computed on the paper's cases, independent absences with the share rescaled; the others are findings.

    A cell is a probability and a level; of several seeds every one has to stay within the bound.
    """
    kept, count, numbers = 0, 0, []
    for name in (n for n in _names(result) if n.startswith("p =") and n.endswith("rescale")):
        p = _named(result, name)[0]["p"]
        for level, found in slowdowns(result, name).items() if p < 1 else ():
            count += 1
            kept += max(found) <= SLACK / p
            if np.isfinite(found).all():
                group = "rounds over those with everyone there, share rescaled"
                numbers.append(number(f"p = {p:g}, to {level}", found, group, f"at most {SLACK / p:.2f}"))
    word = "holds" if count and kept == count else "holds partly" if kept else "does not hold here"
    seeds = len({arm.get("seed", 0) for arm in result["arms"]})
    every = f", in every one of {seeds} runs" if seeds > 1 else ""
    return {
        "verdict": word,
        "rule": f"at most {SLACK:g}/p times the rounds of p = 1{every}, in {kept} of {count} settings (p, level, "
        "rescaled)",
        "findings": [_finding(result, name) for name in _names(result)],
        "numbers": numbers,
    }


def _finding(result: Mapping[str, Any], name: str) -> str:
    def text(method: str) -> str:
        return "/".join(_mean(found) for found in slowdowns(result, name, method).values())

    here = [arm["methods"][OURS] for arm in _named(result, name)]
    levels = "/".join(slowdowns(result, name)) or "any level"
    gaps = [h["final_gap"] for h in here]
    end = "none" if None in gaps else f"{np.mean(gaps):.3g}"
    beside = {"pooled GD": POOLED, "with the default switch": OURS_DEFAULT}
    others = ", ".join(
        f"{shown} {text(method)}{'' if all(method in a['methods'] for a in _named(result, name)) else ', first draw'}"
        for shown, method in beside.items()
        if _ran(result, method)
    )
    return (
        f"{name}: {text(OURS)} times the rounds of full participation to {levels} ({others}); final "
        f"gap {end}, {100 * np.mean([h['share_present'] for h in here]):.0f}% present, test accuracy "
        f"{100 * np.mean([h['accuracy']['test'] for h in here]):.1f}%"
    )


def _ran(result: Mapping[str, Any], method: str) -> bool:
    return method in result["arms"][0]["methods"]


def _mean(found: Sequence[float]) -> str:
    lost = sum(map(np.isinf, found))
    if lost:
        return "never" if lost == len(found) else f"never in {lost} of {len(found)}"
    return f"{np.mean(found):.2f}" + (f" (up to {max(found):.2f})" if len(found) > 1 else "")


def _groups(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The arms of the first seed, by what they show."""
    arms = [arm for arm in result["arms"] if arm.get("seed", 0) == result["arms"][0].get("seed", 0)]
    found = {
        "p, share rescaled": [a for a in arms if a["name"].endswith("rescale") and a["name"][0] == "p"],
        "p = 0.7, missing share": [a for a in arms if a["name"].startswith("p = 0.7") or a["p"] == 1],
        "other absences": [a for a in arms if a["name"][0:3] != "p ="],
    }
    return {title: some for title, some in found.items() if some}


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: one chart a group, one view a method, of the first seed."""
    parts, out = mnist_problem.parts(result), []

    def lines(arms: list[dict[str, Any]], method: str, step: int) -> list[dict[str, Any]]:
        gaps = {arm["name"]: arm["methods"][method]["gap"] for arm in arms}
        return [{"name": name, "x": [step * i for i in range(len(gap))], "y": gap} for name, gap in gaps.items()]

    for model, part in parts.items():
        step, where = max(1, part["rounds"] // 100), mnist_problem.pointer(result, part)
        for title, arms in _groups(part).items():
            views = [
                {"y": f"{mnist_problem.gap_label(model)} of {method}", "log": True, "lines": lines(arms, method, step)}
                for method in (OURS, OURS_DEFAULT, POOLED)
                if _ran(part, method)
            ]
            shown = title if len(parts) == 1 else f"{model}: {title}"
            out.append({"title": shown, "pointer": where, "views": views})
    return out


def figure(result: dict[str, Any]) -> Figure:
    """What absences cost: the paper's case by p, and every kind of absence of the model that has most of them."""
    from ownstep import plots
    from ownstep.paper.machinery.pictures import ONE, capital, key, span_rows

    parts = mnist_problem.parts(result)
    drawn, axes = plots.new_figure(2, width=3.45, height=2.7)
    left, right = axes[0]
    plots.headline(drawn, _says(parts))
    least = min(PROBABILITIES)
    at = np.linspace(least, 1, 30)
    shades = iter(("#7F2704", "#D55E00", "#F0A060", "#B8860B"))
    for model, part in parts.items():
        for level in {f"{t:g}": None for t in part["levels"]}:
            found = {p: slowdowns(part, f"p = {p:g}, rescale").get(level, []) for p in PROBABILITIES}
            known = {p: f for p, f in found.items() if f and np.isfinite(f).all()}
            if len(known) > 1:
                tint, label = next(shades), f"{'network' if model == mnist_problem.NETWORK else 'logistic'}, to {level}"
                left.fill_between(list(known), *zip(*((min(f), max(f)) for f in known.values()), strict=True),
                                  color=tint, alpha=0.16, lw=0)  # fmt: skip
                left.plot(list(known), [np.mean(f) for f in known.values()], "o-", color=tint, ms=3.5, label=label)
    left.plot(at, SLACK / at, color="#444444", lw=1, ls="--", label=f"bound {SLACK:g}/p")
    left.set(xlim=(least - 0.01, 1.01), xticks=PROBABILITIES)
    plots.finish(left, "Share rescaled: mean and range", "probability p to take part", "rounds / rounds with all")
    plots.name_lines(left)
    model, part = max(parts.items(), key=lambda item: len(_names(item[1])))
    names = [n for n in _names(part) if not n.startswith(("p = 0.8", "p = 0.9", "p = 1"))]
    level = next(iter(slowdowns(part, names[0])), "no level")
    rows = {
        _plain(name): {method: slowdowns(part, name, method).get(level, []) for method in (OURS, POOLED)}
        for name in names
    }
    right.axvline(1, **ONE)
    span_rows(right, rows)
    title = f"{capital(model)}, to {level}"
    key(right, {method: plots.colour(method) for method in (OURS, POOLED)}, title=title)
    plots.finish(right, "", "rounds / rounds with all", "")
    return drawn


def _plain(name: str) -> str:
    """An absence as a reader would say it; that the share is rescaled is the rule."""
    for typed, said in {", rescale": "", ", drop": ", not rescaled", ", last": ", last gradients"}.items():
        name = name.replace(typed, said)
    return name


def _says(parts: Mapping[str, Any]) -> str:
    """The cost of the paper's hardest case, and of dropping the share instead."""
    p = min(PROBABILITIES)
    cost = [v for part in parts.values() for f in slowdowns(part, f"p = {p:g}, rescale").values() for v in f]
    most = f"at most {max(cost):.2f} times the rounds" if cost and np.isfinite(cost).all() else "more rounds"
    drop = [np.mean(f) for part in parts.values() for f in slowdowns(part, f"p = {p:g}, drop").values()]
    text = f"With {100 * p:.0f} % of the devices present Algorithm 1 needs {most}"
    return text + (f"; without rescaling the missing share, up to {max(drop):.2f} times" if drop else "")
