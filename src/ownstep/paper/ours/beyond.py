"""Beyond the paper: own steps that measure their curvature, and own steps with momentum, against the best rivals.

Each extension meets its own ablation: the same idea on the pooled data. For adaptive own steps that is the safeguarded
Barzilai-Borwein step on grad f, for own steps with ITEM's momentum it is ITEM on f.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep import plots
from ownstep.data import load
from ownstep.engines import Bernoulli, baselines, beyond, compare, describe
from ownstep.engines import run as run_method
from ownstep.methods import GD, ITEM, LBFGS, AdGD, At, BarzilaiBorwein, Method, Nesterov, OwnStep
from ownstep.paper.machinery import fairness
from ownstep.paper.machinery.neural import WORTHWHILE
from ownstep.paper.machinery.pictures import ONE, span_rows
from ownstep.plan import Devices
from ownstep.problems import LeastSquares, LinearModel, logistic_regression, optimum
from ownstep.support.progress import Bar

CLAIM = "Own steps that measure their curvature, or have momentum, need fewer rounds than the same idea on pooled data."

SETTINGS = (
    ("this experiment", "not in the paper", "extensions of Algorithm 1 and their rivals", "see docs/adaptive.md"),
    ("data", "", "w8a (10,000 rows), digits, MNIST (100 per class), synthetic; quick: digits and synthetic", ""),
    ("mu", "", "0.001; synthetic 0.0001", "the usual size"),
    ("synthetic", "", "least squares, 20 devices of 20 rows in 100 dimensions, scaled from 1/100 to 1, one solution, "
     "noise 0.1", "devices that differ in curvature and agree on the solution: the case own steps are made for"),
    ("absences", "", "every device present with probability 1/2, five seeds", "pooled curvature is lost in the noise"),
    ("network", "", "the paper's MNIST network, 40 images per class, two classes per device, 60 rounds", "fits a CPU"),
    ("worst case", "", "L = (1/3, 3), mu = 0.1, R0 = 1, K = 20, distance", "the setting of Fig. 1, other metric"),
)  # fmt: skip

LEVELS = (1e-2, 1e-4, 1e-6)
ABSENT_LEVELS = (1e-1, 1e-2)
SHOWN = (
    "Algorithm 1", "adaptive own steps", "own steps, ITEM", "Barzilai-Borwein", "ITEM 1/L-bar", "Nesterov, restart",
    "L-BFGS",
)  # fmt: skip
"""Methods that are drawn."""
"""Of the worst cases."""
RADII, SWITCHES = (0.01, 0.1, 0.3), (0, 3, 5, 8, 10, 15)
ABLATIONS = {
    "adaptive own steps": ("Barzilai-Borwein",),
    "own steps, ITEM": ("ITEM 1/L", "ITEM 1/L-bar"),
    "own steps, Nesterov": ("Nesterov", "Nesterov, restart"),
}
"""What each extension is on pooled data; the better one counts where there are two."""


def run(quick: bool = False, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """All arms as plain data; ``quick`` takes seconds and needs no download."""
    problems = _problems(quick, seed)
    full = {name: _full(p, 300 if quick else 2500 if "w8a" in name else 400, seed) for name, p in problems.items()}
    some = [name for name in problems if "w8a, 10" in name or "digits" in name or "synthetic" in name]
    absent = {name: _absent(problems[name], 100 if quick else 300, 2 if quick else 5) for name in some}
    radii, switches, horizon = ((0.1,), (2, 5), 8) if quick else (RADII, SWITCHES, 20)
    return {
        "full": full,
        "absent": absent,
        "worst_case": _worst_cases(radii, switches, horizon, progress),
        "network": None if quick else _network(seed, 60),
    }


def synthetic(seed: int = 0) -> LeastSquares:
    """Devices whose curvatures span four decades and whose data has one solution."""
    rng, devices, rows, dim = np.random.default_rng(seed), 20, 20, 100
    owner = np.repeat(np.arange(devices), rows)
    scale = np.geomspace(0.01, 1, devices)[owner]
    A = rng.standard_normal((devices * rows, dim)) * scale[:, None]
    targets = A @ rng.standard_normal(dim) + 0.1 * scale * rng.standard_normal(devices * rows)
    return LeastSquares(A, targets, partitions.given(owner), mu=1e-4)


def _problems(quick: bool, seed: int) -> dict[str, LinearModel]:
    def logistic(rows: Any, labels: Any, rule: str, devices: int | None) -> LinearModel:
        return logistic_regression(rows, labels, partitions.make(rule, rows, labels, devices, seed), mu=1e-3)

    rows, labels = load("digits").table()
    made: dict[str, LinearModel] = {"digits, by label": logistic(rows, labels, "by_label", None)}
    if not quick:
        rows, labels = load("w8a").table()
        for devices in (2, 10):
            made[f"w8a, {devices} by norm"] = logistic(rows[:10_000], labels[:10_000], "by_norm", devices)
        made["w8a, by label"] = logistic(rows[:10_000], labels[:10_000], "by_label", None)
        rows, labels = load("mnist").table()
        few = _per_class(labels, 100, seed)
        made["MNIST, by label"] = logistic(rows[few], labels[few], "by_label", None)
    return made | {"synthetic": synthetic(seed)}


def _per_class(labels: NDArray[Any], count: int, seed: int) -> NDArray[np.intp]:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(labels == c), count, replace=False) for c in np.unique(labels)])


def _full(problem: LinearModel, rounds: int, seed: int) -> dict[str, Any]:
    """Everyone in every round: rounds and seconds to each gap, for every method."""
    found = compare(
        problem, baselines() | beyond(), rounds, tolerances=LEVELS, seed=seed, progress=False
    )  # fmt: skip
    series = {n: found.histories[n].gap(found.optimum)[:400].tolist() for n in SHOWN}
    return {"gain": found.plan.devices.gain, "rows": found.rows(), "series": series}


def _absent(problem: LinearModel, rounds: int, seeds: int) -> dict[str, Any]:
    """Half the devices are away in every round: rounds to each gap, and the mean gap of the last tenth."""
    best, devices = optimum(problem).value, describe(problem).devices
    methods: dict[str, Method] = {
        "adaptive own steps": OwnStep(smoothness="adaptive"), "Barzilai-Borwein": BarzilaiBorwein(), "AdGD": AdGD(),
        "Algorithm 1": OwnStep(), "GD 1/L-bar": GD("mean"), "GD 1/L": GD("true"), "GD matched step": GD("matched"),
        "Nesterov": Nesterov(),
    }  # fmt: skip
    out: dict[str, Any] = {}
    for name, method in methods.items():
        runs = [
            run_method(method, problem, rounds, devices=devices, participation=Bernoulli(0.5, seed=s), progress=False)
            for s in range(seeds)
        ]
        reached = {f"{t:g}": [h.rounds_to(t, best) for h in runs] for t in ABSENT_LEVELS}
        last = [float(np.median(h.gap(best)[-rounds // 10 :])) for h in runs]
        out[name] = {"rounds": reached, "last": last}
    return out


def _network(seed: int, rounds: int) -> dict[str, Any]:
    """The paper's network on few images: loss after ``rounds``, with full and with mini-batches."""
    import torch

    from ownstep.problems import Network, PerDevice, TensorNorms
    from ownstep.problems.network.models import mnist_cnn

    rows, labels = load("mnist").table()
    few = _per_class(labels, 40, seed)
    images = torch.as_tensor(rows[few].reshape(-1, 1, 28, 28), dtype=torch.float32)
    targets, split = labels[few].astype(np.int64), partitions.by_label(labels[few], 5)
    steps = {f"GD {step:g}": GD(step) for step in (0.02, 0.05, 0.1, 0.2, 0.4)}
    methods: dict[str, Method] = {
        "adaptive own steps": OwnStep(smoothness="adaptive"), "Barzilai-Borwein": BarzilaiBorwein(), "AdGD": AdGD(),
    }  # fmt: skip
    out: dict[str, Any] = {}
    for kind, batch in {"full": None, "mini": PerDevice(10)}.items():
        problem = Network(mnist_cnn(seed), images, targets, split, penalty=TensorNorms(0.01), batch=batch, seed=seed)
        whole = Network(mnist_cnn(seed), images, targets, split, penalty=TensorNorms(0.01))
        devices = Devices(problem.weights, np.ones(5))
        out[kind] = {}
        for name, method in (methods | steps).items():
            history = run_method(method, problem, rounds, devices=devices, progress=False)
            x = torch.as_tensor(history.x)
            loss = whole.value(x) if np.isfinite(history.x).all() else None
            seconds = float(history.columns["seconds"].sum())
            out[kind][name] = {"loss": loss, "accuracy": whole.accuracy(x), "seconds": seconds}
        if kind == "full":
            history = run_method(LBFGS(), problem, rounds, devices=devices, progress=False, name="L-BFGS")
            x = torch.as_tensor(history.best_x)
            seconds = float(history.columns["seconds"].sum())
            out[kind][history.name] = {"loss": history.best_value, "accuracy": whole.accuracy(x), "seconds": seconds}
    return out


