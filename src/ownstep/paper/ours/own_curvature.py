"""Own curvature against L-BFGS, Newton and its rivals: exchanges, bytes, and where the saving comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep import plots
from ownstep.data import load
from ownstep.engines import WIRES, describe
from ownstep.engines import run as run_method
from ownstep.methods import (
    DANE,
    GD,
    GIANT,
    ITEM,
    LBFGS,
    SHED,
    BarzilaiBorwein,
    Method,
    Nesterov,
    Newton,
    OwnCurvature,
    OwnStep,
)
from ownstep.paper.machinery.bootstrap import number
from ownstep.problems import LinearModel, logistic_regression, optimum
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = (
    "When every device sends the leading eigenpairs of its own Hessian, more devices and more different devices need "
    "fewer exchanges than L-BFGS on the pooled data."
)

SETTINGS = (
    ("this experiment", "not in the paper", "own curvature beside the best pooled method", "see docs/curvature.md"),
    ("count", "", "exchanges until the relative gap is at most 1e-6; every trial of a line search is one", ""),
    ("data", "", "w8a (mu 1e-3, 1e-4, 1e-5), SST-2 words (1e-5), MNIST softmax (3,000 images, 1e-3), digits (1e-3, "
     "1e-5), heart disease by hospital (1e-3); quick: digits and breast cancer", ""),
    ("splits", "", "iid, sorted by label and cut (label), by norm, Dirichlet 0.1 with 40 rows at least, the hospitals",
     "a device sends at most half as many vectors as it has rows"),
    ("devices", "", "1, 2, 10, 50 on w8a; 1 and 10 elsewhere", ""),
    ("rank", "", "the default (10) and 20; 0 to 50 on w8a at mu = 1e-5", ""),
    ("seeds", "", "five draws of 90 % of the rows; two for SST-2 and MNIST", "minutes, not hours"),
    ("first order and rivals", "", "w8a at mu = 1e-3 and 1e-5, 10 devices, one seed; at most 2,000 rounds; GIANT, DANE "
     "and SHED at most 100 exchanges", "their devices work longest"),
)  # fmt: skip

GAP, MOST, SLOW, RIVALS = 1e-6, 400, 2000, 100
DEFAULT = 10
HALF, WORDS, NEVER, FEWER = 0.5, 0.6, 1.1, 0.8
"""At most this share of L-BFGS's exchanges on w8a at 1e-5 with rank 20, and on SST-2; never more than this share (or
one exchange more) with the default rank; and 50 devices at most this share of one device's."""
MAIN = "w8a 1e-05"

Row = dict[str, Any]


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    pieces: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """Every run as one row: data, split, devices, rank, method, seed, exchanges, bytes."""
    plan = _plan(quick, 2 if quick and seeds is None else seeds)
    rows: list[Row] = []
    with Bar("own curvature", len(plan), progress) as bar:
        for i, (name, mu, draw, jobs) in enumerate(plan):
            key = f"{name}, {mu:g}, draw {draw}, {len(jobs)} runs"
            make = _make if pieces is None else lambda *a, key=key: pieces(key, _make, *a)
            rows += make(name, mu, seed + draw, jobs)
            bar.update(i + 1)
    return {"rows": rows, "quick": quick}


def _plan(quick: bool, seeds: int | None) -> list[tuple[str, float, int, list[tuple[str, int, str, int | None]]]]:
    """(data, mu, draw, [(split, devices, method, rank)])."""
    splits = ("iid", "label", "by_norm", "dirichlet")
    baseline: list[tuple[str, int, str, int | None]] = [("one", 1, "lbfgs", None), ("one", 1, "newton", None)]

    def own(devices: Iterable[int], ranks: Iterable[int], kinds: Sequence[str] = splits) -> list[Any]:
        ones = [("one", 1, m, k) for k in ranks for m in ("own_curvature", "sum")]
        return ones + [(s, n, "own_curvature", k) for n in devices for s in kinds for k in ranks]

    out: list[Any] = []
    if quick:
        for name in ("digits", "breast_cancer"):
            out += [(name, 1e-3, d, baseline + own((10,), (DEFAULT,), ("iid", "label"))) for d in range(seeds or 2)]
        return out
    attribution = [("one", 1, m, k) for m in ("own_curvature", "sum") for k in (100, 200)]
    curve = [("by_norm", 10, "own_curvature", k) for k in (0, 1, 5, 50)]
    slow = [("by_norm", 10, m, None) for m in ("own_step", "gd:tuned", "nesterov", "item", "bb", "adaptive")]
    slow += [(s, 10, m, None) for s in ("iid", "by_norm") for m in ("giant", "dane", "shed")]
    for mu in (1e-3, 1e-4, 1e-5):
        for d in range(seeds or 5):
            jobs = baseline + own((2, 10, 50), (DEFAULT, 20))
            jobs += attribution + curve if mu == 1e-5 else []
            out.append(("w8a", mu, d, jobs + (slow if d == 0 and mu != 1e-4 else [])))
    for name, mu in (("digits", 1e-3), ("digits", 1e-5), ("breast_cancer", 1e-3)):
        out += [(name, mu, d, baseline + own((10,), (DEFAULT,))) for d in range(seeds or 5)]
    hospitals = [("hospitals", 4, "own_curvature", k) for k in (DEFAULT,)]
    out += [("heart_disease", 1e-3, d, baseline + own((), (DEFAULT,)) + hospitals) for d in range(seeds or 5)]
    out += [("mnist", 1e-3, d, baseline[:1] + own((10,), (DEFAULT,), ("iid", "label"))) for d in range(seeds or 2)]
    out += [("sst2_words", 1e-5, d, baseline[:1] + own((10,), (DEFAULT, 20), splits[:3])) for d in range(seeds or 2)]
    return out


