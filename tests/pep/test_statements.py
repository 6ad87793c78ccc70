"""What certificates over networks and of rates say: all they depend on, and whether it is what one had in mind."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.methods import DecentralisedGD, FedAvg, GradientTracking
from ownstep.pep.proof import check_network, check_rate

UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])
NETWORK = pep.Spectral(-0.5, 0.5)
NAMES = ("network", "local steps", "starts", "rate")


@cache
def made(name: str) -> tuple[ModuleType, dict[str, Any]]:
    """A certificate, and its checker."""
    if name == "rate":
        return check_rate, pep.rate(GradientTracking(0.02), UNLIKE, network=NETWORK).certify().certificate
    start = pep.Start("ball", trackers=2.0, gradients=3.0)
    method, rounds, options = {
        "network": (DecentralisedGD("own", order="atc"), 3, {"network": NETWORK}),
        "local steps": (FedAvg(0.2, local_steps=2), 1, {}),
        "starts": (GradientTracking(0.1), 1, {"network": NETWORK, "start": start}),
    }[name]
    bound = pep.worst_case(method, UNLIKE, rounds, 1.0, 0.5, **options)  # type: ignore[arg-type]
    return check_network, bound.certify().certificate


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all that is no list and no object."""
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from leaves(data[key], (*path, key))
    else:
        yield path


def changed(certificate: dict[str, Any], way: tuple[Any, ...], checker: ModuleType) -> dict[str, Any]:
    """The certificate with another entry there, and a digest that fits."""
    other = copy.deepcopy(certificate)
    place = other["statement"]
    for key in way[:-1]:
        place = place[key]
    now = place[way[-1]]
    others = {"lo": "-1/3", "hi": "1/3", "points": "mean", "do": "none", "metric": "distance"}
    fresh: Any = {"lo": "0", "hi": "0"} if way == ("network",) else others.get(way[-1], "7")
    place[way[-1]] = not now if isinstance(now, bool) else now + 1 if isinstance(now, int) else fresh
    names = check_rate.ROUND if checker is check_rate else ("steps", "points", "stack")
    other["statement"]["method"]["digest"] = digest(other["statement"], names)
    return other


def digest(statement: dict[str, Any], names: tuple[str, ...]) -> str:
    """Written down once more: sha256 of what the devices do, as json with its names in order."""
    return hashlib.sha256(json.dumps([statement[n] for n in names], sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_of_a_statement_shows_in_its_sentence(name: str) -> None:
    """Nothing can be stated that is not said; a rate's memory is part of its proof, not of what is proved."""
    checker, certificate = made(name)
    said, count = checker.describe(certificate), 0
    for way in leaves(certificate["statement"]):
        if way[:2] == ("method", "digest") or way == ("memory",):
            continue
        assert checker.describe(changed(certificate, way, checker)) != said, way
        count += 1
    assert count > 30


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_names_what_it_is_about(name: str) -> None:
    checker, certificate = made(name)
    words = [certificate["statement"]["method"]["digest"], "F(mu=1/10, L=1)", "2 with weight 1/4", "F(mu=2/5, L=5/2)"]
    more = {
        "network": ["K = 3 rounds", "DecentralisedGD(step='own'", "[-1/2, 1/2]", "the same in all rounds", "<= 1/2"],
        "local steps": ["K = 1 rounds", "FedAvg", "without a network", "||x^0 - x*|| <= 1 "],
        "starts": ["||x_i^0 - x*|| <= 1 ", "grad f_i(x*)||^2 <= (3)^2", "grad f_i(x_i^0) - mean||^2 <= (2)^2"],
        "rate": ["GradientTracking(step=0.02", "for every number k of rounds", "vector 0 of the state"],
    }
    said = checker.describe(certificate)
    assert [word for word in words + more[name] if word not in said] == []
    assert "ring" not in said


def test_a_new_matrix_in_each_round_is_said() -> None:
    for each_round, word in ((True, "a new one in each round"), (False, "the same in all rounds")):
        network = pep.Spectral(-0.5, 0.5, each_round=each_round, any_number=True)
        bound = pep.worst_case(DecentralisedGD(0.3), pep.repeated([1.0], 0.1), 3, 1.0, 0.5, network=network)
        said = bound.certify().statement
        assert word in said
        assert "or any number of them in these shares" in said


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments, "--json"])
    out, err = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, json.loads(out) if out else {}, err


