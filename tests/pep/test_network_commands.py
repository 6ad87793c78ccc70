"""The commands over networks: the same numbers as in Python, and bad input in one line."""

from __future__ import annotations

import json

import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.methods import EXTRA, DecentralisedGD


def told(capsys, *arguments: str) -> dict:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code in (1, 2)
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    return error


def test_a_worst_case_over_networks(capsys) -> None:
    setting = ("--L", "1,1", "--mu", "0.1", "--rounds", "3", "--rstar", "0.5")
    found = told(capsys, "pep", *setting, "--method", "extra", "--network", "spectral:-0.5:0.5", "--step", "0.3")
    mine = pep.worst_case(EXTRA(0.3), pep.repeated([1, 1], 0.1), 3, 1.0, 0.5, network=pep.Spectral(-0.5, 0.5))
    assert found["upper"] == pytest.approx(mine.upper, rel=1e-9)
    assert found["lower"] <= found["upper"]
    assert found["ratio"] == pytest.approx(found["upper"] / found["gd"]["upper"])


@pytest.mark.parametrize(
    ("short", "name"), [("dgd", "decentralised_gd"), ("tracking", "gradient_tracking"), ("diging", "gradient_tracking")]
)
def test_methods_go_by_their_short_names_too(capsys, short: str, name: str) -> None:
    setting = ("pep", "--L", "1,1", "--mu", "0.1", "--rounds", "1", "--network", "spectral:-0.5:0.5", "--step", "0.1")
    assert told(capsys, *setting, "--method", short)["upper"] == told(capsys, *setting, "--method", name)["upper"]


def test_a_proof_of_the_worst_device(capsys, tmp_path) -> None:
    """Written, checked, and compared with its setting and with another one."""
    setting = ("--L", "1,1", "--mu", "0.1", "--rounds", "1", "--method", "extra", "--network", "spectral:-0.5:0.5",
               "--step", "0.3", "--rstar", "0.5", "--metric", "value_worst")  # fmt: skip
    path = str(tmp_path / "proof.json")
    found = told(capsys, "pep", *setting, "--certify", path)
    proved = told(capsys, "check", path, *setting)
    assert proved["is_of_the_setting"]
    assert proved["upper"] == pytest.approx(found["upper"], rel=1e-12)
    assert "rstar is 1/2 in the proof, 1 was asked" in refused(capsys, "check", path, *setting, "--rstar", "1")


def test_local_steps(capsys) -> None:
    found = told(
        capsys, "pep", "--L", "1,2", "--mu", "0.1", "--rounds", "1", "--method", "fedavg", "--local-steps", "2",
        "--step", "0.2",
    )  # fmt: skip
    assert found["method"] == "fedavg"
    assert found["lower"] <= found["upper"]


def test_a_rate(capsys) -> None:
    setting = ("--method", "gradient_tracking", "--network", "spectral:-0.9:0.9", "--step", "0.0044")
    found = told(capsys, "rate", "--L", "1,1", "--mu", "0.1", *setting)
    assert round(found["rate"], 4) == 0.9996


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pep", "--L", "1,1", "--method", "extra", "--network", "spectral:0.5:-0.5"), "cannot exceed"),
        (("pep", "--L", "1,1", "--method", "extra", "--network", "spectral:0:1"), "(-1, 1)"),
        (("pep", "--L", "1,1", "--method", "extra", "--network", "spectral:nan:0.5"), "(-1, 1)"),
        (("pep", "--L", "1,1", "--method", "extra", "--network", "spectral:0:0.5:often"), "spectral:LO:HI"),
        (("pep", "--L", "1,1", "--method", "extra", "--network", "spectral:a:b"), "must be numbers"),
        (
            ("pep", "--L", "1,1", "--method", "extra", "--network", "spectral:0:0.5", "--mu", "nan"),
            "at least 0, got nan",
        ),
        (
            ("rate", "--L", "1,1", "--method", "extra", "--network", "spectral:0:0.5", "--mu", "nan"),
            "at least 0, got nan",
        ),
        (("pep", "--L", "1", "--method", "extra", "--network", "spectral:0:0.5"), "two devices or more"),
        (("pep", "--L", "1,1", "--network", "spectral:0:0.5"), "--network needs --method"),
        (("pep", "--L", "1,1", "--method", "fedadam", "--network", "spectral:0:0.5"), "without a network"),
        (("pep", "--L", "1,1", "--method", "extra", "--switch", "3"), "--switch is for Algorithm 1"),
        (("rate", "--method", "item", "--step", "1"), "changes its rule"),
        (("rate", "--method", "gd", "--step", "2.5"), "no quadratic certificate below rho = 1"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(capsys, *arguments)


def test_losses_that_are_only_convex(capsys, tmp_path) -> None:
    """Bounds on subgradients in place of --L; the certificate is checked by the command too."""
    path = tmp_path / "proof.json"
    setting = ("--method", "dgd", "--step", "0.3", "--rounds", "2", "--rstar", "inf", "--metric", "value_average")
    network = ("--network", "spectral:-0.5:0.5")
    found = told(capsys, "pep", "--lipschitz", "1,1", *setting, *network, "--certify", str(path))
    options = (2, 1.0, float("inf"), "value_average")
    mine = pep.worst_case(DecentralisedGD(0.3), pep.lipschitz([1, 1]), *options, network=pep.Spectral(-0.5, 0.5))
    assert found["upper"] == pytest.approx(mine.upper, rel=1e-9)
    assert found["gain"] is None
    checked = told(capsys, "check", str(path))
    assert checked["upper"] == pytest.approx(found["upper"], rel=1e-12)
    assert "subgradients at most 1 long" in checked["statement"]
    assert "which devices? Give --L" in refused(capsys, "pep", *setting)
    assert "in place of --L and --mu" in refused(capsys, "pep", "--L", "1", "--lipschitz", "1", *setting)
    assert "give --method" in refused(capsys, "pep", "--lipschitz", "1,1")
    assert "these losses have none" in refused(capsys, "pep", "--lipschitz", "1,1", "--method", "gd")