def _own(rank: int | None) -> Method:
    return OwnCurvature(None if rank == DEFAULT else rank)  # the default one is reduced on devices of few rows


def _methods() -> dict[str, Callable[[int | None], Method]]:
    return {
        "lbfgs": lambda k: LBFGS(), "newton": lambda k: Newton(), "own_curvature": _own,
        "sum": lambda k: OwnCurvature(k, sketch="sum"), "own_step": lambda k: OwnStep(),
        "gd:tuned": lambda k: GD("tuned"), "nesterov": lambda k: Nesterov(), "item": lambda k: ITEM(),
        "bb": lambda k: BarzilaiBorwein(), "adaptive": lambda k: OwnStep(smoothness="adaptive"),
        "giant": lambda k: GIANT(), "dane": lambda k: DANE(), "shed": lambda k: SHED(20),
    }  # fmt: skip


def _make(name: str, mu: float, seed: int, jobs: Sequence[tuple[str, int, str, int | None]]) -> list[Row]:
    """All runs on one draw of the rows."""
    data = load(name)
    rows, labels = data.table()
    rng = np.random.default_rng([seed, 90])
    if name == "mnist":
        kept = np.sort(rng.choice(len(labels), 3000, replace=False))
    else:
        kept = np.sort(rng.permutation(len(labels))[: int(0.9 * len(labels))])
    rows, labels = rows[kept], labels[kept]
    sites = None if data.sites is None else data.sites[kept]
    pooled = logistic_regression(rows, labels, mu=mu)
    best, start = optimum(pooled).value, pooled.value(pooled.x0())
    goal, made = best + GAP * (start - best), dict[tuple[str, int], LinearModel]()
    out = []
    for split, devices, method, rank in jobs:
        if (split, devices) not in made:
            who = None if split == "one" else _split(split, rows, labels, devices, seed, sites)
            made[split, devices] = pooled if who is None else logistic_regression(rows, labels, who, mu=mu)
        problem, chosen = made[split, devices], _methods()[method](rank)
        most = MOST if getattr(chosen, "searches", False) else SLOW
        most = RIVALS if isinstance(chosen, GIANT | SHED) else most  # DANE is a GIANT; its devices work for seconds
        needed = "adaptive" if getattr(chosen, "constant_free", False) else "exact"
        history = run_method(
            chosen,
            problem,
            most,
            target=goal,
            progress=False,
            search_target=goal,
            seed=seed,
            devices=describe(problem, needed).devices,
        )
        reached = bool(history.value[-1] <= goal)
        out.append({
            "data": f"{name} {mu:g}", "split": split, "devices": devices, "method": method, "rank": rank, "seed": seed,
            "exchanges": history.rounds if reached else None,
            "bytes": history.bytes_per_device(history.rounds) if reached else None,
            "seconds": {wire: float(model.seconds(history)[-1]) for wire, model in WIRES.items()},
        })  # fmt: skip
    return out


def _split(split: str, rows: Any, labels: NDArray[Any], devices: int, seed: int, sites: Any) -> partitions.Partition:
    if split == "hospitals":
        return partitions.given(np.unique(sites, return_inverse=True)[1])
    if split == "label":
        owner = np.empty(len(labels), int)
        for i, part in enumerate(np.array_split(np.argsort(labels, kind="stable"), devices)):
            owner[part] = i
        return partitions.given(owner)
    if split == "dirichlet":
        return partitions.dirichlet(labels, devices, 0.1, seed, min_samples=40)
    return partitions.make(split, rows, labels, devices, seed)


