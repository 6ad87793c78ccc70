"""Algorithm 1 against rivals on one problem: as the paper set them, and with the best settings a search finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ownstep.engines import Participation, noise, price, rivals, run, tune
from ownstep.engines.limits import GRADIENT_SECONDS, parse_wire
from ownstep.engines.tuning import SCALES
from ownstep.history import History, finite
from ownstep.methods import GD, FedLin, Method, Nesterov
from ownstep.paper.machinery import fairness, mnist_problem
from ownstep.paper.machinery.bootstrap import interval, number
from ownstep.paper.machinery.mnist_problem import Setting
from ownstep.paper.machinery.neural import MATCHED, NESTEROV, OURS, POOLED, TRUE, WORTHWHILE
from ownstep.paper.machinery.runner import Kept, Pieces
from ownstep.plan import Devices

OURS_TUNED = "Algorithm 1, steps tuned"
Race = tuple[int, tuple[float, ...], int]
"""Rounds, gaps that count, and settings that a search may try."""
NETWORK_COMPUTE, NETWORK = GRADIENT_SECONDS, parse_wire("home")
"""A home connection, and 10 ms for a gradient; one machine with all the data takes N times as long for one of f."""
BASELINES: dict[str, Method] = {
    POOLED: GD("mean"), TRUE: GD("true"), MATCHED: GD("matched"), NESTEROV: Nesterov("mean"),
}  # fmt: skip
"""What stands beside the rivals; tuned GD is searched for."""
TOP = 3.0
"""Of a run that diverges, what is drawn: up to so many times the first gap."""
NEWER = ("FedAvg", "FedProx", "FedNova", "SCAFFOLD", "FedDyn", "Scaffnew", "FedLin", "FedExP", "FedSPS", "Delta-SGD")
"""Federated methods that the paper does not name; tuned beside its rivals in a full run, with five local steps."""
NEWER_SEEDS = 5
"""Runs that have them: their searches, with five local steps per round, take most of the time."""
SETTINGS = (
    ("newer rivals", "none", f"{', '.join(NEWER)}, tuned, five local steps; recorded in two to five runs",
     "to compare; their searches take hours"),
    ("noise floor", "not measured", "the largest ratio between rounds of one method with other seeds, of the two that "
     "are compared", "a difference below it is called none"),
    ("tuned", "not said", "first in a search's race to the tightest level, then run again with what it found",
     "tuned steps are close to divergence; GPU sums differ in the last bits, so a second run can diverge; it counts"),
)  # fmt: skip


def contest(
    setting: Setting,
    as_set: Mapping[str, Method],
    searched: Mapping[str, Method],
    rounds: int,
    levels: Sequence[float],
    seed: int,
    budget: int = 9,
    participation: Participation | None = None,
    progress: bool | None = None,
    pieces: Kept | None = None,
) -> dict[str, Any]:
    """Rounds to every level for Algorithm 1, :data:`BASELINES`, rivals ``as_set`` and ``searched`` when tuned.

    The searches race to the tightest level. Algorithm 1 and GD are also run with all their steps multiplied by one
    searched factor, so that a rival's better step is not taken for a better method. Every step alone is searched over
    the same nine octaves; ``budget`` limits larger grids. Every method's run is kept among the ``pieces``.
    """
    problem, devices, kept = setting.problem, setting.plan.devices, pieces or Pieces()
    goal = goal_of(setting, levels)
    options: dict[str, Any] = {"devices": devices, "participation": participation, "progress": progress}
    algorithm = mnist_problem.ours(setting.model, rounds)

    def plain(name: str, method: Method) -> dict[str, Any]:
        return _kept(setting, name, run(method, problem, rounds, name=name, **options), None, levels)

    def found(name: str, method: Method) -> dict[str, Any]:
        return tuned(setting, name, method, rounds, levels, seed, budget, **options)

    def scaled() -> dict[str, Any]:
        return _kept(setting, OURS_TUNED, *_ours_scaled(setting, algorithm[OURS], rounds, goal, options), levels=levels)

    runs = [kept(name, plain, name, method) for name, method in (algorithm | BASELINES | dict(as_set)).items()]
    runs += [kept(f"{name} tuned", found, f"{name} tuned", method) for name, method in {"GD": GD(), **searched}.items()]
    runs.append(kept(OURS_TUNED, scaled))
    moved = next(one["moved"] for one in runs if one["row"]["method"] == POOLED)
    return {
        "model": setting.model,
        "plan": setting.plan.to_dict(),
        "levels": list(levels),
        "price": {"level": max(levels), "network": repr(NETWORK), "rows": [*(one["price"] for one in runs), moved]},
        "rows": [one["row"] for one in runs],
        "series": {one["row"]["method"]: one["series"] for one in runs},
    }


def tuned(
    setting: Setting,
    name: str,
    method: Method,
    rounds: int,
    levels: Sequence[float],
    seed: int,
    budget: int = 9,
    trial: Callable[..., Any] = run,
    **options: Any,
) -> dict[str, Any]:
    """One method after its search, as plain data; ``trial`` runs the candidates."""
    problem = setting.problem
    steps = tuple(s / setting.plan.devices.L_bar for s in SCALES)
    grid, most = {"step": steps} if isinstance(method, GD) else None, max(budget, len(SCALES))
    found = tune(
        method, problem, rounds, grid=grid, budget=most, target=goal_of(setting, levels), seed=seed, engine=trial,
        **options,
    )  # fmt: skip
    history = run(found.method, problem, rounds, name=name, **options)
    return _kept(setting, name, history, dict(found.settings) | {"rounds_spent": found.rounds_spent}, levels)


def goal_of(setting: Setting, levels: Sequence[float]) -> float:
    """The f that searches race to: the tightest level."""
    start = setting.problem.value(setting.problem.x0())
    return float(setting.optimum + min(levels) * (start - setting.optimum))


def _kept(
    setting: Setting, name: str, history: History, search: dict[str, Any] | None, levels: Sequence[float]
) -> dict[str, Any]:
    """A run as plain data: its row, what is drawn, its price, and that of the same run where all the data is."""
    one_machine = NETWORK_COMPUTE * len(setting.plan.devices)
    priced = price({name: history}, setting.optimum, max(levels), NETWORK, setting.data_bytes, name, one_machine)
    row = _row(setting, name, history, levels, search)
    return {"row": row, "series": _series(history, setting.optimum), "price": priced[0], "moved": priced[1]}


def newer() -> dict[str, Method]:
    """The methods of :data:`NEWER`."""
    known = rivals() | {"FedLin": FedLin()}
    return {name: known[name] for name in NEWER}


def repeated(
    names: Sequence[str],
    one: Callable[[str, int, Kept], dict[str, Any]],
    seed: int,
    seeds: int,
    pieces: Pieces | None,
) -> dict[str, Any]:
    """``one(name, seed, its pieces)`` for every name and seed, as arms; those of one name are a group."""
    kept, arms = pieces or Pieces(), {}
    for name in names:
        for s in range(seed, seed + seeds):
            label, whole = f"{name}, seed {s}" if seeds > 1 else name, f"{name}, seed {s}"
            arms[label] = kept(whole, one, name, s, kept.within(whole)) | {"group": name, "seed": s}
    return arms


def firsts(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The first seed of every group, by its name."""
    out: dict[str, Mapping[str, Any]] = {}
    for name, arm in arms.items():
        out.setdefault(arm.get("group", name), arm)
    return out


