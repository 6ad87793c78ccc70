"""Faults on a real federation of this machine: a SuperLink and three SuperNodes, with TLS and node keys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.engines import run
from ownstep.engines.federation.app import init
from ownstep.engines.federation.loopback import Loopback
from ownstep.engines.federation.loopback import keys as certificates
from ownstep.history import History
from ownstep.methods import At, OwnStep
from ownstep.partition import given
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import OwnstepError
from tests.torture.common import Broken, Trial, check_folder, flip, say

NAMES = ("ann", "bob", "cid")
ROUNDS, SWITCH = 3, 2
DEADLINE, LONGEST = 20.0, 90.0
"""Seconds of a round's deadline, at least and at most: four times what a round takes on this machine, as it is now."""
QUICK = str(Path(__file__).parents[1] / "engines" / "quick_flower")
"""On the path of Flower's programs this makes their waits short."""
FAULTS = (
    "nan", "inf", "1e200", "huge", "wrong shape", "late", "kill site", "freeze site", "kill SuperLink",
    "kill coordinator", "loss of 1e200", "loud words", "flipped bit", "other data", "stranger", "second copy",
    "full disk",
)  # fmt: skip
INSIDE = {"nan", "inf", "1e200", "huge", "wrong shape", "late", "loss of 1e200", "loud words"}
"""Faults that the site's own problem makes, told by a file; the others come from outside."""

SITE = """
import json, pathlib, time
import numpy as np
from ownstep.engines.federation import site as room
from ownstep.problems import BinaryLogistic

HERE = pathlib.Path("FOLDER")

def open_site(context):
    data = np.load(HERE / "NAME.npz")
    fault = json.loads((HERE / "fault.json").read_text())
    kind = fault["kind"] if fault["site"] == "NAME" else ""

    class Faulty(BinaryLogistic):
        k = -1
        def begin_round(self, k):
            self.k = k
        def mix(self, x, c):
            losses, vector = super().mix(x, c)
            if self.k != fault["round"]:
                return losses, vector
            if kind == "late":
                time.sleep(fault["seconds"])
            if kind == "loud words":
                raise RuntimeError("\\\\x1b[2J" + "nonsense\\\\n" * 100_000)
            if kind == "loss of 1e200":
                return losses + 1e200, vector
            bad = {"huge": lambda: np.zeros(400_000_000), "wrong shape": lambda: np.zeros(7)}
            factor = {"nan": np.nan, "inf": np.inf, "1e200": 1e200}
            if kind in factor:
                room.check_outgoing = lambda *_: None  # a site that sends whatever it has
                return losses, vector * factor[kind]
            return losses, bad[kind]() if kind in bad else vector

    return room.Site("NAME", Faulty(data["rows"], data["labels"], mu=0.05))
"""


@dataclass(frozen=True)
class AsItWas:
    """Who took part, round by round, as a history recorded it."""

    took_part: Any
    missing: str = "rescale"

    def present(self, k: int, devices: int) -> Any:
        return self.took_part[k] if k < len(self.took_part) else np.ones(devices, bool)


