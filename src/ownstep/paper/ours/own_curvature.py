"""Own curvature against L-BFGS, Newton and its rivals: exchanges, bytes, and where the saving comes from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep import plots
from ownstep.paper.machinery.bootstrap import interval, number
from ownstep.paper.machinery.pictures import span, span_rows
from ownstep.paper.machinery.runner import Pieces
from ownstep.paper.ours import curvature_findings as found
from ownstep.paper.ours.curvature_findings import charts, fair, pick, ratios
from ownstep.paper.ours.curvature_runs import DEFAULT, DRAWS, Job, Row, key_of, make, parts, rows_of
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLAIM = (
    "When every device sends the leading eigenpairs of its own Hessian, more devices and more different devices need "
    "fewer exchanges than L-BFGS on the pooled data."
)

MEASURED = found.measured

SETTINGS = (
    ("this experiment", "not in the paper", "own curvature beside the best pooled method", "see docs/curvature.md"),
    ("count", "", "exchanges until the relative gap is at most 1e-6; every trial of a line search is one", ""),
    ("data", "", "w8a (mu 1e-3, 1e-4, 1e-5), SST-2 words (1e-5), MNIST softmax (3,000 images, 1e-3), digits (1e-3, "
     "1e-5), breast cancer and heart disease (1e-3; as it is and with scaled columns); quick: digits and breast cancer",
     ""),
    ("splits", "", "iid, sorted by label and cut (label), by norm, Dirichlet 0.1 with 40 rows at least, the hospitals",
     "a device sends at most half as many vectors as it has rows; above that the run is refused and not counted"),
    ("devices", "", "1, 2, 10, 50; the four hospitals", ""),
    ("rank", "", "the default (10), 20, and 0, 1, 5, 50; on one device also 100 and 200", ""),
    ("draws", "", "five of 90 % of the rows; two of SST-2 words and MNIST, which take longest", "judged draw by draw"),
    ("first order and rivals", "", "10 devices, the first draw; at most 2,000 rounds; GIANT, DANE and SHED at most 100 "
     "exchanges and 60 s of processor time, SHED up to 1,000 coordinates", "their devices work longest"),
    ("seconds", "", "the time model's over three networks: 10 ms for a gradient, one for each Hessian product", ""),
)  # fmt: skip

HALF, WORDS, NEVER, FEWER = 0.5, 0.6, 1.1, 0.8
"""At most this share of L-BFGS's exchanges on w8a at 1e-5 with rank 20, and on SST-2; never more than this share (or
one exchange more) with the default rank; and 50 devices at most this share of one device's."""
MAIN = "w8a 1e-05"
__all__ = ["CLAIM", "SETTINGS", "charts", "fair", "figure", "run", "verdict"]

