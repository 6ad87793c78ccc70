"""Exact certificates: proved by a file of its own, refused when anything in them is changed."""

from __future__ import annotations

import ast
import copy
import json
import math
import shutil
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.methods import GD, ITEM, At, DecentralisedGD, Nesterov, Never, OwnStep
from ownstep.pep.proof import check as checker
from ownstep.pep.proof.certify import rational, restate, rounded_up
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError

PAPER = Devices.uniform([1 / 3, 3], 0.1)
UNEQUAL = Devices(np.array([0.2, 0.3, 0.5]), np.array([1.0, 2.0, 5.0]), np.array([0.1, 0.2, 0.05]))
FILE = Path(checker.__file__)


@pytest.fixture(scope="module")
def certificate() -> dict:
    return pep.worst_case(OwnStep(At(2)), PAPER, 4, 10, 1).certify().certificate


def test_the_checker_is_short_and_needs_nothing() -> None:
    source = FILE.read_text()
    assert len(source.splitlines()) < 270
    names = {n.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for n in node.names}
    names |= {str(node.module) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert names == {"hashlib", "json", "math", "re", "sys", "fractions", "operator", "typing"}


def test_it_runs_on_its_own(certificate: dict, tmp_path: Path) -> None:
    """A copy of the file elsewhere, an isolated interpreter, no environment: nothing of ownstep or NumPy in reach."""
    shutil.copy(FILE, tmp_path / "alone.py")

    def alone(data: dict) -> subprocess.CompletedProcess[str]:
        (tmp_path / "c.json").write_text(json.dumps(data))
        command = [sys.executable, "-I", "-S", "alone.py", "c.json"]
        return subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60, check=False)

    done = alone(certificate)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"proved: worst case <= {certificate['bound']}\n{checker.describe(certificate)}\n"
    lower = certificate | {"bound": str(Fraction(certificate["bound"]) * Fraction(999_999, 1_000_000))}
    assert alone(lower).returncode != 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bound_as_a_double_is_never_below_it(sign: int) -> None:
    for exact in (
        Fraction(1, 3),
        Fraction(2, 3),
        Fraction(1, 10),
        Fraction(7, 5),
        Fraction(1, 3) / 10**12,
        Fraction(2),
    ):
        number = sign * exact
        up = rounded_up(number)
        assert Fraction(up) >= number
        assert Fraction(math.nextafter(up, -math.inf)) < number  # the smallest of those
    assert rounded_up(Fraction(3, 4)) == 0.75
    between = Fraction(1) + Fraction(1, 2**60)  # nearer to 1 than to the next double
    assert rounded_up(between) == 1 + 2**-52


def test_what_is_shown_of_a_bound_is_rounded_up(certificate: dict, tmp_path: Path, capsys) -> None:
    bound = Fraction(1) + Fraction(1, 2**60)
    found = pep.proof.certify.Certified(0.5, bound, certificate)
    assert found.upper == 1 + 2**-52
    assert found.width == pytest.approx(0.5)
    assert found.to_dict()["upper"] == 1 + 2**-52
    assert pep.proof.certify.Certified(0.0, Fraction(0), certificate).width == 0


