"""Which tests run which lines: the tests that ``tools/mutate.py`` tries a mistake with.

As a pytest plugin (``-p reach``) it notes for every line of the package the tests that run it, with coverage.py, and
how long each test takes. What a fixture of several tests runs counts for each of them. Left out are the tests that
start other processes, whose lines cannot be seen from here, and those of the whole repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData

FOLDER = "OWNSTEP_REACH"
"""The environment variable that says where each worker leaves what it saw."""
REPOSITORY = ("test_the_types_are_sound", "test_the_wheel_installs_and_its_demo_runs", "test_the_site_builds_")


class Notes:
    """The plugin itself, in one worker."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.coverage = Coverage(
            data_file=folder / f"lines.{worker}", source=[str(Path.cwd() / "src" / "ownstep")], config_file=False
        )
        self.coverage.start()
        self.file, self.now = folder / f"tests.{worker}.json", ""
        self.seconds: dict[str, float] = {}
        self.uses: dict[str, list[str]] = {}

    def switch(self, context: str) -> str:
        """Lines belong to this from now on; what they belonged to before."""
        before, self.now = self.now, context
        self.coverage.switch_context(context)
        return before

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        def alone(item: Any) -> bool:
            group = item.get_closest_marker("xdist_group")
            return (group is None or "processes" not in group.args) and not item.name.startswith(REPOSITORY)

        items[:] = [item for item in items if alone(item)]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        name = re.sub(r"@[\w-]+$", "", item.nodeid)
        shared = (d[-1] for d in item._fixtureinfo.name2fixturedefs.values() if d[-1].scope != "function")
        self.uses[name], began = [_name(definition) for definition in shared], time.monotonic()
        self.switch(name)
        yield
        self.switch("")
        self.seconds[name] = round(time.monotonic() - began, 4)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self.switch(self.now if fixturedef.scope == "function" else _name(fixturedef))
        yield
        self.switch(before)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        self.file.write_text(json.dumps({"seconds": self.seconds, "uses": self.uses}))


def _name(fixture: Any) -> str:
    return f"fixture {fixture.argname} of {fixture.baseid}"


def pytest_configure(config: Any) -> None:
    """Note what each worker runs; the process that only hands out tests runs nothing."""
    if FOLDER in os.environ and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        worker = getattr(config, "workerinput", {}).get("workerid", "alone")
        config.pluginmanager.register(Notes(Path(os.environ[FOLDER]), worker), "reach-notes")


class Reach:
    """What the plugin noted at one commit."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.users: dict[str, set[str]] = defaultdict(set)
        self.lines: dict[str, dict[int, set[str]]] = {}
        for file in folder.glob("tests.*.json"):
            noted = json.loads(file.read_text())
            self.seconds |= noted["seconds"]
            for test, fixtures in noted["uses"].items():
                for fixture in fixtures:
                    self.users[fixture].add(test)
        for file in folder.glob("lines.*"):
            data = CoverageData(str(file))
            data.read()
            for path in data.measured_files():
                known = self.lines.setdefault(path.rpartition("/src/ownstep/")[2], defaultdict(set))
                for line, contexts in data.contexts_by_lineno(path).items():
                    known[line].update(contexts)

    def tests(self, module: str, first: int, last: int) -> set[str]:
        """The tests that run one of these lines; none where they run only when the module is imported."""
        known = self.lines.get(module, {})
        seen = [line for line in range(first, last + 1) if line in known]
        if not seen:  # a statement of several lines is noted at its first
            seen = [line for line in range(first - 1, max(first - 8, 0), -1) if line in known][:1]
        contexts = {context for line in seen for context in known[line]}
        return {test for c in contexts for test in self.users.get(c, {c} if c in self.seconds else ())}

    def order(self, tests: set[str], own: tuple[str, ...]) -> list[str]:
        """One case of every test first, the module's ``own`` files before others, quick tests before slow ones."""
        cases = defaultdict(list)
        for test in sorted(tests, key=lambda t: (self.seconds[t], t)):
            cases[test.partition("[")[0]].append(test)
        found = [
            (nth, not test.startswith(own), self.seconds[test], test)
            for c in cases.values()
            for nth, test in enumerate(c)
        ]
        return [test for *_, test in sorted(found)]

    def batches(self, tests: list[str], limits: list[float], most: int) -> Iterator[tuple[list[str], float]]:
        """(tests, their seconds together) up to each limit in turn, so that a batch pays for few imports."""
        spent, batch, limits = 0.0, list[str](), list(limits)
        for test in tests[:most]:
            if batch and spent + self.seconds[test] > limits[0]:
                yield batch, spent
                spent, batch, limits = 0.0, [], limits[1:]
                if not limits:
                    return
            spent, batch = spent + self.seconds[test], [*batch, test]
        if batch:
            yield batch, spent


def measured(files: bytes, folder: Path, jobs: int) -> Reach:
    """Run the tests of a commit once, in a copy of it, unless ``folder`` has what they run already."""
    if not (folder / "whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="reach-") as copy:
            with tarfile.open(fileobj=BytesIO(files)) as archive:
                archive.extractall(copy, filter="data")
            path = os.pathsep.join([f"{copy}/src", str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
            environment = os.environ | {
                FOLDER: str(folder),
                "PYTHONPATH": path,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "reach",
                "-n",
                str(jobs),
                "--dist",
                "loadgroup",
                "--hypothesis-seed=0",
            ]
            subprocess.run(command, cwd=copy, env=environment, check=False, stdout=sys.stderr)
        (folder / "whole").touch()
    return Reach(folder)