def _worst_cases(
    radii: tuple[float, ...], switches: tuple[int, ...], rounds: int, progress: bool | None
) -> dict[str, Any]:
    """The smallest worst case over the switch rounds, for each momentum and distance between the solutions."""
    from ownstep.pep import worst_case

    devices, done = Devices.uniform([1 / 3, 3], 0.1), 0
    pooled: dict[str, Method] = {"GD": GD(), "Nesterov": Nesterov("mean"), "ITEM": ITEM("mean")}
    kinds: dict[str, str | None] = {"own steps": None, "own steps, Nesterov": "nesterov", "own steps, ITEM": "item"}
    out: dict[str, Any] = {}
    with Bar("worst cases", len(radii) * len(kinds) * len(switches), progress) as bar:
        for radius in radii:
            row: dict[str, Any] = {
                name: {"upper": worst_case(m, devices, rounds, 1.0, radius, "distance").upper}
                for name, m in pooled.items()
            }
            for name, momentum in kinds.items():
                tried = {}
                for switch in switches:
                    method = OwnStep(At(switch), momentum=momentum)
                    tried[switch] = worst_case(method, devices, rounds, 1.0, radius, "distance", effort=0.2).upper
                    bar.update(done := done + 1)
                best = min(tried, key=lambda k: tried[k])
                row[name] = {"upper": tried[best], "switch": best}
            out[f"{radius:g}"] = row
    return out