def change(certificate: dict, *path: object, to: object) -> dict:
    out = copy.deepcopy(certificate)
    place = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to(place[path[-1]]) if callable(to) else to
    return out


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (["bound"], lambda b: str(Fraction(b) * Fraction(9_999_999, 10_000_000))),
        (["multipliers", "start"], lambda t: str(Fraction(t) * Fraction(999, 1000))),
        (["multipliers", "start"], "-1"),
        (["multipliers", "own", 0], "0"),
        (["multipliers", "own", 0], lambda t: "-" + t),
        (["multipliers", "own"], lambda t: t[:1]),
        (["multipliers", "conditions", 0, 3], lambda t: "-" + t),
        (["multipliers", "conditions", 0, 3], lambda t: str(Fraction(t) + Fraction(1, 2**60))),
        (["multipliers", "conditions"], lambda rows: rows[1:]),
        (["multipliers", "conditions", 0, 2], lambda q: 3 if q != 3 else 2),
        (["multipliers", "conditions", 0, 1], "nowhere"),
        (["statement", "rounds", 0, "steps", 1], "1/2"),
        (["statement", "rounds", 3, "steps", 0], "3"),
        (["statement", "rounds", 2, "ask", 1], "-9/10"),
        (["statement", "rounds", 0, "ask"], ["1", "-1"]),
        (["statement", "final", 0], "2"),
        (["statement", "final"], ["0"]),
        (["statement", "final"], []),
        (["statement", "devices", 0, "mu"], 0.1),
        (["multipliers", "start"], "1e9"),
        (["multipliers", "start"], math.nan),
        (["bound"], math.inf),
        (["statement", "devices", 1, "L"], "4"),
        (["statement", "devices", 0, "mu"], "1/20"),
        (["statement", "devices", 0, "mu"], "1"),
        (["statement", "devices", 0, "weight"], "3/4"),
        (["statement", "devices", 0, "count"], 2),
        (["statement", "r0"], "11"),
        (["statement", "rstar"], "2"),
        (["statement", "rstar"], "inf"),
        (["statement", "metric"], "distance"),
        (["statement", "metric"], "los"),
        (["format"], "ownstep certificate 1"),
        (["statement", "method", "digest"], "0" * 64),
        (["statement", "method"], lambda m: m | {"author": "me"}),
        (["statement"], lambda s: s | {"note": "and for all other metrics"}),
        (["multipliers"], lambda m: m | {"end": "0"}),
        (["statement", "devices", 0], lambda d: d | {"name": "D1"}),
        (["statement", "devices", 0, "count"], "1"),
        (["statement", "devices", 0, "count"], True),
        (["statement", "rounds", 0, "steps"], lambda steps: [*steps, "1"]),
        (["statement", "rounds", 0], lambda r: r | {"again": 1}),
        (["multipliers", "conditions", 0, 0], lambda c: bool(c)),
        (["multipliers", "conditions", 0, 0], lambda c: c - 2),
        (["multipliers", "start"], "9" * 5000),
        (["multipliers", "start"], "1_000"),
        (["multipliers", "start"], "1/0"),
    ],
)
def test_what_was_tampered_with_is_refused(certificate: dict, path: list, to: object) -> None:
    assert checker.check(certificate) == Fraction(certificate["bound"])
    with pytest.raises(ValueError, match="."):
        checker.check(change(certificate, *path, to=to))


def test_a_point_that_knows_the_solution_is_no_method() -> None:
    """With x* as the origin 0 x^0 is the solution itself: nothing that a method could look at."""
    statement = {"devices": [{"count": 1, "weight": "1", "mu": "0", "L": "1"}], "r0": "1", "rstar": "0"}
    statement |= {"metric": "distance", "rounds": [], "final": ["1/2"], "method": {"name": "", "digest": ""}}
    forged = {"format": checker.FORMAT, "statement": statement, "bound": "1/4"}
    forged |= {"multipliers": {"start": "1/4", "own": [], "conditions": []}}
    with pytest.raises(ValueError, match="round 0 is not x0 plus"):
        checker.check(forged)


def test_a_larger_bound_is_proved_too(certificate: dict) -> None:
    assert checker.check(certificate | {"bound": "1000"}) == 1000


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_closed_form(rounds: int) -> None:
    """Gradient descent on convex functions: L r0^2 / (4 K + 2), exactly (Drori and Teboulle, 2014)."""
    exact = Fraction(3) * 4 / (4 * rounds + 2)
    proved = pep.worst_case(GD(), Devices.uniform([3.0]), rounds, 2.0).certify()
    assert exact <= proved.bound <= exact * (1 + Fraction(1, 10**6))
    assert proved.width <= 1e-6


