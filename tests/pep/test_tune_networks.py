"""Steps and mixing weights for a class of networks: against known optima, scans and the method on a real network."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ownstep import pep
from ownstep.cli import app
from ownstep.methods import EXTRA, GD, NIDS, DecentralisedGD, GradientTracking, Mixing, mixing_matrix
from ownstep.support.errors import InvalidInput

ALIKE = pep.repeated([1.0], mu=0.1, counts=[2])
UNLIKE = pep.repeated([0.5, 1.5], mu=0.1)
NETWORK = pep.Spectral(-0.6, 0.6)


def test_with_complete_averaging_the_best_step_is_that_of_gradient_descent() -> None:
    """One round to x* of F(mu, L) is best with 2 / (mu + L), whose worst case is ((L - mu) / (L + mu))^2."""
    method = DecentralisedGD(order="atc")
    found = pep.tune_network(method, ALIKE, 1, metric="distance", what="step", network=pep.Spectral(0, 0))
    assert found.method.step == pytest.approx(2 / 1.1, rel=2e-3)
    assert found.bound.upper == pytest.approx((0.9 / 1.1) ** 2, rel=1e-3)


def test_own_steps_for_unlike_devices() -> None:
    """With devices that agree on x* one averaged round of steps 2 / (L_i + mu_i) leaves the mean of their errors."""
    method = DecentralisedGD(order="atc")
    found = pep.tune_network(method, UNLIKE, 1, metric="distance", what="own", network=pep.Spectral(0, 0))
    scan = [
        pep.worst_case(DecentralisedGD((a, b), order="atc"), UNLIKE, 1, metric="distance", network=pep.Spectral(0, 0))
        for a in np.linspace(1, 6, 6)
        for b in np.linspace(0.6, 1.8, 5)
    ]
    assert found.bound.upper <= min(b.upper for b in scan) * (1 + 1e-6)
    common = pep.tune_network(method, UNLIKE, 1, metric="distance", what="step", network=pep.Spectral(0, 0))
    assert found.bound.upper < 0.9 * common.bound.upper


def test_mixing_weights_are_chosen_too() -> None:
    """EXTRA's step is limited by 1 + lo: a lazier mixing allows a longer one, and the bound is of the moved class."""
    plain = pep.tune_network(EXTRA(), ALIKE, 2, 1.0, 0.1, "distance_devices", "step", network=NETWORK)
    lazy = pep.tune_network(EXTRA(), ALIKE, 2, 1.0, 0.1, "distance_devices", "mixing", network=NETWORK)
    assert plain.theta == 1
    assert lazy.theta < 1
    assert lazy.bound.upper < 0.95 * plain.bound.upper
    moved = pep.Spectral(1 - lazy.theta * 1.6, 1 - lazy.theta * 0.4)
    again = pep.worst_case(EXTRA(lazy.method.step), ALIKE, 2, 1.0, 0.1, "distance_devices", network=moved)
    assert again.upper == pytest.approx(lazy.bound.upper, rel=1e-9)


def test_the_design_runs_on_a_network_of_the_class() -> None:
    found = pep.tune_network(NIDS(), ALIKE, 2, what="mixing", network=NETWORK, effort=0.1)
    W = Mixing(np.array([[0.7, 0.3], [0.3, 0.7]]))
    method = found.on(W)
    state = method.start(np.ones(1), ALIKE)
    assert state.mixing.matrix[0, 1] == pytest.approx(0.3 * found.theta)
    with pytest.raises(InvalidInput, match="theta"):
        W.lazier(0.0)
    with pytest.raises(InvalidInput, match="theta"):
        NETWORK.lazier(1.5)


def test_steps_by_device_are_the_named_own_steps() -> None:
    """A tuple of 1 / L_i is "own", on numbers and over a class of networks of any size."""
    network = pep.Spectral(-0.3, 0.6, any_number=True)
    own, given = (DecentralisedGD(step, order="atc") for step in ("own", tuple((1 / UNLIKE.L).tolist())))
    bounds = [pep.worst_case(m, UNLIKE, 2, 1.0, 0.2, "distance", network=network) for m in (own, given)]
    assert bounds[0].upper == bounds[1].upper
    assert bounds[0].lower == bounds[1].lower
    assert mixing_matrix("ring", 4).lazier(0.5).matrix == pytest.approx(mixing_matrix("ring", 4, "lazy").matrix)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pep.tune_network(GD(), UNLIKE, 2, network=NETWORK), "GD works without a network"),  # type: ignore[arg-type]
        (lambda: pep.tune_network(EXTRA(), UNLIKE, 2, what="own", network=NETWORK), "one step for all devices"),
        (lambda: pep.tune_network(EXTRA(), UNLIKE, 2, what="all", network=NETWORK), "unknown what"),
        (lambda: pep.tune_network(EXTRA(), UNLIKE, 0, network=NETWORK), "at least one round"),
        (lambda: pep.tune_network(EXTRA(), UNLIKE, 1, rstar=np.inf, network=NETWORK), "rstar=inf"),
        (lambda: GradientTracking((0.1, 0.2)), "one step for all devices"),
        (lambda: DecentralisedGD((0.1, -0.2)), "a step must be positive"),
        (lambda: DecentralisedGD((0.1, 0.2, 0.3)).start(np.ones(1), UNLIKE), "3 steps for 2 devices"),
    ],
)
def test_what_is_refused(call, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()


def test_the_command(tmp_path) -> None:
    out, proof = tmp_path / "design.json", tmp_path / "proof.json"
    asked = ["tune", "--L", "0.5,1.5", "--mu", "0.1", "--rounds", "1", "--rstar", "0.1", "--network"]
    asked += ["spectral:-0.5:0.5", "--method", "decentralised_gd", "--order", "atc", "--what", "own"]
    done = CliRunner().invoke(app, [*asked, "--effort", "0.2", "--out", str(out), "--certify", str(proof), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["bound"]["upper"] < min(r["upper"] for r in told["rivals"].values())
    assert json.loads(out.read_text())["step"] == told["step"]
    assert CliRunner().invoke(app, ["check", str(proof)]).exit_code == 0
    assert isinstance(CliRunner().invoke(app, [*asked, "--common"]).exception, InvalidInput)