def speed_ups(arm: Mapping[str, Any], ours: str, theirs: tuple[str, ...]) -> list[float | None]:
    """Rounds of the best of theirs over rounds of ours at each level; 0 where ours alone does not arrive, else None."""
    rows = {row["method"]: list(row["rounds"].values()) for row in arm["rows"]}
    best = [min((k for k in ks if k), default=None) for ks in zip(*(rows[name] for name in theirs), strict=True)]
    return [None if b is None else b / a if a else 0.0 for a, b in zip(rows[ours], best, strict=True)]


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: in how many (data, level) cells is an extension faster than its own ablation?"""
    won, cells, findings = 0, 0, []
    for ours, theirs in ABLATIONS.items():
        for name, arm in result["full"].items():
            ratios = speed_ups(arm, ours, theirs)
            known = [r for r in ratios if r is not None]
            won, cells = won + sum(r > WORTHWHILE for r in known), cells + len(known)
            shown = "/".join("-" if r is None else f"{r:.2f}" for r in ratios)
            findings.append(
                f"{name}: {ours} over {' or '.join(theirs)} {shown} at {'/'.join(f'{t:g}' for t in LEVELS)}"
            )
    for name, methods in result["absent"].items():
        level = f"{ABSENT_LEVELS[-1]:g}"
        counts = {m: sum(k is not None for k in row["rounds"][level]) for m, row in methods.items()}
        seeds = len(methods["GD 1/L"]["rounds"][level])
        words = ", ".join(f"{m} {n}" for m, n in counts.items())
        findings.append(f"{name}, half absent: runs of {seeds} that reach {level}: {words}")
    for radius, row in result["worst_case"].items():
        words = ", ".join(f"{m} {r['upper']:.3g}" for m, r in row.items())
        findings.append(f"worst case at R* = {radius}: {words}")
    word = "holds" if cells and won == cells else "holds partly" if won else "does not hold here"
    rule = (
        f"faster than its ablation by more than {WORTHWHILE:g}x in {won} of {cells} comparisons where that gets there"
    )
    return {"verdict": word, "rule": rule, "findings": findings}


def fair(result: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict against fair rivals, one setting per extension, problem and level."""
    cells: dict[str, list[list[float]]] = {}
    for arm in result["full"].values():
        rows = {row["method"]: row["rounds"] for row in arm["rows"]}
        most = max(k for rounds in rows.values() for k in rounds.values() if k)  # all had at least so many
        for rival, rounds in rows.items():
            pairs = [(rows[ours][level], rounds[level]) for ours in ABLATIONS for level in rounds]
            ratios = [fairness.speed_up(a, b, most) for a, b in pairs]
            cells.setdefault(rival, []).extend([ratio] for ratio in ratios if ratio is not None)
    return fairness.against(cells, "settings (extension, problem, gap)")


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: rounds to the middle level, one line per method and one tick per problem."""
    level = f"{LEVELS[1]:g}"
    names = list(result["full"])
    lines = []
    for method in SHOWN:
        rounds = [
            next((row["rounds"][level] for row in arm["rows"] if row["method"] == method), None)
            for arm in result["full"].values()
        ]
        if any(rounds):
            lines.append({"name": method, "x": list(range(len(names))), "y": rounds})
    return [
        {
            "title": f"Rounds to a relative gap of {level}", "y": "rounds", "x": "problem", "ticks": names, "log": True,
            "lines": lines, "kind": "points", "pointer": "result.full",
        }
    ]  # fmt: skip


def figure(result: dict[str, Any]) -> Figure:
    """Speed-ups of each extension over its own ablation, problem by problem, and worst cases by radius."""
    drawn, axes = plots.new_figure(3, 2, width=2.3, height=2.1)
    cells = {
        own: {name: [s for s in speed_ups(arm, own, theirs) if s] for name, arm in result["full"].items()}
        for own, theirs in ABLATIONS.items()
    }
    every = [s for found in cells.values() for values in found.values() for s in values]
    plots.headline(
        drawn,
        "Own steps with measured curvature or momentum beat the same idea on the pooled data in "
        f"{sum(s > WORTHWHILE for s in every)} of {len(every)} settings; L-BFGS needs the fewest rounds on "
        f"{_quasi_newton(result)} of {len(result['full'])} problems",
    )
    for i, (ax, (own, found)) in enumerate(zip(axes[0], cells.items(), strict=True)):
        ax.axvline(1, **ONE)
        span_rows(ax, {name.replace("w8a", "W8A"): {own: values} for name, values in found.items()})
        ax.set(xscale="log", xlim=(0.3, 5))
        if i:
            ax.set_yticklabels([])
        plots.finish(ax, f"{own} over {ABLATIONS[own][0].split()[0]}", f"speed-up (range of {len(LEVELS)} gaps)", "")
    for ax in axes[1]:
        ax.remove()
    _worst_case_panel(drawn.add_subplot(axes[1, 0].get_gridspec()[1, :]), result["worst_case"])
    return drawn


def _worst_case_panel(ax: Any, found: Mapping[str, Any]) -> None:
    radii, named = list(found), {"GD": "GD 1/L-bar", "own steps": "Algorithm 1"}
    for method in ("GD", "own steps", "Nesterov", "ITEM", "own steps, ITEM"):
        name, ours = named.get(method, method), "own" in method
        known = [(i, found[r][method]["upper"]) for i, r in enumerate(radii) if method in found[r]]
        ax.plot(
            *zip(*known, strict=True), marker="o", ms=3.5, color=plots.colour(name), ls=plots.dash(name),
            lw=2.2 if ours else 1.3, zorder=2 if ours else 3, label=name,
        )  # fmt: skip
    ax.set(yscale="log", xlim=(-0.05, len(radii) - 0.95))
    ax.set_xticks(range(len(radii)), radii)
    ax.tick_params(labelsize=plots.TEXT)
    ax.grid(visible=True, alpha=0.25, lw=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    plots.finish(ax, "Exact worst case after 20 rounds", "R* / R₀", "largest ‖x − x*‖² / R₀²")
    plots.name_lines(ax)


def _quasi_newton(result: Mapping[str, Any]) -> int:
    """On how many problems L-BFGS is first at the middle level, or level with the first."""
    won = 0
    for arm in result["full"].values():
        rounds = {row["method"]: list(row["rounds"].values())[1] for row in arm["rows"]}
        known = [k for k in rounds.values() if k]
        won += bool(known) and rounds.get("L-BFGS") == min(known)
    return won
