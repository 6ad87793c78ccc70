"""Generalised linear models over sites: coefficients with standard errors, from sums alone.

``fitting`` is the walk: ``sums``, ``disclosure`` (what sites refuse to send), Newton's method, ``identifiability``,
``inference`` (the table), ``held_out``. ``prediction`` is what a file keeps, ``federated/`` the same fit on Flower.
May import from every folder up to engines.
"""

from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
