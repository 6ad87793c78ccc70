"""Appendix, Fig. 9: Algorithm 1 when devices stay away, twenty of them with two classes each."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ownstep import plots
from ownstep.engines import Bernoulli, Bursts, Cohort, Missing, Outages, Participation, Stragglers
from ownstep.engines import run as run_method
from ownstep.history import finite
from ownstep.methods import GD, Method, OwnStep
from ownstep.paper import _mnist
from ownstep.paper._contest import OURS, POOLED
from ownstep.paper.conducting import Pieces

CLAIM = "Algorithm 1 stays robust when each of twenty devices takes part with probability 0.7 to 1 (MNIST)."

SAYS = "The curves for p = 0.7, 0.8, 0.9 and 1 lie close to each other (Fig. 9 of the appendix)."
WHY = (
    "They agree for independent absences. The paper does not say what becomes of an absent device's share; here it is "
    "rescaled, and the other choices and other kinds of absence are shown beside it."
)
NOTICE = _mnist.notice

SETTINGS = (
    *_mnist.SETTINGS,
    ("split", "two classes a device, twenty devices", "two shards of sorted labels a device (McMahan et al.)", ""),
    ("p", "0.7, 0.8, 0.9, 1.0", "the same", ""),
    ("missing share", "not said", "rescaled; and dropped, and last known gradients", "the three usual choices"),
    ("other absences", "none", "cohorts, bursts, stragglers, a device that dies, one that returns",
     "independent absences are the kindest"),
    ("robust", "curves close to each other", "at most 1.1/p times the rounds of p = 1 to every level",
     "p of the devices do p of the work"),
)  # fmt: skip

PROBABILITIES = (0.7, 0.8, 0.9, 1.0)
DEVICES, SLACK = 20, 1.1
RULES: tuple[Missing, ...] = ("rescale", "drop", "last")


def run(
    quick: bool = False, seed: int = 0, progress: bool | None = None, pieces: Pieces | None = None
) -> dict[str, Any]:
    """Algorithm 1 and pooled GD under every absence; ``quick`` takes digits and fewer rounds."""
    setting = _mnist.problem(quick, seed, _mnist.two_classes(DEVICES, seed))
    rounds, levels = 150 if quick else 1000, _mnist.levels(quick, (0.5, 0.3) if quick else (0.1, 0.03))
    cases: dict[str, tuple[float, Participation | None]] = {}
    for missing in RULES:
        for p in PROBABILITIES:
            if p < 1 or missing == "rescale":
                cases[f"p = {p:g}, {missing}"] = (p, Bernoulli(p, missing, seed) if p < 1 else None)
    cases |= {
        "14 of 20, rescale": (0.7, Cohort(14, seed=seed)),
        "bursts of 10 rounds, rescale": (0.7, Bursts(0.3 / 7, 0.1, seed=seed)),
        "stragglers, rescale": (0.7, Stragglers(1.0, float(-np.log(0.3)), seed=seed)),
        "one dies, rescale": (0.95, Outages(((0, rounds // 4, None),))),
        "one dies, last": (0.95, Outages(((0, rounds // 4, None),), missing="last")),
        "one returns, rescale": (0.95, Outages(((0, rounds // 4, rounds // 2),))),
    }
    kept = pieces or Pieces()
    arms = [kept(name, _arm, setting, name, p, rule, rounds, levels, progress) for name, (p, rule) in cases.items()]
    return {
        "model": setting.model,
        "levels": list(levels),
        "rounds": rounds,
        "plan": setting.plan.to_dict(),
        "arms": arms,
    }


def _arm(
    setting: _mnist.Setting,
    name: str,
    p: float,
    rule: Participation | None,
    rounds: int,
    levels: tuple[float, ...],
    progress: bool | None,
) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "p": p, "methods": {}}
    methods: dict[str, Method] = {OURS: OwnStep(), POOLED: GD("mean")}
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


def slowdowns(result: dict[str, Any], arm: dict[str, Any], method: str = OURS) -> list[float]:
    """Rounds under this absence over rounds with everyone there, at each level; infinite if it never arrives."""
    everyone = next(a for a in result["arms"] if a["p"] == 1)["methods"][method]["rounds"]
    here = arm["methods"][method]["rounds"]
    return [np.inf if here[t] is None else here[t] / k for t, k in everyone.items() if k]


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed on the paper's cases, independent absences with the share rescaled; the others are findings."""
    paper = [a for a in result["arms"] if a["name"].startswith("p =") and a["name"].endswith("rescale") and a["p"] < 1]
    cells = [(s, a["p"]) for a in paper for s in slowdowns(result, a)]
    kept = sum(s <= SLACK / p for s, p in cells)
    word = "holds" if cells and kept == len(cells) else "holds partly" if kept else "does not hold here"
    return {
        "verdict": word,
        "rule": f"at most {SLACK:g}/p times the rounds of p = 1, in {kept} of {len(cells)} cells (p x level, rescaled)",
        "findings": [_finding(result, arm) for arm in result["arms"]],
    }


def _finding(result: dict[str, Any], arm: dict[str, Any]) -> str:
    ours, theirs = (
        "/".join("never" if s == np.inf else f"{s:.2f}" for s in slowdowns(result, arm, m)) for m in (OURS, POOLED)
    )
    here = arm["methods"][OURS]
    levels = "/".join(f"{t:g}" for t in result["levels"])
    return (
        f"{arm['name']}: {ours} times the rounds of full participation to {levels} (pooled GD {theirs}); final gap "
        f"{here['final_gap']:.3g}, {100 * here['share_present']:.0f}% present, test accuracy "
        f"{100 * here['accuracy']['test']:.1f}%"
    )


def _groups(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    arms = result["arms"]
    return {
        "p, share rescaled": [a for a in arms if a["name"].endswith("rescale") and a["name"][0] == "p"],
        "p = 0.7, missing share": [a for a in arms if a["name"].startswith("p = 0.7") or a["p"] == 1],
        "other absences": [a for a in arms if a["name"][0:3] != "p ="],
    }


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: one chart a group, one view a method."""
    step = max(1, result["rounds"] // 100)

    def lines(arms: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
        gaps = {arm["name"]: arm["methods"][method]["gap"] for arm in arms}
        return [{"name": name, "x": [step * i for i in range(len(gap))], "y": gap} for name, gap in gaps.items()]

    return [
        {"title": title, "pointer": "result.arms", "views": [
            {"y": f"gap of {method}", "log": True, "lines": lines(arms, method)} for method in (OURS, POOLED)
        ]}
        for title, arms in _groups(result).items()
    ]  # fmt: skip


def figure(result: dict[str, Any]) -> Figure:
    """Algorithm 1's gap: the paper's case, the choices for the missing share, and other absences."""
    drawn, axes = plots.new_figure(3, width=5.2)
    groups = _groups(result)
    step = max(1, result["rounds"] // 100)
    for ax, (title, arms) in zip(axes[0], groups.items(), strict=True):
        for i, arm in enumerate(arms):
            gap = [np.nan if g is None else g for g in arm["methods"][OURS]["gap"]]
            ax.plot(step * np.arange(len(gap)), gap, label=arm["name"], color=plots.colour("", i), lw=1.5)
        ax.set_yscale("log")
        plots.finish(ax, title, "round", "(f − f*) / (f(x⁰) − f*)", "best")
    return drawn
