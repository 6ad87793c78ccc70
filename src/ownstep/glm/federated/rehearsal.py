"""A fit over a real federation on this machine: a SuperLink, a SuperNode per site, TLS, node keys.

What an operator sees before the sites are elsewhere: every site is a process that reads the file with its own rows and
no other, and decides by itself whether it takes part.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ownstep.data import Dataset
from ownstep.glm.federated.fit_site import Owner, fit_site
from ownstep.glm.prediction import Model, load_model
from ownstep.partition import given
from ownstep.support.errors import InvalidInput, OwnstepError

if TYPE_CHECKING:
    from flwr.app import Context

SITE = '"""This site\'s rows, from the file that the node was started with."""\n\nfrom {module} import open_site\n'
PATIENCE, LONGEST = 300.0, 1800.0
"""Seconds for an exchange, and for a whole rehearsal: all its processes share one machine, which may be busy."""


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """What came back: the table and all that goes with it as plain data, and the model."""

    told: dict[str, Any]
    model: Model


def rehearse(
    data: Dataset,
    *,
    family: str = "auto",
    mu: float = 0.0,
    holdout: float = 0.0,
    allow: Sequence[str] = (),
    seed: int = 0,
    log_json: Path | None = None,
    metrics: Path | None = None,
) -> Rehearsed:
    """Fit over one process per site, on Flower's own SuperLink and SuperNodes.

    Parameters
    ----------
    data : with ``sites``; each becomes a node.
    family, mu, holdout, seed : as for :func:`ownstep.glm.fit`.
    allow : sites whose owners agree to take part although they are small; or ``all``.
    log_json, metrics : files for the coordinator's log, see :class:`ownstep.support.logs.RoundLog`.
    """
    from ownstep.engines.federation.app import init
    from ownstep.engines.federation.loopback import Loopback

    if data.sites is None:
        raise InvalidInput(f"{data.name} does not say who holds a row; name the column with --site")
    split = given(data.sites)
    unknown = set(allow) - {*split.names, "all"}
    if unknown:
        raise InvalidInput(f"--allow {sorted(unknown)[0]}: there is no such site; there are {', '.join(split.names)}")
    with _ends_on_sigterm(), tempfile.TemporaryDirectory(prefix="ownstep-fit-") as name:
        folder = Path(name)
        app = folder / "rehearsal"
        init(app, sites=len(split.names))
        (app / "rehearsal" / "site.py").write_text(SITE.format(module=__name__))
        files = [
            _write(folder / f"site-{i + 1}.npz", site, data.at(split.indices(i))) for i, site in enumerate(split.names)
        ]
        say(f"starting a SuperLink and {len(files)} SuperNodes with TLS and node keys on this machine")
        with Loopback(folder) as net:
            nodes = [f"site-{i + 1}" for i in range(len(files))]
            net.register(*nodes)
            for node, file, site in zip(nodes, files, split.names, strict=True):
                agrees = "true" if site in allow or "all" in allow else "false"
                net.start_site(node, f"data={json.dumps(str(file))} allow={agrees}")
            say("fitting: every exchange takes a few seconds on Flower, whatever the model")
            out = folder / "out"
            logs = {"log_json": log_json, "metrics": metrics}
            settings = {"task": "fit", "family": family, "mu": float(mu), "holdout": float(holdout), "seed": seed}
            settings |= {"deadline": PATIENCE, "joining": PATIENCE}
            settings |= {"out": str(out)} | {k: str(v.resolve()) for k, v in logs.items() if v is not None}
            config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
            log = net.run(app, config, timeout=LONGEST)
            return _read(out, log)


@contextlib.contextmanager
def _ends_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM (``timeout``, Slurm, ``kill``) unwinds as Ctrl-C does: no process, no copy of a row is left."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _write(path: Path, site: str, data: Dataset) -> Path:
    """A site's rows, its name, and what the columns are."""
    rows, labels = data.table()
    parts: dict[str, Any] = {"rows": rows}
    if sp.issparse(rows):
        rows = sp.csr_array(rows)
        parts = {k: getattr(rows, k) for k in ("data", "indices", "indptr")} | {"shape": np.array(rows.shape)}
    levels = {k: list(v) for k, v in data.levels.items()}
    about = json.dumps({"name": site, "label": data.label, "features": data.features, "levels": levels})
    np.savez(path, labels=labels, about=np.array(about), **parts)
    return path


def open_site(context: Context) -> Owner:
    """One site of a rehearsal, at its node."""
    config = context.node_config
    with np.load(str(config["data"]), allow_pickle=False) as file:
        rows: Any = (
            file["rows"]
            if "rows" in file
            else sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        )
        about, labels = json.loads(str(file["about"])), file["labels"]
    levels = {k: tuple(v) for k, v in about["levels"].items()}
    data = Dataset(about["name"], rows, labels, features=tuple(about["features"]), label=about["label"], levels=levels)
    return fit_site(about["name"], data, allow=bool(config["allow"]))


def _read(out: Path, log: str) -> Rehearsed:
    """What the coordinator left: a table and a model, or why there is none."""
    try:
        told: dict[str, Any] = json.loads((out / "fit.json").read_text())
    except (OSError, ValueError) as error:
        raise OwnstepError(f"the federation's run failed:\n{log[-3000:]}") from error
    if "error" in told:
        raise (InvalidInput if told["invalid"] else OwnstepError)(told["error"])
    return Rehearsed(told, load_model(out / "model.json"))


def say(text: str) -> None:
    """To whoever waits, away from the output."""
    print(text, file=sys.stderr, flush=True)