def _ours_scaled(
    setting: Setting, method: Method, rounds: int, goal: float, options: Mapping[str, Any]
) -> tuple[History, dict[str, Any]]:
    """Algorithm 1 with every L_i divided by one factor, the best of :data:`SCALES`."""
    spent, best = 0, (np.inf, np.inf, 1.0)
    limit = rounds
    for scale in SCALES:
        chosen = dict(options) | {"devices": _scaled(setting, scale)}
        history = run(method, setting.problem, limit, target=goal, **chosen)
        last = float(history.value[-1])
        spent += history.rounds
        reached = last <= goal
        limit = min(limit, history.rounds) if reached else limit
        best = min(best, (history.rounds if reached else np.inf, last if np.isfinite(last) else np.inf, scale))
    chosen = dict(options) | {"devices": _scaled(setting, best[2])}
    return run(method, setting.problem, rounds, name=OURS_TUNED, **chosen), {"scale": best[2], "rounds_spent": spent}


def _scaled(setting: Setting, scale: float) -> Devices:
    devices = setting.plan.devices
    return Devices(devices.weights, devices.L / scale, names=devices.names)


def _row(
    setting: Setting, name: str, history: History, levels: Sequence[float], search: dict[str, Any] | None
) -> dict[str, Any]:
    counts = [history.rounds_to(t, setting.optimum) for t in levels]
    sent = history.columns["bytes_up"] + history.columns["bytes_down"]
    return {
        "method": name,
        "rounds": {f"{t:g}": k for t, k in zip(levels, counts, strict=True)},
        "megabytes": {
            f"{t:g}": None if k is None else float(sent[:k].sum() / 1e6) for t, k in zip(levels, counts, strict=True)
        },
        "final_gap": finite(float(history.gap(setting.optimum)[-1])),
        "accuracy": setting.accuracy(history.best_x),
        "switched_at": history.switched_at,
        "search": search,
        "stopped": history.stopped,
    }


