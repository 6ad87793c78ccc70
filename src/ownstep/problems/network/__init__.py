"""Any torch module as a problem: ``problem`` turns a loss into a weighted sum of gradients, one backward pass per
round.

``inputs``, ``batches`` and ``penalties`` are its parts; ``models``, ``text`` and ``encoder`` are ready networks;
``cuda_graph`` and ``stack`` make it fast on a GPU. Needs the extra [torch]. May import from data and partition.
"""

from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
