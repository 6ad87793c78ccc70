"""Where an owner plugs in data: change `open_site`, and nothing else.

It is called in a fresh process for every round of a deployment, so keep it quick: read a prepared file, do not
prepare it here.
"""

from __future__ import annotations

from flwr.app import Context

import ownstep
from ownstep.engines.federation import Site


def open_site(context: Context) -> Site | ownstep.glm.Owner:
    """The data of this site. Here: its part of a dataset that comes with scikit-learn, split on purpose."""
    number = int(context.node_config["partition-id"])  # Flower's simulation sets both; so can --node-config
    sites = int(context.node_config["num-partitions"])
    data = ownstep.load("breast_cancer")  # your own: ownstep.load("/srv/ownstep/patients.csv", label="ill")
    rows, labels = data.table()
    mine = ownstep.partition.by_norm(rows, devices=sites).device_of == number
    if context.run_config.get("task") == "fit":
        return ownstep.glm.fit_site(f"site-{number + 1}", data.at(mine))
    problem = ownstep.BinaryLogistic(rows[mine], labels[mine], mu=1e-2)
    return Site(name=f"site-{number + 1}", problem=problem)
