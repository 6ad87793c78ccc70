"""Rational proofs of rates, and forgeries of them."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ownstep import pep
from ownstep.cli import app
from ownstep.methods import (
    EXTRA,
    GD,
    NIDS,
    At,
    GradientTracking,
    HeavyBall,
    Nesterov,
    Never,
    OwnStep,
    Scaffold,
    TripleMomentum,
)
from ownstep.pep.proof import check_rate
from ownstep.plan import Devices

ONE = Devices(np.ones(1), np.ones(1), np.array([0.1]), L_pooled=1.0)
TWO = pep.repeated([1 / 3, 3], 0.1)
UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])
ANY = pep.Spectral(-0.5, 0.5, any_number=True)
CASES = {
    "gradient descent": (GD(2 / 1.1), ONE, None, 0),
    "heavy ball": (HeavyBall(0.5, 0.3), ONE, None, 1),
    "nesterov, longer memory": (Nesterov("true"), ONE, None, 2),
    "triple momentum": (TripleMomentum("true"), ONE, None, 1),
    "own steps, local phase": (OwnStep(Never()), TWO, None, 1),
    "own steps, common phase": (OwnStep(At(0)), TWO, None, 1),
    "local steps": (Scaffold(0.1, local_steps=2), TWO, None, 1),
    "extra, any number": (EXTRA(0.3), ONE, ANY, 1),
    "nids, a new network each round": (NIDS("own"), UNLIKE, pep.Spectral(-0.3, 0.3, each_round=True), 1),
    "tracking, unlike devices": (GradientTracking(0.05), UNLIKE, pep.Spectral(-0.3, 0.3), 1),
    "one given eigenvalue": (EXTRA(0.3), UNLIKE, pep.Spectral(0.3, 0.3), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_rate_is_proved(name: str) -> None:
    """The checker unrolls the rounds and makes V one round later itself; it proves the very rho that was found."""
    method, devices, network, memory = CASES[name]
    found = pep.rate(method, devices, network=network, memory=memory, tolerance=1e-4)
    proved = found.certify()
    assert proved.bound == Fraction(found.rho)
    assert found.lower <= proved.upper


@pytest.fixture(scope="module")
def honest() -> dict:
    two = Devices.uniform([1.0, 1.0], 0.1)
    return pep.rate(GradientTracking(0.1), two, network=pep.Spectral(-0.5, 0.5)).certify().certificate


def forge(certificate: dict, path: str, value) -> dict:
    forged = copy.deepcopy(certificate)
    *way, last = [int(part) if part.lstrip("-").isdigit() else part for part in path.split("/")]
    at = forged
    for part in way:
        at = at[part]
    at[last] = value(at[last]) if callable(value) else value
    return forged


def first_state(certificate: dict) -> tuple[int, int]:
    """A vector of the state with a relation, and the kind it belongs to."""
    return next(
        (j, c) for j, s in enumerate(certificate["statement"]["state"]) for c, row in enumerate(s["means"]) if row
    )


def test_the_honest_one_is_accepted(honest: dict, tmp_path: Path) -> None:
    assert check_rate.check(honest) == Fraction(honest["rate"])
    file = tmp_path / "rate.json"
    file.write_text(json.dumps(honest))
    alone = [sys.executable, "-S", "-E", check_rate.__file__, str(file)]  # without installed packages
    done = subprocess.run(alone, capture_output=True, text=True, check=True)
    assert "proved: rate per round" in done.stdout


SLACK = "the slack of .* is not positive semidefinite"
CANCEL = "the values do not cancel"
FORGERIES = [
    ("format", "ownstep network certificate 1", "the format"),
    ("rate", "989/1000", CANCEL),
    ("rate", "-1", "a rate is not negative"),
    ("rate", 0.99, "a number must be a text"),
    ("statement/devices/0/L", "2", SLACK),
    ("statement/devices/0/mu", "0", SLACK),
    ("statement/network/hi", "9/10", SLACK),
    ("statement/network/lo", "-9/10", SLACK),
    ("statement/network/hi", "1", "the eigenvalues"),
    ("statement/network", None, "step 1 does neither"),
    ("statement/each_round", 1, "the state"),
    ("statement/each_round", True, "the multipliers of the mixing steps"),
    ("statement/memory", 0, "V may not look at"),
    ("statement/memory", -1, "the memory"),
    ("statement/memory", 10**6, "the memory"),
    ("statement/next/0", lambda v: [{"own": [[0, "2"]], "means": []}], SLACK),
    ("statement/measure", lambda v: [{"own": [[0, "3"]], "means": []}], SLACK),
    ("statement/steps", lambda steps: steps[:-1], "there is nothing at 5"),
    ("statement/steps/0/do", "guess", "step 0 does neither"),
    ("V/mean/P/0/0", "0", SLACK),
    ("V/mean/P/0/0", lambda t: str(Fraction(t) * 2), SLACK),
    ("V/mean/P", lambda P: P[:-1], "the shape of P"),
    ("V/mean/of/0/0", 5, "the argument"),
    ("V/mean/of/0/0", -1, "the argument"),
    ("V/mean/of/0/0", True, "the argument"),
    ("V/mean/of/0/1", "value", "the argument"),
    ("V/mean/of/0", lambda at: [1, "gradient", *at[2:]], "V may not look at"),
    ("V/apart/0/P/0/0", "0", SLACK),
    ("V/apart/0/of/0", lambda at: [*at[:-1], at[-1] + 1], "a difference of another kind"),
    ("V/apart", [], "the forms of V"),
    ("V/values", lambda rows: [[*row[:3], str(Fraction(row[3]) + 1)] for row in rows], CANCEL),
    ("V/values/0/0", 1, "a value that V may not look at"),
    ("V/values/0/0", -1, "a value that V may not look at"),
    ("V/values/0/0", False, "a value that V may not look at"),
    ("multipliers/decrease/conditions", [], CANCEL),
    ("multipliers/decrease/conditions/0/3", "-1", "the condition 0, 0, 1, -1"),
    ("multipliers/decrease/conditions/0", lambda row: [row[0], row[1], row[1], row[3]], "the condition 0, 0, 0"),
    ("multipliers/decrease/Z/0/0/0", "-1", "Z is not positive semidefinite"),
    ("multipliers/positive/conditions", lambda rows: [*rows, [0, 2, 0, "1"]], "there is nothing at 2"),
    ("multipliers/positive/Z", [], "the multipliers of the mixing steps"),
]


@pytest.mark.parametrize(("path", "value", "over"), FORGERIES)
def test_forgeries_are_refused(honest: dict, path: str, value, over: str) -> None:
    """A better rate, a wider class, another method, a V that looks elsewhere, multipliers that are none."""
    with pytest.raises(ValueError, match=over):
        check_rate.check(forge(honest, path, value))


def test_a_relation_has_to_outlast_a_round(honest: dict) -> None:
    """Gradient tracking's trackers have the mean of the last gradients; that they vanish, say, no round keeps."""
    j, c = first_state(honest)
    with pytest.raises(ValueError, match="a round breaks"):
        check_rate.check(forge(honest, f"statement/state/{j}/means/{c}", []))


def test_the_command(tmp_path: Path) -> None:
    proof = tmp_path / "rate.json"
    asked = ["rate", "--L", "1,1", "--mu", "0.1", "--method", "extra", "--network", "spectral:-0.5:0.5"]
    done = CliRunner().invoke(app, [*asked, "--step", "0.3", "--certify", str(proof)])
    assert done.exit_code == 0, done.output
    assert "certified: the distance to a fixed point shrinks by 0.97" in done.stdout
    told = CliRunner().invoke(app, ["check", str(proof), "--json"])
    assert json.loads(told.stdout)["upper"] == pytest.approx(0.97, abs=1e-5)
    forged = forge(json.loads(proof.read_text()), "rate", "9/10")
    proof.write_text(json.dumps(forged))
    assert CliRunner().invoke(app, ["check", str(proof)]).exit_code == 1