def _series(history: History, best: float) -> dict[str, list[Any]]:
    at = np.unique(np.round(np.geomspace(1, history.rounds + 1, 100)).astype(int)) - 1
    return {"round": at.tolist(), "gap": [finite(float(g)) for g in history.gap(best)[at]]}


def rounds_of(arm: Mapping[str, Any], method: str) -> list[int | None]:
    """Rounds of a method to each level."""
    return list(_row_of(arm, method)["rounds"].values())


def judge(arms: Mapping[str, Mapping[str, Any]], claimed: Sequence[str], more: float = WORTHWHILE) -> dict[str, Any]:
    """Computed: in how many (arm, rival, level) cells does Algorithm 1 need fewer rounds, as set and as tuned?

    Only the rivals that the claim names are counted; what else was run is a finding. Arms of one ``group`` are the same
    contest with other seeds: over two or more of them the whole bootstrap interval of a cell has to lie above ``more``,
    and the medians have to differ by more than the noise floor, which is how far the reruns of either method are apart.
    """
    findings: list[str] = []
    numbers: list[dict[str, Any]] = []
    won, count = {"as set": 0, "tuned": 0}, {"as set": 0, "tuned": 0}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for name, arm in arms.items():
        groups.setdefault(arm.get("group", name), []).append(arm)
    for name, repeats in groups.items():
        run = [row["method"] for row in repeats[0]["rows"]]
        findings += [f"{name}: {_itself(repeats, ours)}" for ours in (OURS, OURS_TUNED) if ours in run]
        for row in repeats[0]["rows"]:
            rival = row["method"]
            if rival in (OURS, OURS_TUNED):
                continue
            tuned, having = row["search"] is not None, _having(repeats, rival)
            cells = _cells(having, rival, OURS_TUNED if tuned else OURS)
            if rival.removesuffix(" tuned") in claimed:
                kind = "tuned" if tuned else "as set"
                judged = {level: ratios for level, ratios in cells.items() if ratios}
                floors = _floors(having, rival, OURS_TUNED if tuned else OURS)
                won[kind] += sum(_ahead(ratios, more) and not floors[level][1] for level, ratios in judged.items())
                count[kind] += len(judged)
                group = f"{name}: rounds of {rival} over those of {OURS}{' tuned' if tuned else ''}"
                numbers += [number(f"to a gap of {level}", ratios, group) for level, ratios in judged.items()]
            some = "" if len(having) == len(repeats) else f", in {len(having)} of {len(repeats)} seeds"
            findings.append(f"{name}: {_sentence(row, having, cells, tuned)}{some}")
        if "price" in repeats[0]:
            findings.append(f"{name}: {_priced(repeats[0]['price'])}")
    total = sum(won.values())
    word = "holds" if total and total == sum(count.values()) else "holds partly" if total else "does not hold here"
    seeds = max(map(len, groups.values()), default=1)
    surely = f", with the whole bootstrap interval over {seeds} seeds and beyond the noise floor," if seeds > 1 else ""
    return {
        "verdict": word,
        "rule": f"Algorithm 1 needs fewer rounds by more than {more:g}x{surely} in {won['as set']} of "
        f"{count['as set']} settings (rival, level) against rivals as set, and in {won['tuned']} of {count['tuned']} "
        "when both sides are tuned; partly as soon as it is one",
        "findings": findings,
        "numbers": numbers,
    }


