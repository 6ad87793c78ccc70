"""The paper's experiments, one module each, on top of the public API only.

Every module has ``CLAIM`` (one sentence), ``SETTINGS`` (what, the paper's value, ours, why), ``run(quick, seed,
progress) -> plain data``, ``figure(result)`` and ``verdict(result)``: running, drawing and judging are separate.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ownstep
from ownstep.errors import OwnstepError, unknown_name
from ownstep.files import write_atomically

EXPERIMENTS = {
    "pep-curves": "pep_curves",
    "pep-heterogeneity": "pep_heterogeneity",
    "pep-devices": "pep_devices",
    "w8a": "w8a",
    "cifar10": "cifar10",
    "sst2": "sst2",
    "mnist": "mnist",
    "dirichlet": "dirichlet",
    "devices": "devices",
    "gossip": "gossip",
    "fedopt": "fedopt",
    "participation": "participation",
    "estimates": "estimates",
}
"""Name on the command line, and module in this package; in the paper's order."""


def load_experiment(name: str) -> Any:
    """The module of a named experiment."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return import_module(f"ownstep.paper.{EXPERIMENTS[name]}")


def conduct(
    name: str, folder: Path, quick: bool = False, seed: int = 0, progress: bool | None = None
) -> dict[str, Any]:
    """Run an experiment and write its data and figure below ``folder``; returns claim, verdict and file names."""
    experiment = load_experiment(name)
    result = experiment.run(quick=quick, seed=seed, progress=progress)
    verdict = experiment.verdict(result)
    report = {
        "name": name,
        "claim": experiment.CLAIM,
        "quick": quick,
        "settings": [dict(zip(("what", "paper", "ours", "why"), row, strict=True)) for row in experiment.SETTINGS],
        "provenance": provenance(seed),
        "verdict": verdict,
        "result": result,
    }
    base = folder / (name + ("-quick" if quick else ""))
    target = base / "result.json"
    try:
        base.mkdir(parents=True, exist_ok=True)
        with write_atomically(target) as file:
            file.write(json.dumps(report, indent=1).encode())
    except OSError as error:
        raise OwnstepError(f"cannot write results to {str(base)!r}: {error}") from error
    from ownstep import plots

    drawn = experiment.figure(result)
    files = [target, *(plots.save(drawn, base / f"figure.{ending}") for ending in ("svg", "png"))]
    return {k: report[k] for k in ("name", "claim", "quick", "verdict")} | {"files": [str(f) for f in files]}


def provenance(seed: int) -> dict[str, Any]:
    """What is needed to trust a number later: seed, commit, machine and versions."""
    packages = ("numpy", "scipy", "scikit-learn", "clarabel", "matplotlib", "torch", "transformers")
    return {
        "seed": seed,
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
        "versions": {"ownstep": ownstep.__version__} | {p: _version(p) for p in packages},
    }


def _commit() -> str | None:
    """The commit of the code, marked when the code itself has changed since; results beside it do not count."""
    here = str(Path(__file__).resolve().parents[1])
    commit, changed = _git(here, "rev-parse", "--short=12", "HEAD"), _git(here, "status", "--porcelain", "--", ".")
    return commit and commit + ("-dirty" if changed else "")


def _git(folder: str, *command: str) -> str | None:
    try:
        found = subprocess.run(
            ["git", "-C", folder, *command], capture_output=True, text=True, timeout=10, check=True
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