def pick(result: dict[str, Any], **where: Any) -> list[Row]:
    """The rows with these entries."""
    return [r for r in result["rows"] if all(r[k] == v for k, v in where.items())]


def ratios(result: dict[str, Any], rows: Sequence[Row]) -> list[float]:
    """Exchanges over L-BFGS's on the same draw; infinite where the gap was not reached."""
    base = {(r["data"], r["seed"]): r["exchanges"] for r in pick(result, method="lbfgs")}
    return [(r["exchanges"] or np.inf) / base[r["data"], r["seed"]] for r in rows if base[r["data"], r["seed"]]]


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: the four rules of :data:`HALF`, :data:`WORDS`, :data:`NEVER` and :data:`FEWER`, and what is what."""
    rules: list[tuple[str, bool]] = []
    numbers, findings = [], []
    own = [r for r in pick(result, method="own_curvature") if r["devices"] > 1]
    main = [r for r in own if r["data"] == MAIN and r["rank"] == 20 and r["devices"] >= 10]
    for words, rows, most in (
        (f"w8a at 1e-5, rank 20, 10 devices and more: at most {HALF:g} of L-BFGS", main, HALF),
        (
            f"SST-2 words, rank 20: at most {WORDS:g}",
            [r for r in own if "sst2" in r["data"] and r["rank"] == 20],
            WORDS,
        ),
    ):
        if rows:
            worst = max(ratios(result, rows))
            rules.append((f"{words} (worst {worst:.2f})", worst <= most))
    default = pick(result, method="own_curvature", rank=DEFAULT)
    base = {(r["data"], r["seed"]): r["exchanges"] for r in pick(result, method="lbfgs")}
    pairs = [(r["exchanges"] or np.inf, base[r["data"], r["seed"]] or np.inf) for r in default]
    over = sum(a > max(NEVER * b, b + 1) for a, b in pairs)
    rules.append(
        (f"default rank: more than {NEVER:g} of L-BFGS and one exchange in {over} of {len(pairs)} runs", not over)
    )
    for rank in (DEFAULT, 20):
        one = {
            r["seed"]: r["exchanges"] for r in pick(result, data=MAIN, split="one", method="own_curvature", rank=rank)
        }
        fifty = [r for r in own if r["data"] == MAIN and r["devices"] == 50 and r["rank"] == rank]
        if one and fifty:
            found = [(r["exchanges"] or np.inf) / one[r["seed"]] for r in fifty]
            rules.append(
                (
                    f"50 devices against one, rank {rank}: at most {FEWER:g} (worst {max(found):.2f})",
                    max(found) <= FEWER,
                )
            )
    findings += [f"{'yes' if good else 'NO'}: {words}" for words, good in rules]
    findings += _trends(result) + _attribution(result) + _slow(result)
    for name in dict.fromkeys(r["data"] for r in default):
        for split in dict.fromkeys((r["split"], r["devices"]) for r in pick(result, data=name, method="own_curvature")):
            rows = pick(result, data=name, method="own_curvature", rank=DEFAULT, split=split[0], devices=split[1])
            found = ratios(result, rows)
            if found and np.isfinite(found).all():
                numbers.append(number(f"{split[1]} {split[0]}", found, f"{name}: exchanges / L-BFGS, default rank"))
    good = sum(ok for _, ok in rules)
    word = "holds" if good == len(rules) else "holds partly" if good else "does not hold here"
    return {"verdict": word, "rule": f"{good} of {len(rules)} rules met", "findings": findings, "numbers": numbers}


def _trends(result: dict[str, Any]) -> list[str]:
    """Seed by seed on w8a at 1e-5: more devices, and more different devices, need fewer exchanges."""
    out = []
    for split in ("iid", "label", "by_norm", "dirichlet"):
        table = {
            n: {r["seed"]: r["exchanges"] for r in pick(result, data=MAIN, split=split, devices=n, rank=20)}
            for n in (2, 10, 50)
        }
        seeds = [
            s for s in table[10] if s in table[2] and s in table[50] and table[2][s] and table[10][s] and table[50][s]
        ]
        if seeds:
            fewer = sum(table[50][s] < table[10][s] < table[2][s] for s in seeds)
            means = ", ".join(f"{n}: {np.mean([table[n][s] for s in seeds]):.1f}" for n in (2, 10, 50))
            out.append(
                f"w8a at 1e-5, rank 20, {split}: exchanges by devices {means}; falling in {fewer} of {len(seeds)} draws"
            )
    for n in (10, 50):
        one, other = (
            {r["seed"]: r["exchanges"] for r in pick(result, data=MAIN, split=s, devices=n, rank=20)}
            for s in ("iid", "label")
        )
        if one and other:
            fewer = sum((other[s] or np.inf) < (one[s] or np.inf) for s in one)
            out.append(
                f"w8a at 1e-5, {n} devices: by label needs fewer exchanges than iid in {fewer} of {len(one)} draws"
            )
    return out


def _attribution(result: dict[str, Any]) -> list[str]:
    """From L-BFGS to own sketches, one thing at a time."""

    def mean(**where: Any) -> str:
        found = [r["exchanges"] for r in pick(result, data=MAIN, **where) if r["exchanges"]]
        return f"{np.mean(found):.1f}" if found else "-"

    if not pick(result, data=MAIN):
        return []
    steps = {
        "L-BFGS": mean(method="lbfgs"), "rank 20 on one device": mean(split="one", method="own_curvature", rank=20),
        "rank 200 on one device": mean(split="one", method="own_curvature", rank=200),
        "shared sums, 20": mean(method="sum", rank=20), "shared sums, 200": mean(method="sum", rank=200),
        "own, 10 devices by label, rank 20": mean(split="label", devices=10, rank=20), "Newton": mean(method="newton"),
    }  # fmt: skip
    curve = [f"{k}: {mean(split='by_norm', devices=10, rank=k)}" for k in (0, 1, 5, 10, 20, 50)]
    return [
        "w8a at 1e-5, attribution, mean exchanges: " + ", ".join(f"{k} {v}" for k, v in steps.items()),
        "w8a at 1e-5, 10 by norm, mean exchanges by rank: " + ", ".join(curve),
    ]


def _slow(result: dict[str, Any]) -> list[str]:
    """First-order methods and rivals, with the seconds three networks would take."""
    out = []
    for name in dict.fromkeys(r["data"] for r in result["rows"]):
        for split in ("by_norm", "iid"):
            rows = [
                r for r in pick(result, data=name, split=split, devices=10) if r["seed"] == result["rows"][0]["seed"]
            ]
            if len({r["method"] for r in rows}) < 3:
                continue
            said = []
            for r in [*pick(result, data=name, method="lbfgs", seed=rows[0]["seed"]), *rows]:
                label = r["method"] + (f" {r['rank']}" if r["rank"] is not None else "")
                if r["exchanges"] is None:
                    said.append(f"{label} never")
                    continue
                seconds = "/".join(f"{s:.3g}" for s in r["seconds"].values())
                said.append(f"{label} {r['exchanges']} ({seconds} s)")
            out.append(f"{name}, 10 {split}, exchanges (and seconds over {'/'.join(WIRES)}): " + ", ".join(said))
    return out


def figure(result: dict[str, Any]) -> Figure:
    """Exchanges over L-BFGS's against the number of devices, and for every dataset with ten."""
    drawn, axes = plots.new_figure(2, width=4.8)
    left, right = axes[0]
    names = list(dict.fromkeys(r["data"] for r in result["rows"]))
    name = MAIN if MAIN in names else names[0]
    rank = 20 if pick(result, data=name, rank=20) else DEFAULT
    for i, split in enumerate(dict.fromkeys(r["split"] for r in pick(result, data=name, method="own_curvature"))):
        rows = pick(result, data=name, method="own_curvature", split=split, rank=rank)
        counts = sorted({r["devices"] for r in rows})
        means = [np.mean(ratios(result, [r for r in rows if r["devices"] == n])) for n in counts]
        left.plot(
            counts,
            means,
            "o-",
            label="one device" if split == "one" else split,
            color=plots.shades(["a", "b", "c", "d", "e"])["abcde"[i % 5]],
        )
    left.axhline(1, color=plots.colour("L-BFGS"), lw=1)
    left.set(xscale="log", ylim=(0, 1.1))
    plots.finish(
        left, f"{name}, rank {rank}: more devices, fewer exchanges", "devices", "exchanges / L-BFGS's", "lower left"
    )
    found = [
        ratios(result, [r for r in pick(result, data=n, method="own_curvature", rank=DEFAULT) if r["devices"] > 1])
        for n in names
    ]
    right.boxplot([f or [np.nan] for f in found], orientation="horizontal")
    right.set_yticks(range(1, len(names) + 1), names)
    right.axvline(1, color=plots.colour("L-BFGS"), lw=1)
    plots.finish(right, "default rank, every split and draw", "exchanges / L-BFGS's", "", None)
    return drawn
