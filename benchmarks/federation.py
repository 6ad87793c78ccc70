"""What does a round cost on Flower, and how much of it is ours?

A SuperLink and two SuperNodes on this machine, TLS and node keys. Peer: a bare Flower app in the same federation that
echoes a vector of the same bytes with Flower's own ``send_and_receive``, no data and no arithmetic. Below 1 means that
a round of ours is shorter than that.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from ownstep import BinaryLogistic, History, load, partition
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
    while len(list(grid.get_node_ids())) < 2:
        time.sleep(0.5)
    times = []
    for k in range(int(context.run_config["rounds"])):
        began = time.perf_counter()
        content = RecordDict({"x": ArrayRecord({"x": Array(np.full(30, float(k)))})})
        replies = list(grid.send_and_receive([Message(content, n, "train") for n in grid.get_node_ids()], timeout=120))
        assert len(replies) == 2
        times.append(time.perf_counter() - began)
    pathlib.Path(context.run_config["out"]).write_text(json.dumps(times))
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
    rounds = parser.parse_args().rounds
    rows, labels = load("breast_cancer").table()
    problem = BinaryLogistic(rows, labels, partition.by_norm(rows, devices=2), mu=1e-2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, site in enumerate(NAMES):
            mine = dict(zip(("rows", "labels"), problem.samples(i), strict=True))
            np.savez(folder / f"{site}.npz", **mine)
        (folder / "site.py").write_text(SITE)
        init(folder / "ours", sites=2)
        init(folder / "bare", sites=2)
        (folder / "bare" / "bare" / "server.py").write_text(BARE_SERVER)
        (folder / "bare" / "bare" / "client.py").write_text(BARE_CLIENT)
        with Loopback(folder) as net:
            net.register(*NAMES)
            for site in NAMES:
                net.start_site(site, f'site-file="{folder}/site.py" name="{site}" data="{folder}/{site}.npz"')
            for site in NAMES:
                net.wait_for(site, "SuperNode ID")
            bare, ours = [], []
            for turn in range(2):  # in turns, so that what else the machine does hits both alike
                net.run(folder / "bare", f'rounds={rounds} out="{folder}/{turn}.json"', timeout=600)
                net.run(folder / "ours", f'rounds={rounds} out="{folder}/{turn}"', timeout=600)
                bare += json.loads((folder / f"{turn}.json").read_text())
                history = History.load(folder / str(turn) / "history")
                ours += history.columns["seconds"].tolist()
    print(
        f"{2 * rounds} rounds, 2 SuperNodes, {problem.dim} entries: {history.columns['bytes_up'][0]} bytes up a round"
    )
    bare, ours = np.median(bare), np.median(ours)
    print(f"bare Flower, send_and_receive       {bare:.2f} s a round")
    print(f"ownstep on Flower                   {ours:.2f} s a round")
    print(f"ownstep / bare Flower               {ours / bare:.2f}")


if __name__ == "__main__":
    main()
