"""The package stays in order: small folders, short files, one meaning per name, imports to the left, names kept."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import ownstep

SOURCE = Path(__file__).parent.parent / "src/ownstep"
FILES = sorted(SOURCE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in FILES} - {SOURCE})

ROOMS = (
    "data",
    "partition",
    "problems",
    "smoothness",
    "plan",
    "methods",
    "history",
    "engines",
    "glm",
    "pep",
    "paper",
    "report",
)
"""In the order data walks through them; ``support`` stands before all, commands and adapters may use every room."""

LONG_FUNCTIONS = {
    # What a user may set stands in the signature; the body is short.
    "run_", "train", "fit", "fit_", "pep", "tune", "run", "race", "compare", "differences",
    # One experiment told from top to bottom.
    "experiment", "measure",
    # The solver's settings and its failures, one after the other.
    "solve",
}  # fmt: skip

SHARED_NAMES = {
    "base.py": "the contract of its room",
    "engine.py": "the loop of its engine",
    "answering.py": "how its engine answers an ask",
    "sketching.py": "how its engine makes sketches",
    "site.py": "a site: the engine's half, and the app's",
    "hospitals.py": "the four hospitals: the comparison, and the demo that shows it",
    "plan.py": "the plan, and its command",
    "tune.py": "designed steps, and their command",
    "check.py": "the checker, and its command",
    "rate.py": "rates, and their command",
}
"""Modules that share a name because they mean the same thing in two rooms."""

PUBLIC = {
    "ownstep": """AdGD At BarzilaiBorwein Bernoulli BinaryLogistic Bursts Cohort Comparison DecentralisedGD Devices
        EXTRA FedAdagrad FedAdam FedAvg FedAvgM FedProx FedYogi GD GradientTracking HeavyBall History ITEM InvalidInput
        LeastSquares Mixing MultinomialLogistic NIDS Nesterov NesterovRestart Never NormBelow OGM Outages OwnStep
        OwnstepError Plan Plateau Scaffold Shrunk Smoothness Stragglers TimeModel compare data engines load
        logistic_regression measure methods mixing_matrix optimum partition pep plan plots price problems run smoothness
        tune""",
    "ownstep.engines": """MISSING TOLERANCES Bernoulli Bursts Cohort Comparison Missing Outages Participation Stragglers
        TimeModel Tuned baselines beyond cluster compare describe parse_participation price run tune tune_step""",
    "ownstep.engines.cluster": "Ranks Shared deal run share",
    "ownstep.engines.federation": "SecurePlus Site Terms init race run site_app",
    "ownstep.engines.federation_site": "Site site_app",
    "ownstep.engines.federation_secure": "SecurePlus",
    "ownstep.cli.choose": "choose_method choose_missing",
    "ownstep.errors": "InvalidInput OwnstepError",
    "ownstep.federate": "init",
    "ownstep.methods": """AdaptiveOwnStep Answer Ask LocalWork METHODS Method MomentumOwnStep Progress STEPS Schedule
        Switch Watch alike norm parse_switch""",
    "ownstep.optim": "OwnStepOptimizer",
    "ownstep.partition": "Partition by_eigenvalue by_label by_norm dirichlet given iid shards",
    "ownstep.pep": """Bound Certificate Certified Instance Interpolant LocalLoss METRICS NotLinear Tuned curve
        interpolation_gaps repeated rivals tune worst_case NETWORK_METRICS NetworkBound NetworkInstance Rate STARTS
        Spectral Start rate NETWORK_WHAT TunedNetwork tune_network Neighbourhood neighbourhood""",
    "ownstep.problems": """BinaryLogistic Blocks LeastSquares LinearModel MultinomialLogistic Network Optimum PerDevice
        Pooled Problem SquaredL2 Stratified TensorNorms logistic_regression optimum""",
    "ownstep.problems.models": "cifar_cnn mlp mnist_cnn",
    "ownstep.problems.text": "text_classifier",
    "ownstep.sklearn": "OwnStepClassifier",
    "ownstep.smoothness": """MEASURES Curvature Kind Region Sampled Smoothness Snapshots along auto differences exact
        measure power trace""",
}  # fmt: skip
"""What people import today: a module may move, but these names stay where they are."""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_stay(module):
    needs = {"cluster": "torch", "optim": "torch", "models": "torch", "text": "torch", "federation": "flwr"}
    for word, extra in needs.items():
        if word in module:
            pytest.importorskip(extra)
    found = importlib.import_module(module)
    missing = [name for name in PUBLIC[module].split() if not hasattr(found, name)]
    assert not missing


def test_a_module_under_its_old_name_is_the_same_module():
    from ownstep import errors  # type: ignore[attr-defined]
    from ownstep.support import errors as now

    assert errors is now
    assert errors.InvalidInput is ownstep.InvalidInput


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_folder_can_be_taken_in_at_a_glance(folder):
    entries = [p for p in folder.iterdir() if p.name != "__pycache__"]
    assert len(entries) <= 14, sorted(p.name for p in entries)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_can_be_read_in_one_sitting(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name not in LONG_FUNCTIONS:
            assert node.end_lineno - node.lineno < 60, node.name


APPS = ("report", "plots", "loopback", "template")
"""Folders that say it elsewhere: they stand at the right end, where everything may be imported from."""


def test_every_folder_says_what_lives_there_and_what_it_may_import():
    for folder in FOLDERS:
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert text, folder
        if folder != SOURCE and folder.name not in APPS:
            assert "ay import" in text or "imports from" in text, folder


def test_a_name_has_one_meaning():
    where = defaultdict(list)
    for path in FILES:
        if not path.name.startswith("__"):
            where[path.name].append(path.parent.name)
    assert {name: rooms for name, rooms in where.items() if len(rooms) > 1 and name not in SHARED_NAMES} == {}


def imports(path: Path) -> set[str]:
    return set(re.findall(r"^\s*from ownstep\.(\w+)", path.read_text(), re.MULTILINE))


def test_rooms_import_only_from_rooms_to_their_left():
    order = {room: i for i, room in enumerate(ROOMS)}
    for path in FILES:
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "support":
            assert imports(path) <= {"support"}, path
        for imported in imports(path) & set(order) if room in order else ():
            assert order[imported] <= order[room], f"{path.name} ({room}) imports from {imported}, to its right"


@pytest.mark.parametrize("checker", ["check.py", "check_network.py"])
def test_the_checker_needs_the_standard_library_alone(checker):
    tree = ast.parse((SOURCE / "pep/proof" / checker).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)
