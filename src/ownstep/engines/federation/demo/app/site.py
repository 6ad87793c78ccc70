"""The demo's sites: each reads the file that holds its own samples, and no other."""

import numpy as np
from flwr.app import Context

from ownstep.engines.federation.site import Site
from ownstep.problems import BinaryLogistic


def open_site(context: Context) -> Site:
    """Samples and labels from the npz file that the node was started with."""
    config = context.node_config
    with np.load(str(config["data"]), allow_pickle=False) as data:
        problem = BinaryLogistic(data["rows"], data["labels"], mu=float(data["mu"]))
    return Site(str(config["name"]), problem)
