"""A real federation on one machine: a SuperLink and SuperNodes as processes, with TLS and node keys.

For the demo, the benchmark and the tests. Everything lives in one folder, Flower's own files included; nothing is
sent anywhere, and no process outlives :meth:`Loopback.close`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from ownstep.support.errors import OwnstepError, require_extra

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
"""The environment of every process here: nothing phones home or installs anything."""

STARTING = 180.0
"""Seconds a process may take until it is up."""


class Loopback:
    """Use as ``with Loopback(folder) as net: net.add_site(...); net.run(app)``.

    Parameters
    ----------
    folder : an existing folder for certificates, keys, logs and Flower's files.
    simulation : Flower's simulation in place of SuperNodes: one machine, Ray's processes, no TLS.
    """

    def __init__(self, folder: Path, simulation: bool = False) -> None:
        if find_spec("flwr") is None:
            raise require_extra("flwr", "flower")
        from ownstep.engines.federation.loopback import keys as certificates

        self.folder, self.simulation, self.mark = folder, simulation, uuid.uuid4().hex
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.keys: dict[str, Path] = {}
        self.port = free_port()
        self.env = os.environ | QUIET | {"FLWR_HOME": str(folder / "flwr-home"), "OWNSTEP_LOOPBACK": self.mark}
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env.get('PATH', '')}"
        self.env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)  # its processes see what this one sees
        self.certificates = certificates
        certificates.server(folder, certificates.authority(folder))
        (folder / "flwr-home").mkdir(exist_ok=True)
        (folder / "flwr-home" / "config.toml").write_text(
            f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\naddress = "{self.address}"\n'
            + ("insecure = true\n" if simulation else f'root-certificates = "{folder / "ca.crt"}"\n')
        )

    def __enter__(self) -> Loopback:
        try:
            self.start_link()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self.port}"

    def start_link(self) -> None:
        """Start the SuperLink, except in simulation with TLS, node authentication and a database that survives it."""
        at = self.folder
        options: tuple[Any, ...] = (
            "--ssl-ca-certfile", at / "ca.crt", "--ssl-certfile", at / "server.pem", "--ssl-keyfile", at / "server.key",
            "--enable-supernode-auth", "--database", at / "state.db",
        )  # fmt: skip
        if self.simulation:
            options = ("--insecure", "--simulation")
        self.start("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", self.port, *options)
        self.wait_for("superlink", "Uvicorn running")

    def register(self, *names: str) -> None:
        """Make a key for each site and tell the SuperLink its public half."""
        waiting = []
        for name in names:
            self.keys[name], public = self.certificates.node_key(self.folder, f"key-{name}")
            waiting.append((name, self.flwr("supernode", "register", public, "loopback", "--name", name)))
        for name, process in waiting:
            try:
                refused = process.wait(STARTING) != 0
            except subprocess.TimeoutExpired:
                raise OwnstepError(
                    f"the key of {name!r} was not registered within {STARTING:g} s: this machine is too busy for Flower"
                ) from None
            if refused:
                raise OwnstepError(f"the key of {name!r} was not registered: {self.log(process)}")

    def start_site(self, name: str, config: str = "", *, options: tuple[Any, ...] | None = None) -> None:
        """Start a SuperNode, by default with TLS and its registered key; ``config`` is its ``--node-config``."""
        secure = ("--root-certificates", self.folder / "ca.crt", "--auth-supernode-private-key", self.keys.get(name))
        program = (sys.executable, "-m", "ownstep", "federate", "join") if options is None else ("flower-supernode",)
        self.start(
            name, *program, "--superlink", self.address, *(secure if options is None else options),
            "--host", "127.0.0.1", "--port", free_port(), "--node-config", config,
        )  # fmt: skip

    def run(self, app: Path, config: str = "", *options: str, timeout: float = 300.0) -> str:
        """Start a run of an app, follow its log to the end, and return the log."""
        process = self.flwr("run", app, "loopback", "--stream", *(("-c", config) if config else ()), *options)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise OwnstepError(f"the run did not end within {timeout:g} s:\n{self.log(process)}") from None
        return self.log(process)

    def flwr(self, *arguments: Any) -> subprocess.Popen[bytes]:
        """A command of Flower's own command line."""
        return self.start(f"flwr-{len(self.processes)}", "flwr", *arguments)

    def start(self, name: str, *command: Any) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own, its output in ``name.log``."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self.env, cwd=self.folder, start_new_session=True, umask=0o077,
            )  # fmt: skip
        return process

    def log(self, process: str | subprocess.Popen[bytes]) -> str:
        """What a process has written so far."""
        name = process if isinstance(process, str) else next(n for n, p in self.processes.items() if p is process)
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, words: str, timeout: float = STARTING, count: int = 1) -> None:
        """Until a process has written the words so many times; an error if it ends first or takes too long."""
        ends = time.monotonic() + timeout
        while self.log(name).count(words) < count:
            if self.processes[name].poll() is not None or time.monotonic() > ends:
                others = "\n".join(
                    f"--- {other}\n{self.log(other)[-3000:]}" for other in self.processes if other != name
                )
                raise OwnstepError(
                    f"{name} did not write {words!r} within {timeout:g} s:\n{self.log(name)[-3000:]}\n{others}"
                )
            time.sleep(0.1)

    def kill(self, name: str, signal_: int = signal.SIGKILL) -> None:
        """End a process and all it started, at once by default."""
        process = self.processes[name]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_)
        process.wait(30)

    def close(self) -> None:
        """End everything; Flower detaches some of its processes, which are found by their environment."""
        for name, process in self.processes.items():
            if process.poll() is None:
                self.kill(name)
        ends = time.monotonic() + 30
        while (left := self.left()) and time.monotonic() < ends:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def left(self) -> list[int]:
        """Processes of this federation that are still alive (on Linux)."""
        out = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                alive = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
                if alive and f"OWNSTEP_LOOPBACK={self.mark}".encode() in (entry / "environ").read_bytes():
                    out.append(int(entry.name))
        return out


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