CASES = {
    "Fig. 1a": (OwnStep(At(9)), PAPER, 20, 10, 1, "value"),
    "Fig. 1a, GD": (GD(), PAPER, 20, 10, 1, "value"),
    "Fig. 1b": (OwnStep(At(10)), Devices.uniform([0.8, 1.2], 0.1), 20, 10, 1, "distance"),
    "Fig. 1c": (OwnStep(At(5)), pep.repeated([1 / 3, 3], 0.1, [500, 500]), 10, 10, 1, "value"),
    "twins and one": (OwnStep(At(2)), pep.repeated([1 / 3, 3], 0.1, [3, 1]), 4, 1, 0.5, "gradient"),
    "weights": (OwnStep(At(3)), UNEQUAL, 5, 1, 0.3, "value"),
    "pooled": (OwnStep(Never()), UNEQUAL, 5, 1, 0, "distance"),
    "one function": (OwnStep(At(2)), Devices.uniform([0.1, 3], 0.1), 4, 1, 0.5, "value"),
    "twins of one function": (OwnStep(At(2)), pep.repeated([0.1, 3], 0.1, [2, 2]), 4, 1, 0.5, "value"),
    "momentum": (Nesterov("mean"), PAPER, 10, 1, math.inf, "value"),
    "ITEM": (ITEM("mean"), PAPER, 8, 1, 0, "distance"),
    "no rounds": (GD(), PAPER, 0, 2, 1, "value"),
}


@pytest.mark.parametrize("name", CASES)
def test_enclosures_are_narrow(name: str) -> None:
    bound = pep.worst_case(*CASES[name])
    proved = bound.certify()
    assert proved.lower <= proved.bound
    assert proved.width <= 1e-5
    assert proved.upper == pytest.approx(bound.upper, rel=1e-9)


def test_the_statement_is_run_as_the_method_runs(certificate: dict) -> None:
    """The checker's rows, at the vectors of random quadratics, are what the method and the devices really see."""
    rng, s = np.random.default_rng(0), certificate["statement"]
    points_told, steps, _ = checker.read_method(s["rounds"], s["final"], 2)
    kinds, tilted = checker.read_kinds(s["devices"], steps, Fraction(1))
    rows, _, slope = checker.run(points_told, kinds, tilted)
    mu, w, d = 0.1, np.array([0.5, 0.5]), 4
    basis = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2)]
    H = [b @ np.diag(rng.uniform(mu, L, d)) @ b.T for b, L in zip(basis, PAPER.L, strict=True)]
    pull = rng.standard_normal(d)
    tilts, method = [pull / w[0], -pull / w[1]], OwnStep(At(2))
    state = method.start(rng.standard_normal(d), PAPER)
    known = {("x", 0): state.x, ("s", 0): tilts[0]}
    known |= {("z", c): -np.linalg.solve(H[c], tilts[c]) for c in range(2)}
    points = [state.x]
    for k in range(5):
        slopes = np.array([H[c] @ points[-1] + tilts[c] for c in range(2)])
        known |= {("v", c, k): (H[c] - mu * np.eye(d)) @ points[-1] for c in range(2)}
        ask = method.ask(state)
        known["u", k] = (ask.mix if k < 4 else w) @ slopes
        state = method.tell(state, type("Answer", (), {"sum": ask.mix @ slopes, "value": 0.0}))
        points.append(method.point(state))

    def at(row: dict) -> np.ndarray:
        return sum((float(a) * known[name] for name, a in row.items()), np.zeros(d))

    for c in range(2):
        for k in range(5):
            np.testing.assert_allclose(at(rows["x", c, k]), points[k], atol=1e-12)
            np.testing.assert_allclose(at(rows["v", c, k]), (H[c] - mu * np.eye(d)) @ points[k], atol=1e-10)
        np.testing.assert_allclose(at(rows["v", c, "own"]), (H[c] - mu * np.eye(d)) @ known["z", c], atol=1e-10)
    np.testing.assert_allclose(at(slope), w @ np.array([H[c] @ points[4] for c in range(2)]), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["value", "gradient"])
def test_devices_that_all_differ_are_certified(metric: str) -> None:
    """Constants of 53 bits: elimination alone took minutes for six such devices. No part of the bound is given away."""
    rng = np.random.default_rng(5)
    w, L = rng.uniform(0.5, 2, 6), np.exp(rng.uniform(0, 3, 6))
    bound = pep.worst_case(OwnStep(At(2)), Devices(w / w.sum(), L, 0.1 * L**0.3), 5, 1.0, 0.3, metric)
    began = time.process_time()
    proved = bound.certify()
    assert time.process_time() - began < 10
    assert proved.upper == pytest.approx(bound.upper, rel=1e-9)
    assert proved.lower <= proved.bound
    less = proved.certificate | {"bound": str(proved.bound * Fraction(999_999_999, 10**9))}
    with pytest.raises(ValueError, match="do not prove the bound"):
        checker.check(less)


