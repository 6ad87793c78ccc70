"""Remark: how an estimated smoothness constant moves with draws, region, eps and precision, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.paper import fig4_cifar10 as cifar10
from ownstep.paper import fig5_sst2 as sst2
from ownstep.paper.appendix import mnist
from ownstep.paper.appendix.mnist import choose
from ownstep.paper.machinery import neural
from ownstep.support.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = (
    "The largest of tens of thousands of random gradient-difference ratios estimates a device's smoothness constant."
)

SETTINGS = (
    ("ratio", "|grad f_i(x + eps v) - grad f_i(x)| / |eps v|", "the same, sums of tensor norms as in the paper's code",
     ""),
    ("draws", "10,000", "10,000 at the paper's region and eps on MNIST, 1,000 on CIFAR-10; 200 on the grid around them",
     "the running maximum is kept, so fewer draws are part of the same answer"),
    ("region", "N(0, 0.05^2) on MNIST, N(0, 0.5^2) on CIFAR-10", "these; a fifth and four times, or a tenth",
     ""),
    ("eps", "1e-6 on MNIST, 1e-8 on CIFAR-10", "these, and 1e-4 to 1e-10", ""),
    ("precision", "not said; the code's default is float32", "float32 and float64", "float32 cannot resolve eps"),
    ("second route", "none", "exact Hessian-vector products at the same points and directions", "the limit eps -> 0"),
    ("samples", "a fixed mini-batch", "20 images per class on MNIST, 10 on CIFAR-10", ""),
    ("outcome", "not shown", "the neural experiments repeated with constants from each estimate", ""),
)  # fmt: skip

TINTS = {"float64": "#222222", "float32": "#888888", "exact": "#117733"}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
SETTLED, AGREE = 0.05, 2.0
"""An estimate has settled when its maximum grew by at most this share over the last half of the draws, and agrees
with another when the two lie within this factor."""

NETWORKS: dict[str, dict[str, Any]] = {
    "mnist": {
        "scale": 0.05, "epsilon": 1e-6, "scales": (0.01, 0.05, 0.2), "epsilons": (1e-4, 1e-6, 1e-8), "long": 10000,
        "samples": 20,
    },
    "cifar10": {
        "scale": 0.5, "epsilon": 1e-8, "scales": (0.05, 0.5), "epsilons": (1e-4, 1e-6, 1e-8, 1e-10), "long": 1000,
        "samples": 10,
    },
}  # fmt: skip


OTHERS = ("gpu-mnist.json", "gpu-cifar10.json", "gpu-sst2.json")
"""The experiments once more, with constants from other estimates than their own."""


def run(quick: bool = False, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """Quick: a handful of draws on two images per class. Full: on a GPU, or what one gave."""
    import torch

    if not quick and not torch.cuda.is_available():
        found = neural.committed("estimates", "gpu-estimates.json")
        return {**found["estimates"], "outcomes": outcomes(), "recorded": neural.recorded(found)}
    from ownstep.data import load

    data: dict[str, Any] = {name: load(name) for name in (("mnist",) if quick else NETWORKS)}
    small: dict[str, Any] = {"draws": 4, "long": 8, "samples": 2} if quick else {"device": "cuda"}
    found = measure({name: (d.rows, d.labels) for name, d in data.items()}, seed=seed, **small)
    return found | {"outcomes": {} if quick else outcomes()}


def measure(
    data: Mapping[str, tuple[NDArray[np.uint8], NDArray[Any]]],
    *,
    draws: int = 200,
    long: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    begun: Mapping[str, Any] | None = None,
    clock: neural.Clock | None = None,
    say: neural.Say = lambda text: None,
    keep: neural.Keep = lambda so_far: None,
) -> dict[str, Any]:
    """For every network, rows of (region, eps, precision): the running maxima of the ratios of its ten classes.

    ``begun`` is what an earlier call gave before its time was over: its rows are kept, and not measured again.
    """
    import torch

    from ownstep.problems import Network, TensorNorms
    from ownstep.problems.network.models import cifar_cnn, mnist_cnn, pixels
    from ownstep.smoothness import Region, differences

    clock = neural.Clock() if clock is None else clock
    out: dict[str, Any] = {"networks": {}, "seed": seed}
    if begun is not None and begun["seed"] != seed:
        raise InvalidInput(f"the rows that are there are of seed {begun['seed']}, not {seed}")
    for name, (images, labels) in data.items():
        known = NETWORKS[name]
        count = known["samples"] if samples is None else samples
        at = choose(labels, count, seed)
        model, weight = (mnist_cnn(seed), 0.01) if name == "mnist" else (cifar_cnn(seed), 1e-5)
        problem = Network(
            model, pixels(images[at]), labels[at].astype(np.int64), partitions.by_label(labels[at]),
            penalty=TensorNorms(weight), device=device,
        )  # fmt: skip
        before: Mapping[str, Any] = {} if begun is None else begun["networks"].get(name, {})
        kept = {_key(row): row for row in before.get("rows", []) if before["samples"] == count}
        rows: list[dict[str, Any]] = []
        out["networks"][name] = {"rows": rows, "samples": count} | {k: known[k] for k in ("scale", "epsilon")}
        for scale, epsilon, precision, products in _grid(known):
            own = scale == known["scale"] and epsilon == known["epsilon"] and not products
            times = (known["long"] if long is None else long) if own else max(1, draws // (4 if products else 1))
            key = (scale, None if products else epsilon, precision, times)
            if key in kept:
                rows.append(kept[key])
                continue
            if not clock.allows(0):
                say(f"out of time before {name} {scale:g} {epsilon:g} {precision}")
                continue
            found = differences(
                problem, Region(scale), times, epsilon, count, products=products, dtype=getattr(torch, precision),
                fused=device == "cuda" and not products, seed=seed, progress=False,
            )  # fmt: skip
            rows.append(
                {"scale": scale, "epsilon": None if products else epsilon, "precision": precision, "own": own}
                | {"seconds": found.seconds}
                | found.to_dict()
            )
            say(f"{name} scale {scale:g} {rows[-1]['how']}: {np.round(found.values, 3)} in {found.seconds:.1f} s")
            keep(out)
    return out


def _key(row: Mapping[str, Any]) -> tuple[float, float | None, str, int]:
    return row["scale"], row["epsilon"], row["precision"], row["draws"]


def _grid(known: Mapping[str, Any]) -> list[tuple[float, float, str, bool]]:
    """The paper's own setting first, in both precisions; then one thing changed at a time, and the exact products."""
    scale, epsilon = known["scale"], known["epsilon"]
    grid = [(scale, epsilon, precision, False) for precision in ("float64", "float32")]
    grid += [(s, epsilon, "float64", True) for s in known["scales"]]
    grid += [(scale, e, p, False) for e in known["epsilons"] if e != epsilon for p in ("float64", "float32")]
    grid += [(s, epsilon, p, False) for s in known["scales"] if s != scale for p in ("float64", "float32")]
    return grid


