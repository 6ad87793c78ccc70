"""Draw docs/readme.png and docs/demo.png from recorded results; with ``--figures`` every results/*/figure.* too.

``python tools/pictures.py`` takes a minute, as it runs ``ownstep demo``. No experiment is run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ownstep import plots
from ownstep.paper import EXPERIMENTS, load_experiment
from ownstep.paper.ours.curvature_findings import by_draw, cell, pick

ROOT = Path(__file__).resolve().parents[1]
DATA, SPLIT, RANK = "w8a 1e-05", "label", 10
SHADES = {1: "#9C8FD6", 10: "#6A5ABF", 50: "#332288"}


def readme(result: dict[str, Any]) -> Figure:
    """Exchanges of L-BFGS and of own curvature by the number of devices: means over the draws, with their range."""
    bars = {"L-BFGS, pooled data": list(by_draw(pick(result, data=DATA, method="lbfgs")).values())}
    for devices in SHADES:
        name = f"own curvature, {devices} devices" if devices > 1 else "own curvature, pooled"
        bars[name] = list(cell(result, DATA, SPLIT, devices, RANK).values())
    tints = [plots.colour("L-BFGS"), *SHADES.values()]
    first, pooled, *_, last = (float(np.mean(values)) for values in bars.values())
    figure, axes = plots.new_figure(1, width=plots.COLUMN, height=1.9)
    ax = axes[0, 0]
    plots.headline(figure, f"Own curvature needs {last:.0f} to {pooled:.0f} exchanges where L-BFGS needs {first:.0f}")
    for row, (values, tint) in enumerate(zip(bars.values(), tints, strict=True)):
        mean = float(np.mean(values))
        ax.barh(row, mean, color=tint, height=0.7)
        ends = [[mean - min(values)], [max(values) - mean]]
        ax.errorbar(mean, row, xerr=ends, color="#222222", lw=1, capsize=2.5, capthick=1, label="_range")
        ax.annotate(
            f"{mean:.0f}",
            (max(values), row),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            weight="bold",
        )
    ax.set_yticks(range(len(bars)), list(bars))
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.2 * max(max(values) for values in bars.values()))
    ax.grid(axis="y", visible=False)
    plots.finish(ax, "", f"exchanges to a gap of {plots.power(1e-6)}\n(W8A by label, mean of five)", "")
    return figure


def demo(target: Path) -> None:
    """What ``ownstep demo`` draws."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ownstep", "demo", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        copyfile(Path(folder) / "demo.png", target)


def figures() -> None:
    """Every experiment's figure from its recorded result."""
    for name in EXPERIMENTS:
        folder = ROOT / "results" / name
        drawn = load_experiment(name).figure(json.loads((folder / "result.json").read_text())["result"])
        for ending in ("svg", "png"):
            print(plots.save(drawn, folder / f"figure.{ending}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", action="store_true", help="draw every experiment's figure too")
    asked = parser.parse_args()
    recorded = json.loads((ROOT / "results/curvature/result.json").read_text())["result"]
    print(plots.save(readme(recorded), ROOT / "docs/readme.png"))
    if asked.figures:
        figures()
    demo(ROOT / "docs/demo.png")
    print(ROOT / "docs/demo.png")
