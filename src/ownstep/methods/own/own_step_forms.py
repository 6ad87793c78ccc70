"""The forms of Algorithm 1: ``OwnStep(smoothness=..., momentum=...)`` is the class whose file describes that form."""

from __future__ import annotations

from ownstep.support.errors import InvalidInput, unknown_name

SMOOTHNESS = {"given": "the devices' constants L_i", "adaptive": "curvature that the devices measure on the way"}
MOMENTUM = {"nesterov": "Nesterov's method in both phases", "item": "ITEM in both phases"}


def form(smoothness: str, momentum: str | None) -> type | None:
    """The class of an extension; None for Algorithm 1 itself, and for words that :func:`check` refuses."""
    if smoothness == "adaptive":
        from ownstep.methods.own.own_adaptive import AdaptiveOwnStep

        return AdaptiveOwnStep
    if momentum is not None:
        from ownstep.methods.own.own_momentum import MomentumOwnStep

        return MomentumOwnStep
    return None


def check(smoothness: str, momentum: str | None) -> None:
    """Refuse unknown words, and two extensions at once."""
    if smoothness not in SMOOTHNESS:
        raise unknown_name("smoothness of own steps", smoothness, SMOOTHNESS)
    if momentum is not None and momentum not in MOMENTUM:
        raise unknown_name("momentum of own steps", momentum, MOMENTUM)
    if momentum is not None and smoothness == "adaptive":
        raise InvalidInput(f"momentum={momentum!r} needs the constants L_i, so it cannot be had with 'adaptive'")