def outcomes() -> dict[str, Any]:
    """What the neural experiments gave with each kind of constants, from their recorded results."""
    found: dict[str, Any] = {}
    for name, module in (("mnist", mnist), ("cifar10", cifar10), ("sst2", sst2)):
        recorded = module.run()
        found |= {f"{name}: {arm}": runs for arm, runs in recorded["arms"].items()}
    for name, part in neural.committed("estimates", optional=OTHERS).items():
        found |= {f"{name}: {arm}": runs for arm, runs in part["arms"].items()}
    return {name: [_brief(one) for one in arm["runs"]] for name, arm in found.items()}


def _brief(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": one["seed"],
        "mean_step": one["devices"]["mean_step"],
        "gain": one["devices"]["gain"],
        "speed_up": neural.speed_up(one),
        "final": {label: series["loss"][-1] for label, series in one["methods"].items()},
        "stopped": {label: series["stopped"] for label, series in one["methods"].items()},
    }


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Holds where the paper's own estimate has settled and agrees with its second route."""
    findings, words = [], {}
    for name, network in result["networks"].items():
        own = {row["precision"]: row for row in network["rows"] if row["own"]}
        exact = [r for r in network["rows"] if r["epsilon"] is None and r["scale"] == network["scale"]]
        if len(own) < 2 or not exact:
            findings.append(f"{name}: not enough was measured to judge")
            continue
        double, single, product = own["float64"], own["float32"], exact[0]
        growth = max(double["growth_over_last_half"])
        apart = max(double["L"]) / max(product["L"])
        settled, agrees = growth <= SETTLED, 1 / AGREE <= apart <= AGREE
        words[name] = (
            "holds" if settled and agrees else "does not hold here" if not (settled or agrees) else "holds partly"
        )
        findings.append(
            f"{name}, {double['draws']} draws: largest ratio {max(double['L']):.4g} in float64, "
            f"{max(single['L']):.4g} in float32, {max(product['L']):.4g} by exact Hessian products; over the last half "
            f"of the draws a class's maximum grew by up to {100 * growth:.0f} %; the classes' maxima spread by "
            f"{max(double['L']) / min(double['L']):.3g} times in float64, {max(single['L']) / min(single['L']):.3g} in "
            "float32"
        )
        findings += _moves(name, network)
    findings += [_outcome(name, rows) for name, rows in result["outcomes"].items() if rows]
    same = set(words.values())
    whole = same.pop() if len(same) == 1 else "holds partly" if same else "not judged"
    return {
        "verdict": whole,
        "rule": "the paper's own estimate (its region and eps, float64) holds where every class's maximum grew by at "
        f"most {100 * SETTLED:g} % over the last half of the draws and lies within a factor {AGREE:g} of exact Hessian "
        f"products; {', '.join(f'{n} {w}' for n, w in words.items()) or 'too little measured'}",
        "findings": findings,
    }