class Federation:
    """One federation for all trials."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, rng = folder, np.random.default_rng(seed)
        counts = np.array([30, 45, 60])
        rows = rng.standard_normal((counts.sum(), 4)) * np.repeat([0.5, 1.0, 2.0], counts)[:, None]
        labels = np.where(rows @ rng.standard_normal(4) + rng.standard_normal(len(rows)) > 0, 1, -1)
        owner = np.repeat(np.arange(3), counts)
        self.problem = BinaryLogistic(rows, labels, given(owner, NAMES), mu=0.05)
        for i, name in enumerate(NAMES):
            np.savez(folder / f"{name}.npz", rows=rows[owner == i], labels=labels[owner == i])
            (folder / f"{name}.py").write_text(SITE.replace("FOLDER", str(folder)).replace("NAME", name))
        self.fault()
        init(folder / "app", sites=3)
        self.deadline = LONGEST
        sys.path.insert(0, QUICK)
        self.net = Loopback(folder)
        sys.path.remove(QUICK)
        self.net.start_link()
        self.net.register(*NAMES)
        for name in NAMES:
            self.start(name)
        for name in NAMES:
            self.net.wait_for(name, "SuperNode ID", 120)

    def measure(self) -> None:
        """A run without any fault, by which deadlines are chosen: on a busy machine a round may take half a minute."""
        log = self.finish(self.folder / "healthy")
        if f"all {ROUNDS} rounds done" not in log:
            raise Broken(f"a run without any fault did not end: {log[-500:]}")
        slowest = float(History.load(self.folder / "healthy" / "history").columns["seconds"].max())
        self.deadline = round(min(LONGEST, max(DEADLINE, 4 * slowest)), 1)
        say(f"a round takes up to {slowest:.1f} s here: deadlines of {self.deadline} s")

    @property
    def patience(self) -> float:
        """Seconds a run may take."""
        return 120 + (ROUNDS + 1) * self.deadline

    def fault(self, site: str = "", kind: str = "", k: int = -1, seconds: float = 0.0) -> None:
        """What the sites' problems are to do from now on."""
        text = json.dumps({"site": site, "kind": kind, "round": k, "seconds": seconds})
        (self.folder / "fault.json").write_text(text)

    def start(self, name: str) -> None:
        self.net.start_site(name, f'site-file="{self.folder / name}.py"')

    def settings(self, out: Path) -> str:
        return f'rounds={ROUNDS} switch="at:{SWITCH}" deadline={self.deadline} joining=120.0 out="{out}"'

    def begin(self, out: Path) -> Any:
        return self.net.flwr("run", self.folder / "app", "loopback", "--stream", "-c", self.settings(out))

    def finish(self, out: Path) -> str:
        return self.net.run(self.folder / "app", self.settings(out), timeout=self.patience + 100)


def trial(federation: Federation, fault: str, seed: int) -> Trial:
    """One fault in one run; then the same run again, without it, must end."""
    rng = np.random.default_rng(seed)
    done, net = Trial("federation", fault, seed, "own_step"), federation.net
    out, site, k = federation.folder / f"out-{seed}", str(rng.choice(NAMES)), int(rng.integers(ROUNDS))
    witness = next(name for name in NAMES if name != site)
    before = net.log(witness).count(f"ROUND {k}]")
    try:
        if fault == "full disk":
            if not _small_disk(out, int(rng.integers(1, 6))):
                done.outcome, done.ok = "not tried", True  # needs the right to mount a file system
                return done
            log = federation.finish(out)
            subprocess.run(["mount", "-o", "remount,size=10m", str(out)], check=True)  # somebody has made room
        elif fault in INSIDE:
            federation.fault(site, fault, k, federation.deadline + 5)
            log = federation.finish(out)
        else:
            process = federation.begin(out)
            net.wait_for(witness, f"ROUND {k}]", 200, before + 1)
            time.sleep(float(rng.uniform(0, 1.5)))
            log = _disturb(federation, fault, site, process, out, rng)
        if "Traceback" in log and "ownstep" not in log.rsplit("Traceback", 1)[1]:
            raise Broken(f"raw error: {log[-500:]}")
        if len(max(log.splitlines(), key=len, default="")) > 5000:
            raise Broken("words of a site went into the log unbounded")
        federation.fault()
        done.outcome = "ended" if f"all {ROUNDS} rounds done" in log else "named error"
        if not (out / "history.npz").exists():
            again = federation.finish(out)
            if fault == "other data":
                if f"site '{site}' is not what it was when this federation began" not in again:
                    raise Broken(f"other data on a site was not named: {again[-500:]}")
                os.replace(federation.folder / f"{site}.kept", federation.folder / f"{site}.npz")
                again = federation.finish(out)
            gave_up = "is not a readable checkpoint" in again and "going on from" not in again
            if fault == "flipped bit" and gave_up:
                _only_one(out / "checkpoints")  # and it is named: a person decides to begin anew
                again = federation.finish(out)
            if f"all {ROUNDS} rounds done" not in again:
                raise Broken(f"the resumed run did not end: {again[-500:]}")
        history = History.load(out / "history")
        _check(federation, history, fault, site)
        check_folder(out, {"history.npz", "history.json", "checkpoints"})
        check_folder(out / "checkpoints", {"sites.json", "own-step.ckpt.npz", "own-step.ckpt.1.npz"})
        done.ok = True
    except (Broken, OwnstepError) as broken:
        done.why = str(broken)[-800:]
    finally:
        federation.fault()
        kept = federation.folder / f"{site}.kept"
        if kept.exists():
            os.replace(kept, federation.folder / f"{site}.npz")
        if fault == "full disk" and os.path.ismount(out):
            subprocess.run(["umount", str(out)], check=True)
    return done


