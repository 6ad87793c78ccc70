"""``python -m tests.torture``: random faults from one seed, one line and one row of json for each."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ownstep
from tests.torture import cluster, local
from tests.torture.common import Trial, orphans, say


def main() -> None:
    """Run the trials, write the result after each, and exit with 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--local", type=int, default=50)
    parser.add_argument("--cluster", type=int, default=40)
    parser.add_argument("--federation", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=45.0, help="no trial is begun later than this")
    parser.add_argument("--out", type=Path, default=Path("results/torture.json"))
    parser.add_argument(
        "--join", type=Path, nargs="+", help="records of parts, of one seed: write them as one, no trial"
    )
    chosen = parser.parse_args()
    if chosen.join:
        sys.exit(0 if join(chosen.join, chosen.out) else 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the federation's processes end with this one
    began = time.monotonic()
    book = Book(chosen.out, chosen.seed, began, chosen.minutes)
    with tempfile.TemporaryDirectory(prefix="ownstep-torture-") as name:
        root = Path(name)
        book.many("local", _in_folder(root, "local", local.trial), local.FAULTS, chosen.local)
        if chosen.federation:
            _federation(root, book, chosen.federation, chosen.seed)
        book.many("cluster", _in_folder(root, "cluster", cluster.trial), cluster.FAULTS, chosen.cluster)
    sys.exit(0 if book.close() else 1)


def join(parts: list[Path], out: Path) -> bool:
    """One record of parts that had one seed and one version of the code; True if every promise was kept."""
    told = [json.loads(part.read_text()) for part in parts]
    alike = {(part["seed"], part["version"], part["commit"]) for part in told}
    if len(alike) != 1:
        raise SystemExit(f"these are not parts of one run: seed, version and commit are {sorted(alike)}")
    whole: dict[str, Any] = dict(told[0])
    whole |= {key: sum((Counter(part[key]) for part in told), Counter()) for key in ("kept", "broken")}
    whole["broken"] = {engine: whole["broken"][engine] for engine in whole["kept"]}
    whole["outcomes"] = {engine: found for part in told for engine, found in part["outcomes"].items()}
    whole["minutes"] = round(sum(part["minutes"] for part in told), 1)
    whole["parts"] = [{key: part[key] for key in ("machine", "minutes", "kept", "broken")} for part in told]
    whole["trials"] = [trial for part in told for trial in part["trials"]]
    out.write_text(json.dumps(whole, indent=1) + "\n")
    return not any(whole["broken"].values())


def _in_folder(root: Path, engine: str, trial: Callable[..., Trial]) -> Callable[[str, int], Trial]:
    def one(fault: str, seed: int) -> Trial:
        folder = root / f"{engine}-{seed}"
        folder.mkdir()
        done = trial(folder, fault, seed)
        shutil.rmtree(folder)
        return done

    return one


def _federation(root: Path, book: Book, count: int, seed: int) -> None:
    from tests.torture import federation

    folder = root / "federation"
    folder.mkdir()
    running = federation.Federation(folder, seed)
    try:
        running.measure()
        book.many("federation", lambda fault, s: federation.trial(running, fault, s), federation.FAULTS, count)
    finally:
        running.net.close()
    left = running.net.left()
    if left:
        book.add(Trial("federation", "end", seed, outcome="left", why=f"processes left: {left}"))


class Book:
    """What has happened so far, on disk after every trial."""

    def __init__(self, out: Path, seed: int, began: float, minutes: float) -> None:
        self.out, self.seed, self.began, self.ends = out, seed, began, began + 60 * minutes
        self.trials: list[Trial] = []
        self.load = os.getloadavg()[0]

    def many(self, engine: str, trial: Callable[[str, int], Trial], faults: tuple[str, ...], count: int) -> None:
        """So many trials, every fault about equally often, in random order."""
        rng = np.random.default_rng([self.seed, len(engine)])
        order = [faults[i % len(faults)] for i in range(count)]
        rng.shuffle(order)
        for n, fault in enumerate(order):
            if time.monotonic() > self.ends:
                say(f"{engine}: out of time after {n} of {count} trials")
                return
            began = time.monotonic()
            seed = int(rng.integers(1 << 30))
            try:
                done = trial(fault, seed)
            except Exception as error:  # the suite itself failed, which is no pass either
                done = Trial(engine, fault, seed, outcome="error", why=repr(error))
                traceback.print_exc()
            done.seconds = round(time.monotonic() - began, 2)
            left = orphans()
            if left:
                done.ok, done.why = False, f"{done.why} processes left: {left}"
            self.add(done)

    def add(self, done: Trial) -> None:
        """Note one, and write all down."""
        self.trials.append(done)
        words = "ok" if done.ok else f"BROKEN: {done.why}"
        what = f"{done.engine:<11}{done.fault:<18}{done.method:<10}{done.outcome:<12}"
        say(f"{len(self.trials):>4} {what}{done.seconds:7.1f} s  {words}")
        self.write()

    def write(self) -> None:
        """The whole record."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.to_dict(), indent=1) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Counts first, then every trial."""
        by = Counter((t.engine, t.ok) for t in self.trials)
        engines = sorted({t.engine for t in self.trials})
        return {
            "what": "random faults on every engine, from one seed: python -m tests.torture",
            "version": ownstep.__version__,
            "commit": _commit(),
            "seed": self.seed,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {self.load:.1f}",
            "minutes": round((time.monotonic() - self.began) / 60, 1),
            "kept": {e: by[e, True] for e in engines},
            "broken": {e: by[e, False] for e in engines},
            "outcomes": {e: dict(Counter(t.outcome for t in self.trials if t.engine == e)) for e in engines},
            "trials": [t.to_dict() for t in self.trials],
        }

    def close(self) -> bool:
        """Say how it went; True if every promise was kept."""
        told = self.to_dict()
        say(f"kept {told['kept']}, broken {told['broken']}, {told['minutes']} minutes; written to {self.out}")
        return not any(told["broken"].values())


def _commit() -> str:
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