def _moves(name: str, network: Mapping[str, Any]) -> list[str]:
    """How the largest ratio depends on eps and on the region, in one sentence each."""
    out = []
    for precision in ("float64", "float32"):
        rows = [r for r in network["rows"] if r["precision"] == precision and r["epsilon"] is not None]
        same = {r["epsilon"]: max(r["L"]) for r in rows if r["scale"] == network["scale"]}
        text = ", ".join(f"{e:g}: {v:.3g}" for e, v in sorted(same.items(), reverse=True))
        regions = {r["scale"]: max(r["L"]) for r in rows if r["epsilon"] == network["epsilon"]}
        where = ", ".join(f"{s:g}: {v:.3g}" for s, v in sorted(regions.items()))
        out.append(f"{name} in {precision}: largest ratio by eps {text}; by scale of the region {where}")
    return out


def _outcome(name: str, rows: list[dict[str, Any]]) -> str:
    known = [r["speed_up"] for r in rows if r["speed_up"] is not None]
    ends = [r["final"].get(neural.OURS) for r in rows]
    lost = sum(e is None or "too long" in str(r["stopped"].get(neural.OURS)) for e, r in zip(ends, rows, strict=True))
    text = f"outcome, {name}, {len(rows)} runs: mean own step {np.mean([r['mean_step'] for r in rows]):.3g}, "
    text += f"gain {np.mean([r['gain'] for r in rows]):.3g}, "
    if lost:
        return text + f"Algorithm 1 diverged in {lost}"
    faster = f"speed-up over GD 1/L-bar {np.mean(known):.2f}" if known else "GD 1/L-bar diverged"
    return text + f"{faster}, final loss {np.mean(ends):.3f}"


