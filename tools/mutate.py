"""How many planted mistakes do the tests notice? ``make mutate`` (about half an hour on two cores).

Plants one small mistake at a time (``mutants.py``) in a copy of the last commit, runs the tests of that module and sees
whether one turns red. A seeded sample is drawn over the modules of ``mutation.toml``; every mutant of the modules named
under ``whole`` is tried besides, and so is every mistake written down by hand under ``mistakes``. Survivors that change
nothing are argued one by one under ``equivalent``.

    python tools/mutate.py                          the sample, to results/mutation.json and docs/mutation.svg
    python tools/mutate.py --only pep/proof/check   every mutant of some modules, to the terminal
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import queue
import random
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from mutants import Mutant, mutants

ROOT = Path(__file__).parent.parent
COMMIT = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
CONFIG = tomllib.loads((ROOT / "tools" / "mutation.toml").read_text())


class Copy:
    """The last commit in a folder of its own, in which one module at a time is changed."""

    def __init__(self, files: bytes) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(self.folder, filter="data")
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0", "PYTHONHASHSEED": "0",
        }  # fmt: skip
        self.runner: Any = subprocess.Popen(
            [sys.executable, str(ROOT / "tools" / "zygote.py")], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def tests(self, names: list[str], limit: float) -> tuple[bool, str, float]:
        """(do they pass, the first that does not, seconds)."""
        began = time.monotonic()
        print(json.dumps({"tests": names, "limit": limit}), file=self.runner.stdin, flush=True)
        answer = json.loads(self.runner.stdout.readline())
        took, lines = time.monotonic() - began, answer["out"].strip().splitlines()
        if answer["code"] is None:
            return False, f"no end within {limit:.0f} s", took
        red = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        why = red[0].split(" - ")[0] if red else lines[-1] if lines else "crashed"
        return answer["code"] == 0, why, took

    def close(self) -> None:
        """End the runner and remove the folder."""
        self.runner.stdin.close()
        self.runner.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, module: str, source: bytes) -> None:
        """Put a module's text in place, and drop what Python had compiled of it."""
        path = self.folder / "src" / "ownstep" / module
        path.write_bytes(source)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def relevant(module: str) -> list[str]:
    """The tests of a module, to be run one after the other: those of the longest prefix that the table has."""
    best = max((prefix for prefix in CONFIG["tests"] if module.startswith(prefix)), key=len)
    return list(CONFIG["tests"][best])


def source_of(module: str) -> bytes:
    return subprocess.check_output(["git", "show", f"{COMMIT}:src/ownstep/{module}"], cwd=ROOT)


def modules() -> list[str]:
    """Those of the table, under the prefixes it names."""
    listed = subprocess.check_output(
        ["git", "ls-tree", "-r", "--name-only", COMMIT, "src/ownstep"], cwd=ROOT, text=True
    ).split()
    names = [name.removeprefix("src/ownstep/") for name in listed if name.endswith(".py")]
    wanted, without = tuple(CONFIG["modules"]), tuple(CONFIG["without"])
    return [n for n in names if n.startswith(wanted) and not n.startswith(without)]


def by_hand() -> list[Mutant]:
    """The mistakes written down in the table; one whose text is no longer there is an error."""
    found = []
    for entry in CONFIG.get("mistakes", []):
        source = source_of(entry["module"])
        count = source.count(entry["was"].encode())
        if count != 1:
            sys.exit(f"a mistake of mutation.toml is found {count} times in {entry['module']}: {entry['was']!r}")
        at = source.index(entry["was"].encode())
        line = source[:at].count(b"\n") + 1
        code = source.splitlines()[line - 1].decode().strip()
        end = at + len(entry["was"].encode())
        found.append(Mutant(entry["module"], line, at, end, entry["was"], entry["now"], "by hand", code))
    return found


def equivalent(mutant: Mutant) -> str | None:
    """Why a mutant changes nothing, where that was argued."""
    for entry in CONFIG.get("equivalent", []):
        if (entry["module"], entry["was"], entry["now"]) == (mutant.module, mutant.was, mutant.now) and entry.get(
            "code", mutant.code
        ) == mutant.code:
            return str(entry["why"])
    return None


