"""A real SuperLink and real SuperNodes on loopback, with TLS and node keys: what is refused, and what is survived.

One federation serves all tests of this file. They belong to the xdist group of tests that start many processes:
two such tests at a time would wait for each other.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from ownstep.federate import init

from ownstep.engines import run
from ownstep.engines.federation.loopback import Loopback, free_port
from ownstep.engines.federation.loopback import keys as certificates
from ownstep.history import History
from ownstep.methods import At, OwnStep
from ownstep.partition import given
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import OwnstepError

from ..conftest import make_logistic

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds its processes through /proc"),
]

SITE = '''
import json
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from ownstep.engines import federation_site
from ownstep.engines.federation.site import Site
from ownstep.problems import BinaryLogistic

class Moody(BinaryLogistic):
    """Gives nan in round 1, a wrong shape in round 2, ten gigabytes in round 3, and a forged message in round 4."""
    def begin_round(self, k):
        self.k = k
    def mix(self, x, c):
        losses, vector = super().mix(x, c)
        bad = {1: vector * np.nan, 2: np.zeros(7), 3: np.broadcast_to(0.0, (1_250_000_000,))}
        return losses, bad.get(getattr(self, "k", 0), vector)

pack = federation_site.pack_replies

def forge(replies):
    """Five megabytes that say they are to be repeated two thousand times."""
    def deflate(self):
        many = {"dtype": "float64", "shape": (1_250_000_000,), "stype": "numpy.ndarray", "arraychunk_ids": [0] * 2000}
        return add_header_to_object_body(object_body=json.dumps(many).encode(), obj=self)
    Array.deflate = deflate
    content = pack(replies)
    content["answer"] = ArrayRecord({"0": Array(np.zeros(655_000))})
    return content

def open_site(context):
    data = np.load("DATA")
    kind = Moody if "NAME" == "moody" else BinaryLogistic
    problem = kind(data["rows"], data["labels"], mu=0.05)
    federation_site.pack_replies = lambda replies: (forge if getattr(problem, "k", 0) == 4 else pack)(replies)
    return Site("NAME", problem)
'''
SHORT_LIVED = """
from sitecustomize import hasten
hasten()
from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection
fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = heartbeat.HEARTBEAT_DEFAULT_INTERVAL = 4
heartbeat.HEARTBEAT_CALL_TIMEOUT = 2
from flwr.supernode.cli import flower_supernode
flower_supernode()
"""
"""A SuperNode that the SuperLink misses after 8 seconds, where it waits a minute for others."""
QUICK = Path(__file__).parent / "quick_flower"
"""On the path of Flower's programs this makes their waits short."""
NAMES = ("ann", "moody", "victim")
ROUNDS, SWITCH = 5, 4
REFUSALS = {1: "not finite", 2: "shape (7,)", 3: "10 GB", 4: "of memory"}


@dataclass(frozen=True)
class AsItWas:
    """Who took part, round by round, as a history recorded it."""

    took_part: np.ndarray
    missing: str = "rescale"

    def present(self, k: int, devices: int) -> np.ndarray:
        return self.took_part[k] if k < len(self.took_part) else np.ones(devices, bool)


@pytest.fixture(scope="module")
def problem():
    whole = make_logistic(devices=3, samples=120)
    rows = np.vstack([whole.rows(i) for i in range(3)])
    labels = np.random.default_rng(0).choice([-1, 1], len(rows))
    return BinaryLogistic(rows, labels, given(np.repeat(np.arange(3), whole.counts), NAMES), mu=0.05), rows, labels


