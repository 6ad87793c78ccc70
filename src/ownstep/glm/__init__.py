"""Generalised linear models over sites: coefficients with standard errors, from sums alone.

``fit`` is the walk: ``sums`` (what the sites send first), ``disclosure`` (what they refuse to send), the Newton steps
of :mod:`ownstep.methods`, ``doubts`` (collinear columns, separated classes), ``inference`` (the table) and ``held_out``
(AUC and calibration). ``prediction`` predicts, and is what a file keeps; ``federated`` is the same fit on Flower. May
import from every room up to engines.
"""

from ownstep.glm.federated import fit_over, fit_site
from ownstep.glm.fit import fit
from ownstep.glm.prediction import Model, load_model
from ownstep.glm.result import Fitted

__all__ = ["Fitted", "Model", "fit", "fit_over", "fit_site", "load_model"]