@pytest.mark.parametrize("seed", range(8))
def test_exact_elimination_knows_a_semidefinite_matrix(seed: int) -> None:
    """Integer Gram matrices, singular ones too; the same less a little of one entry; and indefinite ones."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-4, 5, (5, 2 + seed % 4))
    rows[seed % 5] = 0
    gram = rows @ rows.T
    form = {(i, j): Fraction(int(gram[i, j]), 7) for i in range(5) for j in range(5)}
    assert checker.semidefinite(form)
    (i, j), tiny = (seed % 5, (seed + 1) % 5), Fraction(1, 10**12)
    assert not checker.semidefinite(form | {(i, i): form[i, i] - tiny})
    assert not checker.semidefinite(form | {(i, j): form[i, j] + tiny, (j, i): form[j, i] + tiny})


def test_short_fractions() -> None:
    assert rational(1 / 3) == Fraction(1, 3)
    assert rational(0.1 + 0.2) == Fraction(3, 10)
    assert rational(math.pi) == Fraction(math.pi)


@pytest.mark.parametrize("unit", [1.0, 1e-13, 1e17, 2.0**-40])
def test_a_short_fraction_stands_for_doubles_within_a_rounding_of_it(unit: float) -> None:
    """Within 1e-14 of it, in whatever unit; a double a little farther off is itself."""
    third = unit / 3
    for off, short in ((0.8e-14, True), (-0.8e-14, True), (1.3e-14, False), (-1.3e-14, False)):
        number = third * (1 + off)
        found = rational(number)
        assert (found != Fraction(number)) is short
        assert abs(found / Fraction(number) - 1) <= Fraction(1, 10**14)


def test_what_cannot_be_certified_says_so() -> None:
    with pytest.raises(OwnstepError, match="one point for all devices"):
        restate(DecentralisedGD(), PAPER, 2, 1, 0.5, "value")
    with pytest.raises(OwnstepError, match="nothing to certify: unbounded"):
        pep.worst_case(OwnStep(At(1)), PAPER, 2, 1, math.inf).certify()


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


@pytest.mark.slow
def test_the_statement_binds_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What the options of pep state is regenerated from the method, and anything else is told apart."""
    target, steps = str(tmp_path / "out.json"), str(tmp_path / "steps.json")
    setting = {"--L": "0.5,1.5", "--mu": "0.1", "--rounds": "3", "--switch": "2", "--rstar": "0.1", "--weights": "1,3"}

    def asked(**other: str) -> list[str]:
        return [text for pair in (setting | {f"--{k}": v for k, v in other.items()}).items() for text in pair]

    assert call(capsys, "pep", *asked(), "--certify", target)[0] == 0
    code, out, _ = call(capsys, "check", target, *asked())
    assert code == 0
    assert "the proof is of the setting given" in out
    for other, word in (
        ({"L": "0.5,1.6"}, "L by number"),
        ({"mu": "0.2"}, "mu by number"),
        ({"weights": "1,2"}, "weight by number"),
        ({"count": "1,2"}, "L by number"),
        ({"rounds": "4"}, "3 rounds, 4 were asked"),
        ({"switch": "1"}, "other steps"),
        ({"momentum": "nesterov"}, "other"),
        ({"r0": "2"}, "r0 is 1 in the proof, 2"),
        ({"rstar": "0.2"}, "rstar is 1/10"),
        ({"metric": "distance"}, "metric is value"),
    ):
        code, out, err = call(capsys, "check", target, *asked(**other))
        assert code == 1, other
        assert "the proof is of something else" in err
        assert word in err
        code, out, _ = call(capsys, "check", target, *asked(**other), "--json")
        assert code == 1
        assert json.loads(out)["is_of_the_setting"] is False
    assert call(capsys, "check", target, "--switch", "1")[0] == 2
    tuned = [
        "tune",
        "--L",
        "0.5,1.5",
        "--mu",
        "0.1",
        "--rounds",
        "2",
        "--rstar",
        "0.1",
        "--no-compare",
        "--what",
        "scales",
    ]
    assert call(capsys, *tuned, "--out", steps, "--certify", target)[0] == 0
    devices = ["--L", "0.5,1.5", "--mu", "0.1", "--rounds", "2", "--rstar", "0.1"]
    assert call(capsys, "check", target, *devices, "--schedule", steps)[0] == 0
    assert "other steps" in call(capsys, "check", target, *devices)[2]
    assert "holds no schedule" in call(capsys, "check", target, *devices, "--schedule", target)[2]


