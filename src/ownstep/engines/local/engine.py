"""The local engine: all devices in this process, one pass over the data per round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.engines.arguments import check_run
from ownstep.engines.limits import Limits
from ownstep.engines.local.loop import Loop
from ownstep.engines.participation import Participation
from ownstep.engines.saving import Saver, ends_well
from ownstep.history import History
from ownstep.methods import METHODS, Method, key_of
from ownstep.plan import Devices, Plan, plan
from ownstep.problems.base import Problem
from ownstep.smoothness import Smoothness, measure
from ownstep.support.errors import InvalidInput
from ownstep.support.logs import RoundLog
from ownstep.support.progress import Bar
from ownstep.support.threads import calm_blas
from ownstep.support.vectors import is_vector


def describe(problem: Problem, smoothness: Smoothness | str = "auto") -> Plan:
    """Measure the devices: weights from the problem, constants from a measurement.

    ``"auto"`` is exact where that takes at most the time of about 25 rounds, else upper bounds; ``"exact"`` takes its
    time. With ``"adaptive"`` nothing is measured: enough for methods that need no constant (``constant_free``).
    A problem whose data is elsewhere describes itself.
    """
    if smoothness == "adaptive":
        ones = np.full(len(problem.weights), max(1.0, problem.strong_convexity))
        smoothness = Smoothness(ones, "unknown", "not measured: placeholders for methods that measure on their way")
    if hasattr(problem, "describe"):
        told: Plan = problem.describe(smoothness)
        return told
    measured = measure(smoothness, problem) if isinstance(smoothness, str) else smoothness
    return plan(problem.weights, measured, problem.strong_convexity, problem.names)


def run(
    method: Method,
    problem: Problem,
    rounds: int,
    *,
    smoothness: Smoothness | str = "auto",
    devices: Devices | None = None,
    x0: Any = None,
    participation: Participation | None = None,
    target: float | None = None,
    gradient_tolerance: float | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    name: str | None = None,
    measure_gradient: bool = False,
    seed: int = 0,
    search_target: float | None = None,
    observe: Callable[[int, Any], None] | None = None,
    limits: Limits | None = None,
    log: RoundLog | None = None,
) -> History:
    """Run a method on a problem and record every round.

    Parameters
    ----------
    method, problem, rounds : what to run, on what, and K in Algorithm 1.
    smoothness : a measurement, or how to make one; not used when ``devices`` is given, nor by methods that need no
        constant.
    x0 : the start; ``problem.x0()`` by default.
    participation : which devices take part in each round; all by default.
    target : stop once f(x^k) is at most this.
    gradient_tolerance : stop once ||grad f(x^k)|| is at most this.
    checkpoint : a file written in the first round, then every few seconds (rarer as the history grows), on Ctrl-C and
        on SIGTERM. If it exists, the run goes on from it, and its history is the one an unbroken run would have given.
        The one before it is kept beside it. What is not finite, or has diverged, is never written.
    progress : draw a progress bar; only on a terminal by default.
    name : label of the history; the method by default.
    measure_gradient : record ||grad f(x^k)|| in every round. It is free wherever grad f is what the method asks
        for; in Algorithm 1's local phase it takes a second sum in the same pass, and is nan unless asked for here.
    seed, search_target : of the search behind ``GD("tuned")``, and the f it races to; ``target`` by default.
    limits : a budget of bytes or seconds, or patience; ``stopped`` then says what ran out.
    log : records every round as it ends, see :class:`ownstep.support.logs.RoundLog`.
    observe : called with (k, x^k) for every iterate, to measure along the way; it must not change x.

    Returns
    -------
    History
        A run that meets NaN, diverges, or is interrupted still returns one: ``stopped`` says why.
    """
    check_run(**locals())
    method, devices, tuning = settle(
        method, problem, rounds, smoothness, devices, x0=x0, target=target if search_target is None else search_target,
        participation=participation, seed=seed, progress=progress,
    )  # fmt: skip
    start = first_point(problem, x0)
    measured = measure_gradient or gradient_tolerance is not None
    loop = Loop(method, problem, devices, start, participation, name or repr(method), tuning, measured)
    loop.limits, loop.log = limits, log
    with Saver(checkpoint) as saver:
        saver.resume(loop.resume)
        if loop.k > rounds:
            raise InvalidInput(f"rounds={rounds}, but the checkpoint {str(checkpoint)!r} already has {loop.k}")
        with (
            ends_well(checkpoint is not None) as ending,
            calm_blas(problem.work),
            Bar(loop.name, rounds, progress) as bar,
        ):
            try:
                with ending.interruptible():
                    while True:
                        done = loop.finished(rounds, target, gradient_tolerance)
                        if observe is not None:
                            observe(loop.k, loop.method.point(loop.state))
                        if done:
                            break
                        if saver.due:  # of a point that was evaluated and found sound
                            saver.save(loop.save)
                        loop.advance()
                        bar.update(loop.k, f"f = {loop.columns['value'][-1]:.6g} ({loop.columns['phase'][-1]})")
            except KeyboardInterrupt:
                loop.interrupt()
            saver.save(loop.save)
    return loop.history()


def settle(
    method: Method,
    problem: Problem,
    rounds: int,
    smoothness: Smoothness | str,
    devices: Devices | None,
    **search: Any,
) -> tuple[Method, Devices, dict[str, Any]]:
    """Measure the devices, and search the step of ``GD("tuned")``: what every engine does before its first round.

    Returns
    -------
    tuple
        The method with its step, the devices, and what the history says about the search.
    """
    if devices is None:
        needed = "adaptive" if getattr(method, "constant_free", False) else smoothness
        devices = describe(problem, needed).devices
    if getattr(method, "step", None) != "tuned":
        return method, devices, {}
    from ownstep.engines.tuning import tune_step

    tuned = tune_step(problem, rounds, devices=devices, **search)
    return tuned.method, devices, {"key": key_of(method, METHODS), "tuning": tuned.to_dict()}


def first_point(problem: Problem, x0: Any) -> Any:
    """The start that was given, checked, or the problem's own."""
    if x0 is None:
        return problem.x0()
    if np.shape(x0) != (problem.dim,):
        raise InvalidInput(f"x0 must have shape ({problem.dim},), got {np.shape(x0)}")
    return x0 if is_vector(x0) and "float" in str(x0.dtype) else np.asarray(x0, float)
