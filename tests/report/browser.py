"""Real browsers that can be asked about a page: Debian's Chromium, and the Chromium inside the package kaleido.

kaleido 0.2.1 needs nothing but pip. It has no remote control, but it loads a script we name and calls a function with
the json we send; so both browsers run ``probe.js``, which opens the page in a frame.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

PROBE = Path(__file__).with_name("probe.js")
DEADLINE = 60.0
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en-US")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """A Chromium or Chrome of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def kaleido() -> Path | None:
    """The program inside the package kaleido, if it is one of the versions that has it."""
    spec = importlib.util.find_spec("kaleido")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "executable" / "bin" / "kaleido"
        if program.exists():
            return program
    return None


class Chromium:
    """Starts anew for every question, and is asked through the document it prints."""

    def __init__(self, folder: Path) -> None:
        self.program, self.folder = chromium(), folder

    def ask(self, spec: dict[str, Any]) -> dict[str, Any]:
        page = self.folder / "host.html"
        data = json.dumps(spec).replace("<", "\\u003c")
        page.write_text(
            f"<!doctype html><meta charset=utf-8><body><script>{PROBE.read_text()}</script><script>"
            f"probe({data}).then((a) => {{ document.documentElement.innerHTML = '<pre id=answer></pre>';"
            "document.getElementById('answer').textContent = JSON.stringify(a); });</script>"
        )
        found = re.search(r'<pre id="answer">(.*?)</pre>', self.dump(page), re.DOTALL)
        assert found, "the page gave no answer"
        return json.loads(html.unescape(found[1]))

    def dump(self, page: Path, *flags: str) -> str:
        """The document of a page once its time is over."""
        command = [self.program, *FLAGS, f"--user-data-dir={self.folder / 'profile'}", "--virtual-time-budget=10000"]
        ended = subprocess.run(
            [*command, *flags, "--dump-dom", page.as_uri()], capture_output=True, timeout=DEADLINE, check=True
        )
        return ended.stdout.decode()

    def print(self, page: Path) -> bytes:
        """The page as it comes out of a printer, on A4."""
        sheet = self.folder / "sheet.pdf"
        command = [self.program, *FLAGS, f"--user-data-dir={self.folder / 'profile'}", "--no-pdf-header-footer"]
        subprocess.run(
            [*command, f"--print-to-pdf={sheet}", page.as_uri()], capture_output=True, timeout=DEADLINE, check=True
        )
        return sheet.read_bytes()


class Kaleido:
    """Starts anew for every question too: it answers only the first."""

    def __init__(self, folder: Path) -> None:
        found = kaleido()
        assert found is not None
        self.program, self.script = found, folder / "probe.js"
        self.script.write_text(
            PROBE.read_text() + "\nwindow.Plotly = { version: '2' };"
            "const reply = (a) => ({ code: 0, message: null, format: 'svg', result: JSON.stringify(a) });"
            "const scopes = { plotly: (spec) => probe(spec.data).then(reply) };"
            "Object.defineProperty(window, 'kaleido_scopes', { set() {}, get: () => scopes });"
        )

    def ask(self, spec: dict[str, Any]) -> dict[str, Any]:
        home = self.program.parents[1]
        places: dict[str, Any] = {
            "LD_LIBRARY_PATH": home / "lib",
            "FONTCONFIG_PATH": home / "etc/fonts",
            "XDG_DATA_HOME": home / "xdg",
            "LANG": "en_US.UTF-8",  # without a locale it knows, this build takes one that JavaScript refuses
            "LC_ALL": "en_US.UTF-8",
        }
        surroundings = dict(os.environ) | {k: str(v) for k, v in places.items()}
        flags = (*FLAGS[1:], "--allow-file-access-from-files", "--disable-breakpad")
        ended = subprocess.run(
            [self.program, "plotly", f"--plotlyjs={self.script.as_uri()}", *flags], cwd=home, env=surroundings,
            input=json.dumps({"data": spec}).encode() + b"\n", capture_output=True, timeout=DEADLINE, check=True,
        )  # fmt: skip
        answer = json.loads(ended.stdout.splitlines()[1])  # the first says that it has started
        assert answer["code"] == 0, answer["message"]
        return json.loads(answer["result"])


BROWSERS = {"chromium": (chromium, Chromium), "kaleido": (kaleido, Kaleido)}


def ask(browser: Chromium | Kaleido, html: str, script: str = "return null;", width: int = 1280) -> Any:
    """What a script gives on the page, which must not have gone wrong."""
    answer = browser.ask({"html": html, "script": script, "width": width})
    assert answer["wrong"] == []
    return answer["value"]
