"""Devices on many processes, over torch.distributed: one all-reduce of one vector per round.

``engine`` has ``run``, ``share`` and ``deal``; ``ranks`` is the group of processes and who is missing in it;
``torchrun`` starts ranks on this machine and needs no torch. The public names stand in ``__init__.pyi``.
May import from engines and engines/local.
"""

from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