@pytest.fixture(scope="module")
def net(tmp_path_factory, problem):
    folder = tmp_path_factory.mktemp("federation")
    for i, name in enumerate(NAMES):
        mine = problem[0].block(i)
        np.savez(folder / f"{name}.npz", rows=problem[1][mine], labels=problem[2][mine])
        text = SITE.replace("DATA", str(folder / f"{name}.npz")).replace("NAME", name)
        (folder / f"{name}.py").write_text(text)
    init(folder / "app", sites=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(QUICK)
        federation = Loopback(folder)
    with federation:
        federation.register(*NAMES)
        start_sites(federation)  # they start while the strangers knock
        yield federation
    assert federation.left() == []


def start_sites(net):
    for name in NAMES[:2]:
        net.start_site(name, f'site-file="{net.folder / name}.py"')
    secure = ("--root-certificates", net.folder / "ca.crt", "--auth-supernode-private-key", net.keys["victim"])
    place = ("--superlink", net.address, "--host", "127.0.0.1", "--port", free_port())
    config = ("--node-config", f'site-file="{net.folder / "victim"}.py"')
    net.start("victim", sys.executable, "-c", SHORT_LIVED, *place, *secure, *config)


def test_strangers_plaintext_and_a_wrong_authority_are_refused(net):
    certificates.authority(net.folder, "other")
    stranger, _ = certificates.node_key(net.folder, "stranger")
    net.keys |= {"stranger": stranger}
    once = ("--max-retries", "0")
    ca, key = ("--root-certificates", net.folder / "ca.crt"), ("--auth-supernode-private-key", stranger)
    net.start_site("unknown-key", options=(*ca, *key, *once))
    net.start_site("no-key", options=(*ca, *once))
    net.start_site("plaintext", options=("--insecure", *once))
    net.start_site("wrong-ca", options=("--root-certificates", net.folder / "other.crt", *key, *once))
    for name, why in {
        "unknown-key": "Failed to initialize the connection",
        "no-key": "Failed to initialize the connection",
        "plaintext": "Failed to initialize the connection",
        "wrong-ca": "CERTIFICATE_VERIFY_FAILED",
    }.items():
        assert net.processes[name].wait(180) != 0, name
        assert why in net.log(name), net.log(name)
        assert "SuperNode ID" not in net.log(name)
        net.kill(name)


def test_a_run_survives_a_bad_site_a_killed_site_and_a_killed_coordinator(net, problem):
    for name in NAMES:
        net.wait_for(name, "SuperNode ID")
    settings = f'rounds={ROUNDS} switch="at:{SWITCH}" deadline=30.0 out="{net.folder / "out"}"'
    first = net.flwr("run", net.folder / "app", "loopback", "--stream", "-c", settings)

    net.wait_for("ann", "ROUND 1]", 300)
    net.kill("victim", signal.SIGKILL)
    for name in NAMES[:2]:  # the run goes on without it; who has a message by half waits a minute for the rest of it
        net.wait_for(name, "Received successfully", 300, count=6)
    net.kill("superlink", signal.SIGKILL)
    first.wait(120)
    with pytest.raises(OwnstepError):
        History.load(net.folder / "out" / "history")

    net.start_link()
    log = net.run(net.folder / "app", settings, timeout=400)
    assert f"all {ROUNDS} rounds done" in log, log + net.log("superlink")[-3000:]
    history = History.load(net.folder / "out" / "history")

    assert history.settings["sites"] == list(NAMES)
    assert history.rounds == ROUNDS
    weights = dict(zip(NAMES, problem[0].weights, strict=True))
    why = {}
    for absence in history.settings["absences"]:
        assert absence["weight"] == pytest.approx(weights[absence["site"]])
        why.setdefault(absence["site"], []).append((absence["first"], absence["why"]))
    assert set(why) == {"moody", "victim"}
    assert all(word in dict(why["moody"])[k] for k, word in REFUSALS.items())
    # whichever comes first: the deadline, or the SuperLink's word that it has no heartbeat of that site any more
    assert any("no reply within 30 s" in text or "not reached" in text for _, text in why["victim"])
    here = dict(zip(NAMES, history.took_part.T, strict=True))
    assert here["ann"].all()
    assert here["moody"].tolist() == [True] + [False] * 4
    assert not here["victim"][-2:].any()

    local = run(OwnStep(At(SWITCH)), problem[0], ROUNDS, participation=AsItWas(history.took_part))
    np.testing.assert_allclose(history.x, local.x, atol=1e-12)
    for kept in net.folder.glob("state.db*"):  # replies and the sites' states are in it
        assert kept.stat().st_mode & 0o077 == 0, kept
    assert json.loads((net.folder / "out" / "checkpoints" / "sites.json").read_text())["names"] == list(NAMES)
