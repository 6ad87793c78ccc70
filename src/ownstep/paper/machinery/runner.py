"""Running experiments so that nothing is lost: parts are kept as they are done, results are whole files, all resume."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ownstep
from ownstep.paper import EXPERIMENTS, load_experiment
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError, require_extra
from ownstep.support.files import write_atomically
from ownstep.support.lazy import EXTRAS

PARTS = ".parts"
"""Folder of an experiment's finished parts; it goes when the result is whole."""


Kept = Callable[..., Any]
"""``kept(name, make, *arguments)``: what ``make(*arguments)`` gave, made once."""


class Pieces:
    """Parts of a run by name: made once, and found again when an interrupted run starts anew.

    ``pieces("by_norm", make, *arguments)`` returns what ``make(*arguments)`` gave, as plain data.
    Without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.found = 0

    def within(self, whole: str) -> Kept:
        """For the pieces that one piece is made of: their names begin with its name."""
        return lambda name, make, *arguments: self(f"{whole}: {name}", make, *arguments)

    def __call__(self, name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        if self.folder is None:
            return json.loads(json.dumps(make(*arguments)))
        path = self._path(self.folder, name)
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError):
            made = json.loads(json.dumps(make(*arguments)))  # the same whether it is fresh or was kept
            self._keep(path, {"name": name, "data": made})
            return made
        self.found += 1
        return kept["data"]

    def __contains__(self, name: str) -> bool:
        """Has an earlier run left this part?"""
        return self.folder is not None and self._path(self.folder, name).exists()

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"

    def _keep(self, path: Path, data: dict[str, Any]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as file:
                file.write(json.dumps(data).encode())
        except OSError as error:
            raise OwnstepError(f"cannot keep what is done in {str(path.parent)!r}: {error}") from error


def conduct(
    name: str,
    folder: Path,
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    device: str | None = None,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Run an experiment and write its data and figure below ``folder``.

    Parameters
    ----------
    name : str
        One of :data:`ownstep.paper.EXPERIMENTS`.
    folder : Path
        The result goes to ``folder/NAME/``, of a quick run to ``folder/NAME-quick/``.
    quick : bool
        The small version.
    seed, seeds : int
        The first seed, and how many; None leaves their number to the experiment.
    device : str, optional
        Where the networks are trained, such as ``cuda``.
    minutes : float, optional
        Begin no part after so many. The result then names in ``not_run`` what is missing, and starting again goes on.

    Returns
    -------
    dict
        Claim, verdict, names of the files written, and how many parts an earlier, interrupted run had left.
    """
    experiment = load_experiment(name)
    base = _base(name, folder, quick)
    kept = pieces_of(name, folder, quick, seed, seeds, device)
    try:
        result = experiment.run(
            quick=quick, seed=seed, progress=progress, **_options(name, seeds, device, kept, folder, minutes)
        )
    except ModuleNotFoundError as error:
        if error.name in EXTRAS:
            raise require_extra(error.name, EXTRAS[error.name]) from error
        raise
    report = {
        "name": name,
        "claim": experiment.CLAIM,
        "quick": quick,
        "settings": _settings(experiment),
        "provenance": provenance(seed) | {"seeds": seeds, "device": device},
        "verdict": experiment.verdict(result),
        "result": result,
    }
    files = _save(report, experiment, base)
    if not (isinstance(result, dict) and result.get("not_run")):
        shutil.rmtree(base / PARTS, ignore_errors=True)
    return _summary(report, files) | {"parts_found": kept.found}


def pieces_of(
    name: str, folder: Path, quick: bool = False, seed: int = 0, seeds: int | None = None, device: str | None = None
) -> Pieces:
    """The finished parts of an experiment that was asked for in this way, of this code."""
    asked = {"quick": quick, "seed": seed, "seeds": seeds, "device": device}
    return Pieces(_base(name, folder, quick) / PARTS / _fingerprint(asked))


