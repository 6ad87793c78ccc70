"""Generalised linear models over sites: coefficients with standard errors, from sums alone.

``fitting`` is the walk: ``sums`` (what the sites send first), ``disclosure`` (what they refuse to send), the Newton
steps of :mod:`ownstep.methods`, ``doubts`` (collinear columns, separated classes), ``inference`` (the table) and
``held_out`` (AUC and calibration). ``prediction`` predicts, and is what a file keeps; ``federated/`` is the same fit on
Flower. May import from every folder up to engines.
"""

from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