def figure(result: dict[str, Any]) -> Figure:
    """For each network: the running maxima, and how the largest ratio moves with eps and region."""
    from ownstep import plots

    drawn, axes = plots.new_figure(3, len(result["networks"]), width=2.3, height=2.1, share=True)
    plots.headline(drawn, _says(result))
    for row, (name, network) in zip(axes, result["networks"].items(), strict=True):
        for precision in ("float64", "float32"):
            look: dict[str, Any] = {"color": TINTS[precision], "lw": 1.6, "label": precision}
            for found in (r for r in network["rows"] if r["own"] and r["precision"] == precision):
                draws, L = found["history"]["draws"], np.asarray(found["history"]["L"])
                row[0].fill_between(draws, L.min(1), L.max(1), color=look["color"], alpha=0.16, lw=0)
                row[0].plot(draws, L.max(1), **look)
            rows = [r for r in network["rows"] if r["precision"] == precision and r["epsilon"] is not None]
            for ax, of, fixed in ((row[1], "epsilon", "scale"), (row[2], "scale", "epsilon")):
                line = sorted((r[of], max(r["L"])) for r in rows if r[fixed] == network[fixed])
                ax.plot(*zip(*line, strict=True), "o-", ms=3.5, **look)
        exact = {r["scale"]: max(r["L"]) for r in network["rows"] if r["epsilon"] is None}
        look = {"color": TINTS["exact"], "lw": 1.3, "ls": "--", "label": "exact products"}
        if network["scale"] in exact:
            for ax in row[:2]:
                ends = ax.get_lines()[0].get_xdata()
                ax.plot([min(ends), max(ends)], [exact[network["scale"]]] * 2, **look)
        if exact:
            row[2].plot(*zip(*sorted(exact.items()), strict=True), marker="s", ms=3.5, **look)
        for ax in row:
            ax.set(xscale="log", yscale="log")
        plots.finish(row[0], f"{TITLES.get(name, name)}: by draws", "draws (band: all classes)", "largest ratio")
        plots.finish(row[1], "by eps", "eps", "")
        plots.finish(row[2], "by region", "scale of the region", "")
        plots.name_lines(row[2])
    return drawn


def _says(result: Mapping[str, Any]) -> str:
    """The paper's own estimate beside exact products, network by network."""
    told = []
    for name, network in result["networks"].items():
        own = [max(r["L"]) for r in network["rows"] if r["own"] and r["precision"] == "float64"]
        exact = [max(r["L"]) for r in network["rows"] if r["epsilon"] is None and r["scale"] == network["scale"]]
        if own and exact:
            told.append(f"{own[0]:.0f} on {TITLES.get(name, name)}, where exact Hessian products give {exact[0]:.2g}")
    return f"The sampled constants are not curvatures: {'; '.join(told) or 'not enough was measured'}"


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: what :func:`figure` shows, the running maxima and the ratios by eps and by region."""
    out = []
    for name, network in result["networks"].items():
        rows, where = network["rows"], {"pointer": f"result.networks.{name}.rows", "x_log": True, "y": "largest ratio"}
        exact = sorted((r["scale"], max(r["L"])) for r in rows if r["epsilon"] is None)
        running = [
            {"name": r["precision"], "x": r["history"]["draws"], "y": [max(L) for L in r["history"]["L"]]}
            for r in rows
            if r["own"] and r["epsilon"] is not None
        ]
        out.append({"title": f"{name}: running maximum", "x": "draws", "log": True, "lines": running, **where})
        for key, fixed, label in (("epsilon", "scale", "eps"), ("scale", "epsilon", "scale of the region")):
            lines = []
            for precision in ("float64", "float32"):
                mine = [r for r in rows if r["precision"] == precision and r["epsilon"] is not None]
                line = sorted((r[key], max(r["L"])) for r in mine if r[fixed] == network[fixed])
                lines.append({"name": precision, "x": [k for k, _ in line], "y": [v for _, v in line]})
            if key == "scale" and exact:
                lines.append({"name": "exact Hessian products", "x": [k for k, _ in exact], "y": [v for _, v in exact]})
            lines = [line for line in lines if len(line["x"]) > 1]
            if lines:
                shown = {"title": f"{name}: by {label}", "x": label, "log": True, "kind": "points", "lines": lines}
                out.append(shown | where)
    return out