def _disturb(federation: Federation, fault: str, site: str, process: Any, out: Path, rng: np.random.Generator) -> str:
    """A fault from outside; returns the log of the run it hit."""
    net = federation.net
    if fault == "kill site":
        net.kill(site)
        process.wait(federation.patience)
        federation.start(site)  # refused for a minute, and let in then
        net.wait_for(site, "SuperNode ID", 200)
    elif fault == "freeze site":
        os.killpg(net.processes[site].pid, signal.SIGSTOP)
        process.wait(federation.patience)
        os.killpg(net.processes[site].pid, signal.SIGCONT)
        time.sleep(5)
    elif fault == "kill SuperLink":
        net.kill("superlink")
        process.wait(60)
        net.start_link()
    elif fault == "kill coordinator":
        for pid in net.left():
            if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        _wait_or_stop(process)
    elif fault == "other data":
        net.kill("superlink")
        process.wait(60)
        mine = federation.folder / f"{site}.npz"
        data = dict(np.load(mine))
        os.replace(mine, mine.with_suffix(".kept"))
        np.savez(mine, rows=data["rows"][1:], labels=data["labels"][1:])  # one row less
        net.start_link()
    elif fault == "stranger":
        stranger, _ = certificates.node_key(federation.folder, "stranger")
        ca = ("--root-certificates", federation.folder / "ca.crt")
        net.start_site("stranger", options=(*ca, "--auth-supernode-private-key", stranger, "--max-retries", "0"))
        process.wait(federation.patience)
        net.processes["stranger"].wait(60)
        if "SuperNode ID" in net.log("stranger"):
            raise Broken("a stranger was let in")
        net.kill("stranger")
    elif fault == "second copy":
        net.keys["copy"] = net.keys[site]
        net.start_site("copy", f'site-file="{federation.folder / site}.py"')
        process.wait(federation.patience)
        if "SuperNode ID" in net.log("copy"):
            raise Broken("two SuperNodes of one key were let in at once")
        net.kill("copy")
    elif fault == "flipped bit":
        net.kill("superlink")
        process.wait(60)
        for file in (out / "checkpoints").glob("*.ckpt.npz"):
            flip(file, rng)
        net.start_link()
    return str(net.log(process))


def _small_disk(out: Path, pages: int) -> bool:
    """A disk of a few pages in the place of the run's folder; False where nobody may mount one."""
    out.mkdir()
    size = f"size={4 * pages}k"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(out)], capture_output=True)
    if made.returncode:
        out.rmdir()
    return made.returncode == 0


def _only_one(folder: Path) -> None:
    """Remove the damaged checkpoint; that nobody went on from the one before is right only where there is none."""
    kept = sorted(folder.glob("*.npz"))
    if [file.name for file in kept] != ["own-step.ckpt.npz"]:
        raise Broken(f"a damaged checkpoint ended the run although {[file.name for file in kept]} were there")
    kept[0].unlink()


def _wait_or_stop(process: Any) -> None:
    try:
        process.wait(90)
    except Exception:
        process.kill()
        process.wait(30)


def _check(federation: Federation, history: History, fault: str, site: str) -> None:
    """The iterates are those of the local engine with the same sites away, and only the one at fault was away."""
    if history.rounds != ROUNDS:
        raise Broken(f"{history.rounds} rounds of {ROUNDS}: {history.stopped}")
    local = run(OwnStep(At(SWITCH)), federation.problem, ROUNDS, participation=AsItWas(history.took_part))
    if not np.allclose(history.x, local.x, rtol=1e-9, atol=1e-9):
        raise Broken("x is not that of the local engine")
    away = {a["site"] for a in history.settings["absences"]}
    if fault in INSIDE and away - {site}:
        raise Broken(f"{away} were away, {site} was at fault: {history.settings['absences']}")
    if fault in INSIDE - {"late"} and not away:
        raise Broken("the fault had no effect")
    for absence in history.settings["absences"]:
        if len(absence["why"]) > 400 or not absence["why"].isprintable():
            raise Broken(f"words of a site were kept as they came: {absence['why'][:80]!r}")
    if not history.settings["absences"] and fault in INSIDE:
        say(f"note: {fault} left no absence")
