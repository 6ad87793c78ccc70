"""Devices at sites whose data stays there, over Flower.

``coordinator`` runs the rounds and ``site`` answers them; ``wire`` is what travels, ``secure`` adds it up under
SecAgg+, ``nodes`` knows who is there. ``app`` writes a Flower app from ``template/``;
``loopback/`` starts a whole federation on this machine. May import from engines and engines/local.
"""

from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