def test_the_digest_is_that_of_the_steps() -> None:
    """Algorithm 1 and gradient descent printed the same words; now they differ in more than the number."""
    told = [pep.worst_case(m, PAPER, 2, 1, 0.1).certify() for m in (OwnStep(At(1)), GD(), OwnStep(At(1)))]
    digests = [t.certificate["statement"]["method"]["digest"] for t in told]
    assert digests[0] == digests[2] != digests[1]
    assert digests[0] in str(told[0])


def test_files_are_of_a_reasonable_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MOST_BYTES", 100)
    (tmp_path / "c.json").write_text(" " * 101)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        checker.read(str(tmp_path / "c.json"))


def test_a_statement_too_large_is_refused_before_any_work(certificate: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "run", lambda *_: pytest.fail("it was run"))
    monkeypatch.setattr(checker, "MOST_UNKNOWNS", 13)
    with pytest.raises(ValueError, match="too large"):
        checker.check(certificate)


def test_doubles_become_weights_that_sum_to_one() -> None:
    shares = np.array([0.123456789, 0.7, 3.3])
    proved = pep.worst_case(OwnStep(At(1)), Devices(shares / shares.sum(), np.array([1.0, 2, 3])), 2, 1, 0.1).certify()
    entries = proved.certificate["statement"]["devices"]
    assert sum(Fraction(d["weight"]) * d["count"] for d in entries) == 1


@pytest.mark.slow
def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = str(tmp_path / "out.json")
    setting = ["pep", "--L", "0.5,1.5", "--mu", "0.1", "--rounds", "4", "--switch", "2", "--rstar", "0.1"]
    code, out, _ = call(capsys, *setting, "--certify", target, "--json")
    proved = json.loads(out)["certified"]
    assert code == 0
    assert proved["lower"] <= proved["upper"]
    assert proved["width"] <= 1e-5
    code, out, _ = call(capsys, "check", target, "--json")
    assert code == 0
    assert json.loads(out) == {"proved": True, "bound": proved["bound"], "upper": proved["upper"]} | {
        "statement": json.loads(out)["statement"]
    }
    said = call(capsys, "check", target)[1]
    assert "after K = 4 rounds of the method with digest" in said
    assert "OwnStep(switch=At(round=2)" in said or "OwnStep(" in said
    assert "certified: " in call(capsys, *setting, "--certify", target)[1]
    data = json.loads(Path(target).read_text())
    Path(target).write_text(json.dumps(data | {"bound": "1/1000"}))
    code, _, err = call(capsys, "check", target)
    assert code == 1
    assert "refused: the multipliers do not prove" in err
    twice = '{"bound": "1", ' + json.dumps(data)[1:]
    Path(target).write_text(twice)
    assert "a name stands twice" in call(capsys, "check", target)[2]
    assert subprocess.run([sys.executable, str(FILE), target], capture_output=True, timeout=60).returncode != 0
    for strange in ("[" * 100_000, "null", "[]", json.dumps(data | {"bound": "1/0"})):
        Path(target).write_text(strange)
        assert "refused: " in call(capsys, "check", target)[2]
    Path(target).write_text("{}")
    assert "must have the fields" in call(capsys, "check", target)[2]
    for option in ("--rounds=4", "--r0=1", "--rstar=0", "--metric=value", "--mu=0.1", "--step=1"):
        code, _, err = call(capsys, "check", target, option)
        assert code == 2, "a setting without its devices is no setting, and not compared in silence"
        assert "give its devices by --L" in err
    for missing in (tmp_path / "none.json", tmp_path):
        code, _, err = call(capsys, "check", str(missing))
        assert code == 2, "as for every file that a command cannot read"
        assert "cannot read" in err
    assert call(capsys, *setting, "--curve", "--certify", target)[0] == 2
