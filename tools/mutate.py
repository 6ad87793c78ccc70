"""How many planted mistakes do the tests notice? ``make mutate`` (goes of half an hour on two cores).

Plants one small mistake at a time (``mutants.py``) in a copy of the last commit, runs the tests of that module and sees
whether one turns red. Tried are, in this order and as ``mutation.toml`` says: a seeded sample over all modules, every
mutant of some modules (``whole``), a seeded part of those in the lines by which methods move (``updates``), and every
mistake written down by hand (``mistakes``). Survivors that change nothing are argued one by one under ``equivalent``.

The tests of a mistake are those that run its line, the module's own before others and the quick before the slow, for
at most 40 s (``reach.py``; all tests are run once for that, which takes some minutes and is kept in .mutants/). What
they miss is tried with the tests that the table names, which also see lines that run when a module is imported. Those
come first for modules that run in other processes, or as changed copies.

The record keeps what a sample's *first* pass did not notice, before any test was written for it. What is argued of
these later counts as equivalent, and what a later test notices still counts as missed: the badge shows that share.

    python tools/mutate.py                          to results/mutation.json and docs/mutation.svg
    python tools/mutate.py --again                  after tests were mended: the survivors once more
    python tools/mutate.py --argued                 nothing is run: the table's arguments, written into the record
    python tools/mutate.py --only pep/proof/check   every mutant of some modules, to the terminal

The record is written after each mutant. A run that its minutes, or Ctrl-C, cut short lists what is left of each part,
and the same command goes on there, at the commit it began with (``--afresh`` does not); the record's minutes are those
of all goes.
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from mutants import Mutant, mutants
from reach import Reach, measured

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "tools" / "mutation.toml").read_text())
RECORD = ROOT / "results" / "mutation.json"
SITE = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and not path.endswith("src")]
"""Where libraries lie that are not installed."""
REACH = ROOT / ".mutants"
"""What the tests run, a folder per commit."""
LIMITS, MOST = [8.0, 32.0], 300
"""Seconds of the tests that are tried first and of those after them, and how many tests at most."""
PARTS = ("hand", "whole", "updates", "sample")
ORDER = ("sample", "whole", "updates", "hand")
Key = tuple[str, str, str, str, int]
Row = dict[str, Any]
"""A mutant's fields and the parts it is ``of``; once it was tried ``killed``, ``by``, ``equivalent``, ``seconds``."""


class Unreadable(Exception):
    """A file of tests that pytest cannot read even without a mistake."""


class Commit:
    """The sources at one commit."""

    def __init__(self, name: str) -> None:
        self.name = git("rev-parse", name).decode().strip()

    def source(self, module: str) -> bytes:
        """The text of a module."""
        return git("show", f"{self.name}:src/ownstep/{module}")

    def modules(self) -> list[str]:
        """Those of the table, under the prefixes it names."""
        listed = git("ls-tree", "-r", "--name-only", self.name, "src/ownstep").decode().split()
        names = [name.removeprefix("src/ownstep/") for name in listed if name.endswith(".py")]
        wanted, without = tuple(CONFIG["modules"]), tuple(CONFIG["without"])
        return [n for n in names if n.startswith(wanted) and not n.startswith(without)]

    def mutants(self) -> list[Mutant]:
        """All of them."""
        return [m for name in self.modules() for m in mutants(name, self.source(name).decode())]


def git(*words: str) -> bytes:
    return subprocess.check_output(["git", *words], cwd=ROOT)


