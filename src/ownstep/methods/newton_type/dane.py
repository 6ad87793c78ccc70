"""DANE: every device minimises its own loss with a correction, the server averages the moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ownstep.methods.newton_type.giant import GIANT


@dataclass(frozen=True)
class DANE(GIANT):
    """x^{k+1} = x^k - t_k sum_i w_i (x^k - y_i), where y_i minimises the device's own loss, corrected:

        y_i = argmin_y  f_i(y) - <grad f_i(x^k) - grad f(x^k), y> + prox/2 ||y - x^k||^2.

    Shamir, Srebro and Zhang (2014). Their step is t_k = 1, which diverges on devices that are unlike each other unless
    prox is chosen for them. Here t_k = 1 is tried first, and the line search shortens it where f does not fall. Two
    exchanges per iteration, as :class:`GIANT`, and a device's exchange is a whole minimisation.

    Parameters
    ----------
    prox : mu of the paper, at least 0.
    """

    whole: ClassVar[bool] = True