SPLITS = {
    "iid": ("iid", "#A99CF2"), "dirichlet": ("Dirichlet 0.1", "#7F70D2"), "label": ("by label", "#5744B0"),
    "by_norm": ("by norm", "#332288"),
}  # fmt: skip
"""How a split is drawn: its name, and a shade of own curvature's colour."""


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    pieces: Pieces | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Every run as one row: data, split, devices, rank, method, seed, exchanges, bytes, seconds over three networks.

    Parameters
    ----------
    minutes : begin no part after so many; ``not_run`` then names what is missing. Parts that are kept count as done.
    """
    if quick:
        return {"rows": _quick(seed, seeds or 2), "quick": True, "not_run": []}
    began, rows, left = time.monotonic(), list[Row](), list[str]()
    every = parts(seeds or DRAWS)
    with Bar("own curvature", len(every), progress) as bar:
        for i, (stage, name, mu, draw) in enumerate(every):
            key = key_of((stage, name, mu, draw))
            late = minutes is not None and time.monotonic() - began > 60 * minutes
            if late and (pieces is None or key not in pieces):
                left.append(key)
                continue
            arguments = (stage, name, mu, draw, seed)
            rows += make(*arguments) if pieces is None else pieces(key, make, *arguments)
            bar.update(i + 1)
    return {"rows": rows, "quick": False, "not_run": left}


def _quick(seed: int, draws: int) -> list[Row]:
    """Two small datasets, one or ten devices."""
    jobs: list[Job] = [("one", 1, m, None) for m in ("lbfgs", "newton")]
    jobs += [("one", 1, m, DEFAULT) for m in ("own_curvature", "sum")]
    jobs += [(s, 10, "own_curvature", DEFAULT) for s in ("iid", "label")]
    pairs = [(name, seed + d) for name in ("digits", "breast_cancer") for d in range(draws)]
    return [row for name, draw in pairs for row in rows_of(name, 1e-3, draw, jobs)]


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: the rules of :data:`HALF`, :data:`WORDS`, :data:`NEVER` and :data:`FEWER`, bytes, and findings."""
    rules = _rules(result)
    findings = [f"{'yes' if good else 'NO'}: {words}" for words, good in rules]
    said, numbers = found.trends(result)
    if found.pick(result, data=MAIN, rank=20):
        more, others = found.trends({"rows": [r for r in result["rows"] if r["data"] == MAIN]}, 20)
        said, numbers = more + said, others + numbers
    findings += said + found.attribution(result) + found.bytes_over_ranks(result) + found.seconds(result)
    findings += found.slow(result) + found.missing(result)
    for name in found.names(result):
        own = found.pick(result, data=name, method="own_curvature", rank=DEFAULT)
        for split, devices in dict.fromkeys((r["split"], r["devices"]) for r in own):
            shares = ratios(result, [r for r in own if (r["split"], r["devices"]) == (split, devices)])
            if shares and np.isfinite(shares).all():
                numbers.append(number(f"{devices} {split}", shares, f"{name}: exchanges / L-BFGS, default rank"))
    good = sum(ok for _, ok in rules)
    word = "holds" if good == len(rules) else "holds partly" if good else "does not hold here"
    rule = f"{good} of {len(rules)} rules met"
    if result.get("not_run"):
        rule += f"; {len(result['not_run'])} parts of the experiment have not been run"
    if result.get("older"):
        rule += f"; {len(result['older'])} parts were run with an earlier form of the method"
    return {"verdict": word, "rule": rule, "findings": findings, "numbers": numbers}


def _rules(result: dict[str, Any]) -> list[tuple[str, bool]]:
    """(What has to hold, with the number that decides; whether it does), where there are runs to judge by."""
    rules: list[tuple[str, bool]] = []
    own = [r for r in pick(result, method="own_curvature") if r["devices"] > 1]

    def at_most(words: str, values: list[float], most: float) -> None:
        if values:
            missed = sum(v > most for v in values)
            rules.append((f"{words} (worst {max(values):.2f}, missed in {missed} of {len(values)})", not missed))

    main = [r for r in own if r["data"] == MAIN and r["rank"] == 20 and r["devices"] >= 10]
    words = [r for r in own if "sst2" in r["data"] and r["rank"] == 20 and r["devices"] >= 10]
    at_most(f"w8a at 1e-5, rank 20, 10 devices and more: at most {HALF:g} of L-BFGS", ratios(result, main), HALF)
    at_most(f"SST-2 words, rank 20, 10 devices and more: at most {WORDS:g}", ratios(result, words), WORDS)
    base = {(r["data"], r["seed"]): r["exchanges"] for r in pick(result, method="lbfgs")}
    default = [r for r in pick(result, method="own_curvature", rank=DEFAULT) if (r["data"], r["seed"]) in base]
    pairs = [(r["exchanges"] or np.inf, base[r["data"], r["seed"]] or np.inf) for r in default]
    over = sum(a > max(NEVER * b, b + 1) for a, b in pairs)
    text = f"default rank: more than {NEVER:g} of L-BFGS and one exchange in {over} of {len(pairs)} runs"
    rules.append((text, not over))
    for rank in (DEFAULT, 20):
        one = found.cell(result, MAIN, "one", 1, rank)
        fifty = [r for r in own if r["data"] == MAIN and r["devices"] == 50 and r["rank"] == rank and r["seed"] in one]
        shares = [(r["exchanges"] or np.inf) / one[r["seed"]] for r in fifty]
        at_most(f"w8a at 1e-5, 50 devices against one, rank {rank}: at most {FEWER:g}", shares, FEWER)
    sent, known = found.curve(result, MAIN, "bytes"), found.by_draw(pick(result, data=MAIN, method="lbfgs"), "bytes")
    if len(sent) > 1 and known:
        least = min(sent.values()) / float(np.mean(list(known.values())))
        rules.append((f"w8a at 1e-5, some rank needs no more bytes than L-BFGS (fewest {least:.2f})", least <= 1))
    return rules