class Copy:
    """A commit in a folder of its own, in which one module at a time is changed."""

    def __init__(self, files: bytes) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(self.folder, filter="data")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.folder / "src"), *SITE]),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0", "PYTHONHASHSEED": "0",
        }  # fmt: skip
        self.runner: Any = subprocess.Popen(
            [sys.executable, str(ROOT / "tools" / "zygote.py")], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def tests(self, names: list[str], limit: float) -> tuple[bool, str, float]:
        """(do they pass, the first that does not or what happened, seconds); no test at all passes."""
        began = time.monotonic()
        print(json.dumps({"tests": names, "limit": limit}), file=self.runner.stdin, flush=True)
        answer = json.loads(self.runner.stdout.readline())
        took, lines = time.monotonic() - began, answer["out"].strip().splitlines()
        if answer["code"] is None:
            return False, f"no end within {limit:.0f} s", took
        red = [line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/"))]
        why = " ".join(first_red(red[0])) if red else lines[-1] if lines else "crashed"
        return answer["code"] in (0, 5), why, took

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


def first_red(line: str) -> tuple[str, str]:
    """("FAILED" or "ERROR", the test) of a line of pytest's summary, in which a test's name may hold a dash itself."""
    word, _, rest = line.partition(" ")
    pieces = rest.split(" - ")
    starts = (" - ".join(pieces[: n + 1]) for n in range(len(pieces)))
    return word, next((name for name in starts if name.count("[") == name.count("]")), pieces[0])


def relevant(module: str) -> list[str]:
    """The tests of a module, one after the other: its own first, those of the longest prefix, those of all modules."""
    own = CONFIG["first"].get(module)
    best = max((prefix for prefix in CONFIG["tests"] if module.startswith(prefix)), key=len)
    return [*([own] if own else []), *CONFIG["tests"][best], *CONFIG["last"]["tests"]]


def trials(mutant: Mutant, reach: Reach | None) -> Iterator[tuple[str, float | None]]:
    """(tests as words of a command line, how many seconds they take if known), in the order in which they are tried."""
    table = relevant(mutant.module)
    named = [(line, None) for line in table]
    lines = mutant.line, mutant.line + mutant.was.count("\n")
    tests = reach.tests(mutant.module, *lines) if reach else set[str]()
    seen: list[tuple[str, float | None]] = []
    if reach and tests:
        own = tuple(word for line in table for word in line.split() if word.startswith("tests/"))
        batches = reach.batches(reach.order(tests, own), LIMITS, MOST)
        seen = [(shlex.join(batch), seconds) for batch, seconds in batches]
    yield from named + seen if mutant.module.startswith(tuple(CONFIG["apart"])) else seen + named


def by_hand(source: Callable[[str], bytes]) -> list[Mutant]:
    """The mistakes written down in the table; one whose text is no longer there is an error."""
    found = []
    for entry in CONFIG.get("mistakes", []):
        text = source(entry["module"])
        count = text.count(entry["was"].encode())
        if count != 1:
            sys.exit(f"a mistake of mutation.toml is found {count} times in {entry['module']}: {entry['was']!r}")
        at = text.index(entry["was"].encode())
        line = text[:at].count(b"\n") + 1
        code = text.splitlines()[line - 1].decode().strip()
        end = at + len(entry["was"].encode())
        found.append(Mutant(entry["module"], line, at, end, entry["was"], entry["now"], "by hand", code))
    return found


def equivalents(pool: Iterable[Mutant]) -> tuple[dict[Key, str], list[str]]:
    """(why each mutant that was argued changes nothing, what the table says that fits none or several).

    Of an entry that says ``gone = true`` the code has been removed: it may fit none.
    """
    alike: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in pool:
        alike.setdefault((mutant.module, mutant.was, mutant.now), []).append(mutant)
    why, wrong = {}, []
    for entry in CONFIG.get("equivalent", []):
        fits = [
            m for m in alike.get((entry["module"], entry["was"], entry["now"]), [])
            if entry.get("code", m.code) == m.code and entry.get("nth", m.nth) == m.nth
        ]  # fmt: skip
        if len(fits) != (0 if entry.get("gone") else 1):
            wrong.append(f"fits {len(fits)} mutants of {entry['module']}: {entry['was']!r} -> {entry['now']!r}")
        why |= {m.key: str(entry["why"]) for m in fits[:1]}
    return why, wrong


def gone() -> dict[Key, str]:
    """Why mutants changed nothing of which the code has been removed since."""
    entries = [entry for entry in CONFIG.get("equivalent", []) if entry.get("gone")]
    return {(e["module"], e["code"], e["was"], e["now"], e.get("nth", 1)): str(e["why"]) for e in entries}


def updates(pool: Iterable[Mutant]) -> list[Mutant]:
    """Those in the functions by which methods move."""
    under, functions = CONFIG["updates"]["under"], CONFIG["updates"]["functions"]
    return [m for m in pool if m.module.startswith(under) and m.function in functions]


def drawn(pool: list[Mutant], count: int, seed: int) -> list[Mutant]:
    return random.Random(seed).sample(pool, min(count, len(pool)))


def try_all(
    commit: Commit,
    chosen: list[Mutant],
    why_not: dict[Key, str],
    options: argparse.Namespace,
    done: Callable[[Mutant, Row], None],
    reach: Reach | None = None,
) -> None:
    """Call ``done`` with each mutant and its outcome: noticed or not, by which test, in how many seconds."""
    until = [time.monotonic() + 60 * options.minutes]
    files = git("archive", commit.name)
    work: queue.Queue[tuple[int, Mutant]] = queue.Queue()
    for item in enumerate(chosen):
        work.put(item)
    broken: Counter[str] = Counter()  # files of tests that cannot be read even without a mistake
    green: dict[str, bool] = {}  # is a test green without any mistake?
    longest: dict[str, float] = {}  # seconds that tests which passed took
    lock = threading.Lock()

    def long(name: str, seconds: float) -> None:
        with lock:
            longest[name] = max(longest.get(name, 0.0), seconds)

    def noticed(
        copy: Copy, mutant: Mutant, source: bytes, name: str, expected: float | None
    ) -> tuple[str | None, float]:
        """(the test that turns red, or None; seconds); one that is red without the mistake too does not count."""
        began, left_out = time.monotonic(), []
        while True:
            known = longest.get(name, expected)
            limit = 600 if known is None else 4 * known + 20
            copy.write(mutant.module, mutant.apply(source))
            passed, why, seconds = copy.tests([*shlex.split(name), *left_out], limit)
            copy.write(mutant.module, source)
            if passed:
                long(name, seconds)
                return None, time.monotonic() - began
            if not why.startswith(("FAILED", "ERROR")):  # a crash or no end: does it come of the mistake?
                passed, clean, seconds = copy.tests([*shlex.split(name), *left_out], 600)
                if passed:
                    long(name, seconds)
                    if why.startswith("no end") and limit < 4 * seconds + 20:
                        continue  # it had been given too little time
                    return why, time.monotonic() - began
                why = clean
            red = why.partition(" ")[2] if why.startswith(("FAILED", "ERROR")) else why
            if red not in green:
                green[red] = copy.tests([red], 600)[0]
            if green[red]:
                return why, time.monotonic() - began
            if "::" not in red:
                raise Unreadable(red)
            option = f"--deselect={red}"
            if option in left_out:
                print(f"cannot tell for {name}: {why}", file=sys.stderr, flush=True)
                return None, time.monotonic() - began
            left_out.append(option)

    def worker() -> None:
        copy = Copy(files)
        try:
            while time.monotonic() < until[0]:
                try:
                    at, mutant = work.get_nowait()
                except queue.Empty:
                    return
                source, took, why, unread = commit.source(mutant.module), 0.0, None, False
                for name, expected in trials(mutant, reach):
                    try:
                        why, seconds = noticed(copy, mutant, source, name, expected)
                    except Unreadable as file:
                        broken[str(file)] += 1
                        unread = True
                        continue
                    took += seconds
                    if why is not None:
                        break
                if why is None and unread:  # with tests left out, most mistakes would pass for unnoticed
                    continue
                reason = why_not.get(mutant.key) if why is None else None
                with lock:
                    done(
                        mutant, {"killed": why is not None, "by": why, "equivalent": reason, "seconds": round(took, 1)}
                    )
                word = "equivalent" if reason else "SURVIVED" if why is None else f"noticed by {why}"
                if not options.quiet or word == "SURVIVED":
                    where = f"{mutant.module}:{mutant.line} {mutant.was!r} -> {mutant.now!r}"
                    print(f"{at:4d} {took:5.1f}s {where}: {word}", flush=True)
        finally:
            copy.close()

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        print("ending when the tests that run have ended", file=sys.stderr, flush=True)
        until[0] = 0.0
        for thread in threads:
            thread.join()
    for name, count in broken.items():
        print(f"{name} cannot be read even without a mistake ({count} times): is a library missing?", file=sys.stderr)


def score(rows: list[Row]) -> dict[str, Any]:
    """Counts, and the share noticed of those tried that are not equivalent."""
    tried = [r for r in rows if "killed" in r]
    counts = Counter("killed" if r["killed"] else "equivalent" if r["equivalent"] else "survived" for r in tried)
    counted = counts["killed"] + counts["survived"]
    return {
        "mutants": len(tried), "killed": counts["killed"], "equivalent": counts["equivalent"],
        "survived": counts["survived"], "share": round(counts["killed"] / counted, 4) if counted else None,
        "left": len(rows) - len(tried),
    }  # fmt: skip


def badge(share: float, mutants: int) -> str:
    """A small picture that says it."""
    text = f"{100 * share:.0f} % of {mutants}"
    colour, ink = ("#117733", "#fff") if share >= 0.9 else ("#DDAA33", "#222")
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="196" height="20" role="img" aria-label="mutation score: {text}"><title>planted mistakes that a test noticed: {text}</title>
<rect width="110" height="20" rx="3" fill="#444"/><rect x="104" width="92" height="20" rx="3" fill="{colour}"/><rect x="104" width="6" height="20" fill="{colour}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="52" y="14">mutation score</text><text x="150" y="14" fill="{ink}">{text}</text></g>
</svg>
"""  # noqa: E501


def first_pass(rows: list[Row]) -> dict[str, Any]:
    """What a sample's first pass noticed, and every mutant that it missed."""
    names = [field.name for field in fields(Mutant)]
    missed = [{k: row[k] for k in names} | {"equivalent": row["equivalent"]} for row in rows if not row["killed"]]
    return argued({"mutants": len(rows), "killed": len(rows) - len(missed), "missed": missed}, {})


def argued(first: dict[str, Any], why: dict[Key, str]) -> dict[str, Any]:
    """A first pass with the arguments there are by now; that a later test notices the others does not matter."""
    missed = [row | {"equivalent": why.get(mutant_of(row).key, row["equivalent"])} for row in first["missed"]]
    equivalent = sum(bool(row["equivalent"]) for row in missed)
    counted = first["mutants"] - equivalent
    share = round(first["killed"] / counted, 4) if counted else None
    return first | {"equivalent": equivalent, "survived": counted - first["killed"], "share": share, "missed": missed}


class Record:
    """What results/mutation.json says: a row for every mutant of the four parts, tried or left."""

    def __init__(self, about: dict[str, Any], rows: dict[Key, Row]) -> None:
        self.about, self.rows = about, rows

    @classmethod
    def read(cls) -> Record:
        """The one that is kept."""
        kept = json.loads(RECORD.read_text())
        rows = [*kept.pop("survivors"), *kept.pop("noticed"), *kept.pop("left")]
        for name in (*PARTS, "by hand", "by room"):
            kept.pop(name, None)
        return cls(kept, {mutant_of(row).key: row for row in rows})

    def of(self, part: str) -> list[Row]:
        """The rows of a part."""
        return [row for row in self.rows.values() if part in row["of"]]

    def written(self) -> dict[str, Any]:
        """As the file has it."""
        rows, sample = sorted(self.rows.values(), key=lambda r: (r["module"], r["start"], r["now"])), self.of("sample")
        by_room = {p: score([r for r in sample if r["module"].startswith(p)]) for p in CONFIG["modules"]}
        return self.about | {
            "sample": score(sample),
            "by room": {k: v for k, v in by_room.items() if v["mutants"] + v["left"]},
            "whole": {name: score([r for r in self.of("whole") if r["module"] == name]) for name in CONFIG["whole"]},
            "updates": score(self.of("updates")),
            "by hand": score(self.of("hand")),
            "survivors": [r for r in rows if not r.get("killed", True)],
            "left": [r for r in rows if "killed" not in r],
            "noticed": [r for r in rows if r.get("killed", False)],
        }

    def write(self) -> None:
        """Keep it; a half-written file never takes the place of a whole one."""
        part = RECORD.with_suffix(".json.part")
        part.write_text(json.dumps(self.written(), indent=1) + "\n")
        part.replace(RECORD)


def mutant_of(row: Row) -> Mutant:
    return Mutant(**{field.name: row[field.name] for field in fields(Mutant)})


def begun(commit: Commit, options: argparse.Namespace) -> Record:
    """A record of which everything is left."""
    pool = commit.mutants()
    parts = {
        "hand": by_hand(commit.source),
        "whole": [m for m in pool if m.module in CONFIG["whole"]],
        "updates": drawn(updates(pool), options.updates, options.seed),
        "sample": drawn(pool, options.sample, options.seed),
    }
    rows: dict[Key, Row] = {}
    for part, chosen in parts.items():
        for mutant in chosen:
            rows.setdefault(mutant.key, asdict(mutant) | {"of": []})["of"].append(part)
    about = {
        "commit": commit.name, "seed": options.seed, "jobs": options.jobs, "goes": 0, "minutes": 0.0,
        "python": platform.python_version(), "machine": platform.machine(), "possible": len(pool),
        "updates possible": len(updates(pool)),
    }  # fmt: skip
    return Record(about, rows)


def carried(old: Record, commit: Commit, options: argparse.Namespace) -> Record:
    """The record as it is to be completed at a later commit, after tests were mended.

    What was noticed is kept, and so is what is argued to change nothing. The other survivors are left once more, with
    new mistakes by hand and new mutants of whole modules. A mutant of the drawn parts whose text is no longer there
    gives way to another one, drawn with the next seed.
    """
    new = begun(commit, options)
    pool = {m.key: m for m in commit.mutants()}
    why, _ = equivalents(pool.values())
    rows: dict[Key, Row] = {}

    def take(mutant: Mutant, part: str) -> None:
        row = rows.setdefault(mutant.key, asdict(mutant) | {"of": []})
        row["of"].append(part)
        known = old.rows.get(mutant.key, {})
        if known.get("killed"):
            row |= {k: known[k] for k in ("killed", "by", "equivalent", "seconds")}
        elif "killed" in known and mutant.key in why:
            row |= {"killed": False, "by": None, "equivalent": why[mutant.key], "seconds": known["seconds"]}

    for part in PARTS:
        if part in ("hand", "whole"):
            chosen = [mutant_of(row) for row in new.of(part)]
        else:
            kept = [pool[key] for key, row in old.rows.items() if part in row["of"] and key in pool]
            candidates = updates(pool.values()) if part == "updates" else list(pool.values())
            others = [m for m in candidates if m.key not in old.rows]
            chosen = [*kept, *drawn(others, len(old.of(part)) - len(kept), options.seed + 1)]
        for mutant in chosen:
            take(mutant, part)
    again = [*old.about.get("tried again at", []), commit.name]
    return Record(old.about | {"possible": len(pool), "tried again at": list(dict.fromkeys(again))}, rows)


def complete(record: Record, commit: Commit, options: argparse.Namespace) -> None:
    """Try what is left, the sample first, and keep the record after each."""
    why, wrong = equivalents(commit.mutants())
    for line in wrong:
        print(f"an equivalent of mutation.toml {line}", file=sys.stderr)
    left = [row for row in record.rows.values() if "killed" not in row]
    random.Random(record.about["seed"]).shuffle(left)  # so that what was tried of a sample, when time ends, is one too
    left.sort(key=lambda row: min(ORDER.index(part) for part in row["of"]))
    before, began = record.about["minutes"], time.time()
    record.about["goes"] += 1

    def done(mutant: Mutant, outcome: Row) -> None:
        record.rows[mutant.key] |= outcome
        record.about["minutes"] = round(before + (time.time() - began) / 60, 1)
        record.write()

    record.write()
    reach = measured(git("archive", commit.name), REACH / commit.name, options.jobs)
    try_all(commit, [mutant_of(row) for row in left], why, options, done, reach)
    record.about["minutes"] = round(before + (time.time() - began) / 60, 1)
    if all("killed" in row for row in record.of("sample")) and "tried again at" not in record.about:
        record.about["first pass"] = first_pass(record.of("sample"))
    conclude(record, commit)
    shown = record.written()
    print(json.dumps({k: v for k, v in shown.items() if k not in ("survivors", "noticed", "left")}, indent=1))
    for row in shown["survivors"]:
        if not row["equivalent"]:
            print(f"survived: {row['module']}:{row['line']} {row['was']!r} -> {row['now']!r}")
    if shown["left"]:
        counts = Counter(part for row in shown["left"] for part in row["of"])
        print("left, the same command goes on: " + ", ".join(f"{counts[p]} of {p}" for p in PARTS if counts[p]))


def conclude(record: Record, commit: Commit) -> None:
    """Keep a record with the arguments there are by now, and draw the badge."""
    why = equivalents(commit.mutants())[0] | gone()
    if "first pass" in record.about:
        fresh = record.about["first pass"] = argued(record.about["first pass"], why)
        (ROOT / "docs" / "mutation.svg").write_text(badge(fresh["share"], fresh["mutants"]))
    for row in record.rows.values():
        if not row.get("killed", True):
            row["equivalent"] = why.get(mutant_of(row).key, row["equivalent"])
    record.write()


def to_the_terminal(commit: Commit, chosen: list[Mutant], options: argparse.Namespace) -> list[Row]:
    """Try some mutants and write nothing."""
    rows: list[Row] = []
    why, _ = equivalents(commit.mutants())
    kept = REACH / commit.name
    reach = Reach(kept) if (kept / "whole").exists() else None
    try_all(commit, chosen, why, options, lambda mutant, outcome: rows.append(outcome), reach)
    print(score(rows) | {"left": len(chosen) - len(rows)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to draw")
    parser.add_argument("--updates", type=int, default=200, help="how many to draw in the lines by which methods move")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="begin no mutant after so long (28 where a record is written)")
    parser.add_argument("--again", action="store_true", help="the record's survivors and what it left, at this commit")
    parser.add_argument("--argued", action="store_true", help="run nothing: the arguments, into the record")
    parser.add_argument("--afresh", action="store_true", help="begin although the last run is not complete")
    parser.add_argument("--only", nargs="+", default=[], help="mutants of modules under these paths, nothing written")
    parser.add_argument("--lines", default="", help="with --only: FIRST-LAST")
    parser.add_argument("--moves", action="store_true", help="with --only: in the lines by which methods move")
    parser.add_argument("--mistakes", action="store_true", help="only those written down by hand, nothing written")
    parser.add_argument("--quiet", action="store_true", help="print survivors alone")
    options = parser.parse_args()
    if options.minutes is None:
        options.minutes = 1e9 if options.only or options.mistakes else 28.0
    commit = Commit("HEAD")
    if options.mistakes:
        rows = to_the_terminal(commit, by_hand(commit.source), options)
        sys.exit(any(not r["killed"] for r in rows))
    if options.only:
        chosen = [m for m in commit.mutants() if m.module.startswith(tuple(options.only))]
        chosen = updates(chosen) if options.moves else chosen
        if options.lines:
            first, last = map(int, options.lines.split("-"))
            chosen = [m for m in chosen if first <= m.line <= last]
        chosen = chosen if len(chosen) <= options.sample else drawn(chosen, options.sample, options.seed)
        to_the_terminal(commit, chosen, options)
        return
    old = Record.read() if RECORD.exists() and not options.afresh else None
    if options.argued:
        conclude(Record.read(), commit)
    elif options.again:
        if old is None:
            parser.error(f"--again goes on with {RECORD}, which is not there")
        complete(carried(old, commit, options), commit, options)
    elif old is not None and any("killed" not in row for row in old.rows.values()):
        commit = Commit(old.about.get("tried again at", [old.about["commit"]])[-1])
        print(f"going on at {commit.name[:7]} (--again for the last commit, --afresh to begin)")
        complete(old, commit, options)
    else:
        complete(begun(commit, options), commit, options)


if __name__ == "__main__":
    main()