def fair(result: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict against fair rivals: pooled ones, and one that was tuned meets Algorithm 1 with tuned steps."""
    part = next(iter(mnist_problem.parts(result).values()))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for name, arm in part["arms"].items():
        groups.setdefault(arm.get("group", name), []).append(arm)
    cells: dict[str, list[list[float]]] = {}
    for repeats in groups.values():
        for row in repeats[0]["rows"]:
            rival, tuned = row["method"], row["search"] is not None
            if not rival.startswith(OURS):
                found = _cells(_having(repeats, rival), rival, OURS_TUNED if tuned else OURS)
                cells.setdefault(rival, []).extend(ratios for ratios in found.values() if ratios)
    return fairness.against(cells, "settings (graph or split, level)")


def _having(repeats: Sequence[Mapping[str, Any]], rival: str) -> list[Mapping[str, Any]]:
    """The arms in which a rival was run: newer ones may be missing in some."""
    return [arm for arm in repeats if any(row["method"] == rival for row in arm["rows"])]


def _cells(repeats: Sequence[Mapping[str, Any]], rival: str, ours: str) -> dict[str, list[float]]:
    """Rounds of the rival over ours for every level, one ratio per seed; who never arrives counts with all rounds."""
    cells: dict[str, list[float]] = {level: [] for level in repeats[0]["rows"][0]["rounds"]}
    for arm in repeats:
        longest = _longest(arm)
        for level, theirs, mine in zip(cells, rounds_of(arm, rival), rounds_of(arm, ours), strict=True):
            if theirs is not None or mine is not None:
                theirs, mine = (longest if k is None else k for k in (theirs, mine))
                cells[level].append(theirs / max(1, mine))
    return cells


def _longest(arm: Mapping[str, Any]) -> int:
    """The rounds of the contest: the most that any method was run for."""
    runs = [s["round"][-1] for s in arm.get("series", {}).values()]
    return int(max([*runs, *(k for row in arm["rows"] for k in row["rounds"].values() if k)]))


def _floors(repeats: Sequence[Mapping[str, Any]], rival: str, ours: str) -> dict[str, tuple[float, bool]]:
    """For every level the largest ratio between reruns of one of the two, and whether their difference is below it.

    With one seed nothing is rerun: the floor is 1 and nothing is below it.
    """
    out = {}
    for level in repeats[0]["rows"][0]["rounds"]:
        mine, theirs = ([_row_of(arm, who)["rounds"][level] for arm in repeats] for who in (ours, rival))
        least = noise.floor({"ours": mine, "theirs": theirs})
        out[level] = least, len(repeats) > 1 and noise.judge(mine, theirs, least)[1] == "no difference"
    return out


def _ahead(ratios: Sequence[float], more: float) -> bool:
    return interval(ratios).low > more  # of a single ratio it is that ratio


def _sentence(
    row: Mapping[str, Any], repeats: Sequence[Mapping[str, Any]], cells: Mapping[str, Sequence[float]], tuned: bool
) -> str:
    who = OURS_TUNED if tuned else OURS
    floors = _floors(repeats, row["method"], who)

    def text(level: str, ratios: Sequence[float]) -> str:
        if len(repeats) > 1:
            least, below = floors[level]
            none = f" (no difference: noise floor {least:.2f})" if below else ""
            return f"{interval(ratios)}{_absent(repeats, row['method'], who, level)}{none}" if ratios else "-"
        theirs, mine = (_row_of(repeats[0], m)["rounds"][level] for m in (row["method"], who))
        if theirs is None or mine is None:
            return "-" if theirs is mine else "only they" if mine is None else "only we"
        return f"{ratios[0]:.2f}"

    ratios = " / ".join(text(level, found) for level, found in cells.items())
    out = f"{row['method']} over {who} at {' / '.join(cells)}: {ratios} times the rounds"
    if tuned:
        spent = sum(_row_of(arm, row["method"])["search"]["rounds_spent"] for arm in repeats)
        out += f" (found by a search of {spent:,} rounds)"
    return out + _end(repeats, row["method"])


def _itself(repeats: Sequence[Mapping[str, Any]], ours: str) -> str:
    """Algorithm 1's rounds to each level, seed by seed, and when it switched."""
    rows = [_row_of(arm, ours) for arm in repeats]
    levels = list(rows[0]["rounds"])
    rounds = " / ".join(", ".join(str(row["rounds"][level] or "never") for row in rows) for level in levels)
    left = ", ".join("never" if row["switched_at"] is None else str(row["switched_at"]) for row in rows)
    return f"{ours}: {rounds} rounds to {' / '.join(levels)}; left the local phase after {left}{_end(repeats, ours)}"


def _end(repeats: Sequence[Mapping[str, Any]], method: str) -> str:
    rows = [_row_of(arm, method) for arm in repeats]
    diverged = any("diverged" in row["stopped"] or row["stopped"].startswith("f(x) is") for row in rows)
    right = np.mean([row["accuracy"]["test"] for row in rows])
    return f"{'; it diverged' if diverged else ''}; test accuracy {100 * right:.1f}%"


def _absent(repeats: Sequence[Mapping[str, Any]], rival: str, ours: str, level: str) -> str:
    """Who never arrived, and in how many seeds; such a run counts with all its rounds, so that its ratio is a bound."""
    never = {who: sum(_row_of(arm, who)["rounds"][level] is None for arm in repeats) for who in (rival, ours)}
    told = [f"{'they' if who == rival else 'we'} never in {n} of {len(repeats)}" for who, n in never.items() if n]
    return f" ({', '.join(told)})" if told else ""


def _row_of(arm: Mapping[str, Any], method: str) -> Mapping[str, Any]:
    return next(row for row in arm["rows"] if row["method"] == method)


def _priced(priced: Mapping[str, Any]) -> str:
    costs = [
        f"{row['name']} {row['seconds']:.3g} s, {row['bytes'] / 1e6:.3g} MB"
        for row in priced["rows"]
        if row["seconds"] is not None and (row["name"] == OURS or row["name"].startswith("data moved"))
    ]
    return f"estimated to a gap of {priced['level']:g} over a home connection: " + "; ".join(costs)


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: the first seed of every contest, of every model."""
    out = []
    for model, part in mnist_problem.parts(result).items():
        where = mnist_problem.pointer(result, part)
        for title, arm in firsts(part["arms"]).items():
            lines = [
                {"name": name, "x": s["round"], "y": [g if g is not None and g <= TOP else None for g in s["gap"]]}
                for name, s in arm["series"].items()
            ]
            shown = {"title": f"{model}, {title}", "pointer": where, "y": mnist_problem.gap_label(model), "log": True}
            out.append(shown | {"lines": lines, "x_log": True, "note": f"first seed; nothing above {TOP:g} is drawn"})
    return out
