"""What does a round cost on Flower, and how much of it is ours?

A SuperLink and two SuperNodes on this machine, TLS and node keys. Peer: a bare Flower app in the same federation that
echoes a vector of the same bytes with Flower's own ``send_and_receive``, no data and no arithmetic. Both are timed
alike: from one round's sending to the next one's, so that everything in between counts, our checkpoints too; neither
counts the look-up of the nodes. The apps run in turns. Below 1 means that a round of ours is shorter.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ownstep import BinaryLogistic, load, partition
from ownstep.engines.federation.app import init
from ownstep.engines.federation.loopback import Loopback

NAMES = ("D1", "D2")

SITE = """
import numpy as np
from ownstep.engines.federation.site import Site
from ownstep.problems import BinaryLogistic

def open_site(context):
    data = np.load(context.node_config["data"])
    return Site(context.node_config["name"], BinaryLogistic(data["rows"], data["labels"], mu=1e-2))
"""

BARE_SERVER = """
import json, pathlib, time
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.5)
    sent = []
    for k in range(int(context.run_config["rounds"]) + 1):
        sent.append(time.perf_counter())
        content = RecordDict({"x": ArrayRecord({"x": Array(np.full(30, float(k)))})})
        replies = list(grid.send_and_receive([Message(content, n, "train") for n in nodes], timeout=120))
        assert len(replies) == 2
    pathlib.Path(context.run_config["out"]).write_text(json.dumps(sent))
"""

OUR_SERVER = """
import json, pathlib, time
from flwr.serverapp import ServerApp
from ownstep.engines.federation import Terms, run
from ownstep.methods import OwnStep

app = ServerApp()

@app.main()
def main(grid, context):
    sent, push, out = [], grid.push_messages, pathlib.Path(context.run_config["out"])

    def timed(messages):
        messages = list(messages)
        if "join" not in messages[0].metadata.message_type:
            sent.append(time.perf_counter())
        return push(messages)

    grid.push_messages = timed
    run(OwnStep(), grid, int(context.run_config["rounds"]), Terms(sites=2, deadline=300), folder=out.with_suffix(""))
    out.write_text(json.dumps(sent))
"""

BARE_CLIENT = """
from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def echo(message, context):
    return Message(message.content, reply_to=message)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for federation.json")
    chosen = parser.parse_args()
    rows, labels = load("breast_cancer").table()
    problem = BinaryLogistic(rows, labels, partition.by_norm(rows, devices=2), mu=1e-2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, site in enumerate(NAMES):
            mine = dict(zip(("rows", "labels"), problem.samples(i), strict=True))
            np.savez(folder / f"{site}.npz", **mine)
        (folder / "site.py").write_text(SITE)
        for app, server in (("ours", OUR_SERVER), ("bare", BARE_SERVER)):
            init(folder / app, sites=2)
            (folder / app / app / "server.py").write_text(server)
        (folder / "bare" / "bare" / "client.py").write_text(BARE_CLIENT)
        with Loopback(folder) as net:
            net.register(*NAMES)
            for site in NAMES:
                net.start_site(site, f'site-file="{folder}/site.py" name="{site}" data="{folder}/{site}.npz"')
            for site in NAMES:
                net.wait_for(site, "SuperNode ID")
            found: dict[str, list[float]] = {"bare": [], "ours": []}
            for turn in range(chosen.turns):  # in turns, so that what else the machine does hits both alike
                for app in ("bare", "ours") if turn % 2 == 0 else ("ours", "bare"):
                    out = folder / f"{app}-{turn}.json"
                    log = net.run(folder / app, f'rounds={chosen.rounds} out="{out}"', timeout=600)
                    if not out.exists():
                        raise SystemExit(log)
                    found[app] += np.diff(json.loads(out.read_text())).tolist()
    print(f"{chosen.turns} turns of {chosen.rounds} rounds, 2 SuperNodes, {problem.dim} entries")
    bare, ours = (np.array(found[app]) for app in ("bare", "ours"))
    for label, seconds in (("bare Flower, send_and_receive", bare), ("ownstep on Flower, with checkpoints", ours)):
        low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        print(f"{label:<38}{seconds.mean():.2f} s a round (quartiles {low:.2f}, {middle:.2f}, {high:.2f})")
    # Bare rounds take one wait of a SuperNode or two, and a median says only which is more frequent.
    ratio = float(ours.mean() / bare.mean())
    print(f"{'ownstep / bare Flower, means':<38}{ratio:.2f}")
    if chosen.out:
        about = {"date": time.strftime("%Y-%m-%d"), "machine": platform.platform(), "cores": os.cpu_count()}
        about |= {"flwr": version("flwr"), "load": os.getloadavg()[0]}
        chosen.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"about": about, "seconds": found, "ratio of means": ratio}, indent=1)
        (chosen.out / "federation.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
