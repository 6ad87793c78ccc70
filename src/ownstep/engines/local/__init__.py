"""All devices in this process, one pass over the data per round.

``engine`` has ``run`` and ``describe``, ``loop`` is a run in progress, ``answering`` turns what a method asks into what
it is told, ``secant`` is what devices remember to measure their own curvature, ``stacked`` runs many seeds at once on
a GPU. May import from engines.
"""

from ownstep.engines.local.engine import describe, run

__all__ = ["describe", "run"]
