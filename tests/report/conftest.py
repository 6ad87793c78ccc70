"""Results as experiments write them, small and made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ownstep.paper import EXPERIMENTS
from ownstep.report import Results, build, read

from .browser import BROWSERS

ROOT = Path(__file__).parents[2]
METHODS = ("Algorithm 1", "GD 1/L-bar", "GD matched step")


def verdict(word: str = "holds", **more: Any) -> dict[str, Any]:
    return {"verdict": word, "rule": "faster in 3 of 4 cells", "findings": ["gain 1.51, speed-up 1.46"], **more}


def envelope(name: str, result: Any, **more: Any) -> dict[str, Any]:
    """A result file around some data."""
    return {
        "name": name, "claim": f"The claim of {name}.", "quick": False,
        "settings": [{"what": "L_i", "paper": "1", "ours": "2", "why": "because"}],
        "provenance": {"seed": 0, "commit": "abc", "machine": "none", "python": "3", "versions": {"numpy": "2"}},
        "verdict": verdict(), "result": result,
    } | more  # fmt: skip


def neural(runs: int = 3) -> dict[str, Any]:
    """Runs of a network: losses, an accuracy and constants."""

    def one(seed: int) -> dict[str, Any]:
        return {
            "seed": seed,
            "devices": {"names": ["a", "b"], "L": [1.0, 3.0], "L_bar": 2.0, "gain": 1.33},
            "methods": {
                m: {"rounds": [0, 10, 20], "loss": [2.0 + seed, 1.0 + i, 0.5],
                    "test_accuracy": {"rounds": [0, 20], "values": [0.1, 0.9]}}
                for i, m in enumerate(METHODS)
            },
        }  # fmt: skip

    return {"arms": {"one arm": {"runs": [one(s) for s in range(runs)]}}}


def write(folder: Path, name: str, report: Any) -> Path:
    path = folder / name / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report if isinstance(report, str) else json.dumps(report))
    return path


@pytest.fixture(scope="module", params=BROWSERS)
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every browser that this machine has."""
    there, kind = BROWSERS[request.param]
    if there() is None:
        pytest.skip(f"{request.param} is not on this machine")
    return kind(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def own_results() -> Results:
    """What the repository holds."""
    return read(ROOT / "results", "../results")


@pytest.fixture(scope="session")
def own_page(own_results: Results) -> str:
    """The repository's own page, built once for all tests."""
    return build(own_results, "report")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with a network, a contest and a worst case in it, and nothing else."""
    folder = tmp_path / "results"
    numbers = [{"group": "an arm", "what": "to 1", "value": 1.2, "low": 1.1, "high": 1.3, "runs": 3, "note": "saved"}]
    write(folder, "mnist", envelope("mnist", neural(), verdict=verdict("holds partly", numbers=numbers)))
    series = {m: {"round": [0, 1, 10, 100], "gap": [1.0, 0.5, None, 0.001]} for m in (*METHODS, "FedAdam tuned")}
    rows = [{"method": m, "rounds": {"0.1": 10, "0.01": None}, "stopped": "done"} for m in METHODS]
    write(folder, "fedopt", envelope("fedopt", {"arms": {"two": {"series": series, "rows": rows}}}))
    curve = [{"rounds": k, "upper": 2.0**-k, "lower": 2.0**-k} for k in range(4)]
    write(folder, "pep-curves", envelope("pep-curves", {"curves": {"GD 1/L-bar": curve, "Nesterov": curve}}))
    assert set(EXPERIMENTS) > {"mnist", "fedopt", "pep-curves"}
    return folder