def figure(result: dict[str, Any]) -> Figure:
    """Exchanges over L-BFGS's against the number of devices, and on every dataset with the default rank."""
    drawn, axes = plots.new_figure(2, width=3.45, height=2.8)
    left, right = axes[0]
    names = list(dict.fromkeys(r["data"] for r in result["rows"]))
    name = MAIN if MAIN in names else names[0]
    rank = 20 if pick(result, data=name, rank=20) else DEFAULT
    most = _by_devices(left, result, name, rank)
    shares = {n: ratios(result, _several(pick(result, data=n, method="own_curvature", rank=DEFAULT))) for n in names}
    every = [v for values in shares.values() for v in values]
    plots.headline(
        drawn,
        f"{most} of L-BFGS's exchanges ({_plain(name)}, rank {rank}). With the default rank it needs fewer than L-BFGS "
        f"in {sum(v < 1 for v in every)} of {len(every)} runs",
    )
    right.axvline(1, color=plots.colour("L-BFGS"), lw=1.3, label="_one")
    order = sorted((n for n in names if shares[n]), key=lambda n: float(np.median(shares[n])))
    span_rows(right, {_plain(n): {"own curvature": shares[n]} for n in order})
    right.set_xlim(0, None)
    plots.finish(right, f"Default rank ({DEFAULT}): median, range", "exchanges / L-BFGS's", "")
    plots.finish(left, f"{_plain(name)}, rank {rank}", "devices", "exchanges / L-BFGS's")
    plots.name_lines(left)
    return drawn


def _several(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["devices"] > 1]


def _by_devices(ax: Axes, result: dict[str, Any], name: str, rank: int) -> str:
    """One line per split, from one device on, with intervals over the draws; the share with most devices in words."""
    one = ratios(result, pick(result, data=name, method="own_curvature", split="one", rank=rank))
    ends: dict[int, list[float]] = {}
    for split, (label, shade) in SPLITS.items():
        rows = _several(pick(result, data=name, method="own_curvature", split=split, rank=rank))
        counts = sorted({r["devices"] for r in rows})
        cells = {1: one} | {n: ratios(result, [r for r in rows if r["devices"] == n]) for n in counts}
        known = {n: interval(cells[n]) for n in sorted(cells) if cells[n] and np.isfinite(cells[n]).all()}
        if rows and known:
            ax.fill_between(
                list(known), [f.low for f in known.values()], [f.high for f in known.values()], color=shade, alpha=0.16,
                lw=0,
            )  # fmt: skip
            ax.plot(list(known), [f.mean for f in known.values()], "o-", color=shade, ms=3.5, lw=1.6, label=label)
            ends.setdefault(max(known), []).append(known[max(known)].mean)
    last = max(ends, default=1)
    ax.plot([1, last], [1, 1], color=plots.colour("L-BFGS"), lw=1.3, label="L-BFGS")
    ax.set(xscale="log", ylim=(0, 1.1))
    return f"With {last} devices own curvature needs {span(ends[last])}" if ends else "Own curvature needs a share"


def _plain(name: str) -> str:
    """A dataset and its mu as a reader would say it."""
    data, _, mu = name.rpartition(" ")
    said = {"w8a": "W8A", "sst2_words": "SST-2 words", "mnist": "MNIST", "heart_scaled": "heart disease, scaled"}
    return f"{said.get(data, data.replace('_', ' '))}, mu {float(mu):.0e}".replace("e-0", "e-") if data else name