def try_all(chosen: list[Mutant], jobs: int, quiet: bool, minutes: float = 1e9) -> list[dict[str, Any]]:
    """One row per mutant: noticed or not, by which test, in how many seconds; empty for those not tried in time."""
    until = time.monotonic() + 60 * minutes
    files = subprocess.check_output(["git", "archive", COMMIT], cwd=ROOT)
    work: queue.Queue[tuple[int, Mutant]] = queue.Queue()
    rows: list[dict[str, Any]] = [{} for _ in chosen]
    for item in enumerate(chosen):
        work.put(item)
    green: dict[str, bool] = {}  # is a test green without any mistake?
    longest: dict[str, float] = {}  # seconds that tests which passed took
    lock = threading.Lock()

    def noticed(copy: Copy, mutant: Mutant, source: bytes, name: str) -> tuple[str | None, float]:
        """(the test that turns red, or None; seconds); one that is red without the mistake too does not count."""
        took, left_out = 0.0, []
        while True:
            copy.write(mutant.module, mutant.apply(source))
            limit = 4 * longest[name] + 20 if name in longest else 600
            passed, why, seconds = copy.tests([*shlex.split(name), *left_out], limit)
            copy.write(mutant.module, source)
            took += seconds
            if passed:
                with lock:
                    longest[name] = max(longest.get(name, 0.0), seconds)
                return None, took
            red = why.partition(" ")[2] if why.startswith(("FAILED", "ERROR")) else ""
            if not red:
                return why, took
            if red not in green:
                good, _, _ = copy.tests([red], 600)
                with lock:
                    green[red] = good
            if green[red]:
                return why, took
            left_out.append(f"--deselect={red}" if "::" in red else f"--ignore={red}")

    def worker() -> None:
        copy = Copy(files)
        try:
            while True:
                try:
                    at, mutant = work.get_nowait()
                except queue.Empty:
                    return
                if time.monotonic() > until:
                    return
                source, took, why = source_of(mutant.module), 0.0, None
                for name in relevant(mutant.module):
                    why, seconds = noticed(copy, mutant, source, name)
                    took += seconds
                    if why is not None:
                        break
                reason = equivalent(mutant) if why is None else None
                found = {"killed": why is not None, "by": why, "equivalent": reason, "seconds": round(took, 1)}
                rows[at] = fields_of(mutant) | found
                word = "equivalent" if reason else "SURVIVED" if why is None else f"noticed by {why}"
                if not quiet or word == "SURVIVED":
                    where = f"{mutant.module}:{mutant.line} {mutant.was!r} -> {mutant.now!r}"
                    print(f"{at:4d} {took:5.1f}s {where}: {word}", flush=True)
        finally:
            copy.close()

    threads = [threading.Thread(target=worker) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def score(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, and the share noticed of those that are not equivalent."""
    counts = Counter("killed" if r["killed"] else "equivalent" if r["equivalent"] else "survived" for r in rows)
    counted = counts["killed"] + counts["survived"]
    return {
        "mutants": len(rows), "killed": counts["killed"], "equivalent": counts["equivalent"],
        "survived": counts["survived"], "share": round(counts["killed"] / counted, 4) if counted else None,
    }  # fmt: skip


def rooms(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The score of each prefix of the table."""
    return {p: score([r for r in rows if r["module"].startswith(p)]) for p in CONFIG["modules"]}


def badge(share: float, mutants: int) -> str:
    """A small picture that says it."""
    text = f"{100 * share:.0f} % of {mutants}"
    colour = "#117733" if share >= 0.9 else "#DDAA33"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="196" height="20" role="img" aria-label="planted mistakes noticed: {text}">
<rect width="110" height="20" fill="#555"/><rect x="110" width="86" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">mistakes noticed</text><text x="116" y="14">{text}</text></g>
</svg>
"""  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", default=[], help="every mutant of modules under these paths, nothing written"
    )
    parser.add_argument("--mistakes", action="store_true", help="only those written down by hand, nothing written")
    parser.add_argument("--lines", default="", help="with --only: FIRST-LAST")
    parser.add_argument("--again", action="store_true", help="the record's survivors once more, and what it left")
    parser.add_argument("--minutes", type=float, default=28.0, help="begin no mutant after so long; --again goes on")
    parser.add_argument("--quiet", action="store_true", help="print survivors alone")
    options = parser.parse_args()
    began = time.time()
    everything = {m: mutants(m, source_of(m).decode()) for m in modules()}
    if options.mistakes:
        rows = try_all(by_hand(), options.jobs, options.quiet)
        print(score(rows))
        sys.exit(any(not r["killed"] for r in rows))
    if options.only:
        chosen = [m for name, ms in everything.items() if name.startswith(tuple(options.only)) for m in ms]
        if options.lines:
            first, last = map(int, options.lines.split("-"))
            chosen = [m for m in chosen if first <= m.line <= last]
        if options.sample < len(chosen):
            chosen = random.Random(options.seed).sample(chosen, options.sample)
        rows = try_all(chosen, options.jobs, options.quiet)
        print(score(rows))
        return
    pool = [m for ms in everything.values() for m in ms]
    if options.again:
        again(pool, options)
        return
    sample = random.Random(options.seed).sample(pool, options.sample)
    whole = [m for name in CONFIG["whole"] for m in everything[name]]
    hand = by_hand()
    rows = try_all([*hand, *sample, *whole], options.jobs, options.quiet, options.minutes)
    parts = {"hand": rows[: len(hand)], "sample": rows[len(hand) : len(hand) + len(sample)],
             "whole": rows[len(hand) + len(sample) :]}  # fmt: skip
    tried = {name: [row for row in part if row] for name, part in parts.items()}
    left = [fields_of(mutant) for mutant, row in zip(sample, parts["sample"], strict=True) if not row]
    write(
        {
            "commit": COMMIT, "seed": options.seed, "jobs": options.jobs,
            "minutes": round((time.time() - began) / 60, 1), "python": platform.python_version(),
            "machine": platform.machine(), "drawn": len(sample), "possible": len(pool),
        },
        tried,
        left,
    )  # fmt: skip


def fields_of(mutant: Mutant) -> dict[str, Any]:
    """What a record says of a mutant."""
    return {
        "module": mutant.module, "line": mutant.line, "kind": mutant.kind, "was": mutant.was, "now": mutant.now,
        "code": mutant.code,
    }  # fmt: skip


def write(about: dict[str, Any], tried: dict[str, list[dict[str, Any]]], left: list[dict[str, Any]]) -> None:
    """The record, and the badge; ``left`` are those of the sample that time did not allow."""
    found = score(tried["sample"])
    record = about | {
        "sample": found,
        "by room": {k: v for k, v in rooms(tried["sample"]).items() if v["mutants"]},
        "whole": {name: score([r for r in tried["whole"] if r["module"] == name]) for name in CONFIG["whole"]},
        "by hand": score(tried["hand"]),
        "survivors": [r | {"of": name} for name, part in tried.items() for r in part if not r["killed"]],
        "noticed": [r | {"of": name} for name, part in tried.items() for r in part if r["killed"]],
        "left": left,
    }
    (ROOT / "results" / "mutation.json").write_text(json.dumps(record, indent=1) + "\n")
    if found["mutants"] == about["drawn"]:  # no badge for a run that was cut short
        (ROOT / "docs" / "mutation.svg").write_text(badge(found["share"], found["mutants"]))
    print(json.dumps({k: v for k, v in record.items() if k not in ("survivors", "noticed", "left")}, indent=1))


def again(pool: list[Mutant], options: argparse.Namespace) -> None:
    """Try the survivors of the record once more, after tests were mended, and what it had no time for.

    A mutant whose line is no longer there gives way to another one, drawn with the next seed. The mistakes by hand and
    every mutant of the whole modules are tried afresh.
    """
    record = json.loads((ROOT / "results" / "mutation.json").read_text())
    same = {(m.module, m.code, m.was, m.now): m for m in pool}
    asked = [r for r in record.pop("survivors") if r["of"] == "sample"] + record.pop("left")
    chosen = [same[key] for r in asked if (key := (r["module"], r["code"], r["was"], r["now"])) in same]
    kept = [{k: v for k, v in r.items() if k != "of"} for r in record.pop("noticed") if r["of"] == "sample"]
    known = {(r["module"], r["code"], r["was"], r["now"]) for r in [*kept, *asked]}
    others = [m for key, m in same.items() if key not in known]
    chosen += random.Random(options.seed + 1).sample(others, len(asked) - len(chosen))
    hand, whole = by_hand(), [m for m in pool if m.module in CONFIG["whole"]]
    rows = try_all([*hand, *chosen, *whole], options.jobs, options.quiet, options.minutes)
    n, m = len(hand), len(hand) + len(chosen)
    parts = {"hand": rows[:n], "sample": rows[n:m], "whole": rows[m:]}
    tried = {name: [r for r in part if r] for name, part in parts.items()}
    left = [fields_of(mutant) for mutant, row in zip(chosen, parts["sample"], strict=True) if not row]
    tried["sample"] += kept
    keep = ("commit", "seed", "jobs", "minutes", "python", "machine", "drawn", "possible")
    write({k: record[k] for k in keep} | {"survivors tried again at": COMMIT}, tried, left)


if __name__ == "__main__":
    main()