def proved(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--certify", str(path)])
    assert ended.value.code == 0, capsys.readouterr().err
    capsys.readouterr()
    return str(path)


DEVICES = ("--L", "1,2.5", "--mu", "0.1,0.4", "--count", "2,1", "--weights", "1,2")
PEP = {
    "extra": ("--method", "extra", "--network", "spectral:-0.5:0.5", "--step", "0.1"),
    "tracking, atc": ("--method", "tracking", "--network", "spectral:-0.3:0.3", "--step", "0.1", "--order", "atc"),
    "fedavg": ("--method", "fedavg", "--step", "0.1", "--local-steps", "2"),
    "a server": ("--method", "nesterov", "--step", "mean"),
}
SETTING = ("--rounds", "2", "--r0", "2", "--rstar", "0.5", "--metric", "distance")


@pytest.mark.parametrize("name", PEP)
def test_worst_cases_are_compared_with_their_options(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The options that made a proof, and every one of them changed."""
    path = proved(capsys, tmp_path / "proof.json", "pep", *DEVICES, *PEP[name], *SETTING)
    options = [*DEVICES, *PEP[name], *SETTING]
    code, told, _ = checked(capsys, path, *options)
    assert (code, told["is_of_the_setting"], told["differences"]) == (0, True, [])
    for flag, value in {
        "--L": "1,3", "--mu": "0.1,0.3", "--count": "3,1", "--weights": "1,3", "--network": "spectral:-0.5:0.4",
        "--step": "0.05", "--order": "cta", "--local-steps": "3", "--rounds": "3", "--r0": "1", "--rstar": "1",
        "--metric": "value",
    }.items():  # fmt: skip
        if flag not in options:
            continue
        other = list(options)
        other[other.index(flag) + 1] = value
        code, told, error = checked(capsys, path, *other)
        assert (code, told["is_of_the_setting"]) == (1, False), flag
        assert told["differences"], flag
        assert error.startswith("ownstep: the proof is of something else")
        if flag not in ("--step", "--order", "--local-steps"):
            word = {"--count": "number of devices", "--weights": "weight"}.get(flag, flag.strip("-"))
            assert word in " ".join(told["differences"])


STEEP = {
    "a network": ("--method", "dgd", "--network", "spectral:-0.5:0.5", "--metric", "value_average"),
    "two of a kind, the worst": ("--method", "dgd", "--network", "spectral:-0.5:0.5", "--metric", "value_worst"),
    "a server": ("--method", "gd", "--metric", "value"),
}


@pytest.mark.parametrize("name", STEEP)
def test_proofs_for_convex_losses_are_compared_too(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Losses with bounded subgradients have no L; in its place the bounds are compared."""
    setting = ("--count", "2", "--step", "0.3", "--rounds", "2", "--r0", "2", "--rstar", "inf")
    options = ["--lipschitz", "1.5", *STEEP[name], *setting]
    path = proved(capsys, tmp_path / "proof.json", "pep", *options)
    code, told, _ = checked(capsys, path, *options)
    assert (code, told["is_of_the_setting"], told["differences"]) == (0, True, [])
    changes = {
        "--lipschitz": ("1", "subgradients"), "--count": ("3", "number of devices"), "--r0": ("1", "r0"),
        "--network": ("spectral:-0.5:0.4", "network"), "--rounds": ("3", "rounds"), "--rstar": ("1", "rstar"),
        "--step": ("0.2", "other steps"), "--metric": ("distance_devices", "metric"),
    }  # fmt: skip
    for flag, (value, word) in changes.items():
        if flag not in options:
            continue
        other = list(options)
        other[other.index(flag) + 1] = value
        code, told, _ = checked(capsys, path, *other)
        assert (code, told["is_of_the_setting"]) == (1, False), flag
        assert word in " ".join(told["differences"])
    smooth = ["--L", "1.5", *options[2:]]
    code, told, _ = checked(capsys, path, *smooth)
    assert code == 1
    assert "only convex, with bounded subgradients, and smooth losses were asked" in told["differences"][0]
    code, _, error = checked(capsys, path, "--L", "1", *options)
    assert (code, "in place of --L" in error) == (2, True)


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "gradient_tracking", "--network", "spectral:-0.3:0.3", "--step", "0.02"),
        ("--method", "own_step", "--switch", "at:0"),
        ("--method", "heavy_ball", "--step", "0.3", "--momentum", "0.3"),
    ],
)
def test_rates_are_compared_with_their_options(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = proved(capsys, tmp_path / "proof.json", "rate", "--L", "1,2", *options, "--memory", "1")
    code, told, _ = checked(capsys, path, "--L", "1,2", *options)
    assert (code, told["differences"]) == (0, [])
    for flag, value in {"--network": "spectral:-0.2:0.3", "--step": "0.01", "--switch": "never", "--L": "1,3"}.items():
        changed = ["--L", "1,2", *options]
        if flag in changed:
            changed[changed.index(flag) + 1] = value
            assert checked(capsys, path, *changed)[0] == 1, flag
    code, told, _ = checked(capsys, path, "--L", "1,2", "--mu", "0.2", *options)
    assert code == 1
    assert "mu by number of devices" in told["differences"][0]


def test_a_design_is_compared_with_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Steps and mixing weights come from what --out wrote."""
    out, setting = tmp_path / "design.json", ("--L", "0.5,1.5", "--mu", "0.1", "--rounds", "1", "--rstar", "0.5")
    network = ("--network", "spectral:-0.5:0.5")
    design = ("--method", "dgd", "--order", "atc", "--what", "both", "--effort", "0.05", "--no-compare")
    path = proved(capsys, tmp_path / "proof.json", "tune", *setting, *network, *design, "--out", str(out))
    code, told, _ = checked(capsys, path, *setting, *network, "--schedule", str(out))
    assert (code, told["differences"]) == (0, [])
    report = json.loads(out.read_text())
    out.write_text(json.dumps(report | {"theta": report["theta"] / 2}))
    assert checked(capsys, path, *setting, *network, "--schedule", str(out))[0] == 1
    out.write_text("{}")
    code, _, error = checked(capsys, path, *setting, *network, "--schedule", str(out))
    assert (code, "holds no design" in error) == (2, True)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--method", "extra"), 2, "give its devices by --L or --lipschitz"),
        (("--lipschitz", "1,1"), 2, "give --method and --step beside --lipschitz"),
        (("--lipschitz", "1,1", "--method", "dgd", "--step", "0.3"), 1, "is for smooth losses, and losses that are"),
        (("--L", "1,1", "--step", "0.1"), 2, "--step is for --method"),
        (("--L", "1,1", "--switch", "never"), 2, "--switch is a number of rounds"),
        (("--L", "1,1", "--network", "spectral:0:0.5"), 2, "--network needs --method"),
        (("--L", "1,1"), 1, "a method over networks or with local steps, one with a server and no local steps"),
        (("--L", "1,1", "--method", "gd"), 1, "one with a server and no local steps was asked"),
    ],
)
def test_what_cannot_be_compared_is_said(
    options: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(made("network")[1]))
    found, _, error = checked(capsys, str(path), *options)
    assert (found, words in error, len(error.strip().splitlines())) == (code, True, 1)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_without_a_common_denominator_are_refused_at_once(name: str) -> None:
    """Sums of a few hundred of them would take hours; an honest proof has one of under 200 bits."""
    checker, certificate = made(name)
    checker.check(certificate)
    hostile = copy.deepcopy(certificate)
    key = "rate" if "rate" in hostile else "bound"
    hostile[key] = [f"1/{10**999 + n}" for n in range(50)]
    with pytest.raises(ValueError, match="too many different denominators"):
        checker.check(hostile)