def judge_again(name: str, folder: Path, quick: bool = False) -> dict[str, Any]:
    """Verdict, settings and figure anew from the data on disk; nothing is run, and its provenance stays.

    An experiment may offer ``completed(result, quick)``, which adds what has been recorded elsewhere since.
    """
    experiment = load_experiment(name)
    base = _base(name, folder, quick)
    try:
        report = json.loads((base / "result.json").read_text())
        report |= {"claim": experiment.CLAIM, "settings": _settings(experiment)}
        if hasattr(experiment, "completed"):
            report["result"] = experiment.completed(report["result"], quick)
        report["verdict"] = experiment.verdict(report["result"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise OwnstepError(f"no result of {name} to judge in {str(base)!r}: {error!r}") from error
    return _summary(report, _save(report, experiment, base)) | {"parts_found": 0}


def on_disk(name: str, folder: Path, quick: bool = False, seed: int = 0) -> dict[str, Any] | None:
    """The whole result of an experiment with this seed, if there is one."""
    try:
        report = json.loads((_base(name, folder, quick) / "result.json").read_text())
        fits = report["quick"] == quick and report["provenance"]["seed"] == seed and report["verdict"]["verdict"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return report if fits else None


def conduct_all(
    folder: Path,
    quick: bool = False,
    seed: int = 0,
    again: bool = False,
    starting: Callable[[str], None] = lambda name: None,
    **options: Any,
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every experiment in the paper's order: its name, *there*, *done* or *failed*, and its summary.

    Results that are there are left alone unless ``again``; one that fails does not stop the others. ``starting`` is
    told the name of each that is run. Options that an experiment does not take are left out.
    """
    for name in EXPERIMENTS:
        found = None if again else on_disk(name, folder, quick, seed)
        if found is not None:
            yield name, "there", found
            continue
        fitting = {k: v for k, v in options.items() if k == "progress" or k in _takes(name)}
        starting(name)
        try:
            yield name, "done", conduct(name, folder, quick, seed, **fitting)
        except OwnstepError as error:
            yield name, "failed", {"error": str(error)}
        except Exception as error:  # hours of others' work should not end with it; it is named and counted
            yield name, "failed", {"error": repr(error)}


def provenance(seed: int) -> dict[str, Any]:
    """What is needed to trust a number later: seed, commit, machine and versions."""
    packages = ("numpy", "scipy", "scikit-learn", "clarabel", "matplotlib", "torch", "transformers")
    return {
        "seed": seed,
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{_accelerator()}",
        "python": sys.version.split()[0],
        "versions": {"ownstep": ownstep.__version__} | {p: _version(p) for p in packages},
    }


def _accelerator() -> str:
    """The GPU, where torch was used and has one; torch is not loaded for the sake of its name."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ""
    return f", {torch.cuda.get_device_name()}"


def _base(name: str, folder: Path, quick: bool) -> Path:
    return folder / (name + ("-quick" if quick else ""))


def _takes(name: str) -> set[str]:
    return set(inspect.signature(load_experiment(name).run).parameters)


def _options(
    name: str, seeds: int | None, device: str | None, pieces: Pieces, folder: Path, minutes: float | None = None
) -> dict[str, Any]:
    """What the experiment's run takes of what was asked; asking for what it does not take is an error."""
    takes = _takes(name)
    if seeds is not None:
        whole_number("--seeds", seeds, 1)
    if minutes is not None and not minutes > 0:
        raise InvalidInput(f"--minutes must be above 0, got {minutes:g}")
    for option, value in {"seeds": seeds, "device": device, "minutes": minutes}.items():
        if value is not None and option not in takes:
            raise InvalidInput(f"{name} does not take --{option} {value}: it has nothing to use it for")
    if device is not None:
        _check_device(device)
    offered: dict[str, Any] = {"seeds": seeds, "device": device, "pieces": pieces, "results": folder}
    offered["minutes"] = minutes
    return {k: v for k, v in offered.items() if k in takes and v is not None}


def _check_device(device: str) -> None:
    """Can torch use it? Better known now than after the data was read."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise InvalidInput(f"--device {device} cannot be used on this machine: {why}") from error


def _settings(experiment: Any) -> list[dict[str, str]]:
    return [dict(zip(("what", "paper", "ours", "why"), row, strict=True)) for row in experiment.SETTINGS]


def _save(report: dict[str, Any], experiment: Any, base: Path) -> list[Path]:
    from ownstep import plots

    target = base / "result.json"
    try:
        base.mkdir(parents=True, exist_ok=True)
        with write_atomically(target) as file:
            file.write(json.dumps(report, indent=1).encode())
    except OSError as error:
        raise OwnstepError(f"cannot write results to {str(base)!r}: {error}") from error
    drawn = experiment.figure(report["result"])
    return [target, *(plots.save(drawn, base / f"figure.{ending}") for ending in ("svg", "png"))]


def _summary(report: dict[str, Any], files: list[Path]) -> dict[str, Any]:
    return {k: report[k] for k in ("name", "claim", "quick", "verdict")} | {"files": [str(f) for f in files]}


def _fingerprint(asked: dict[str, Any]) -> str:
    """Parts are only taken up again by the same code asked for the same thing."""
    return hashlib.sha256(json.dumps([_code(), asked], sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    here, digest = Path(__file__).resolve().parents[2], hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _commit() -> str | None:
    """The commit of the code, marked when the code itself has changed since; results beside it do not count."""
    here = str(Path(__file__).resolve().parents[2])
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
