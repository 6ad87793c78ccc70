"""Appendix: Algorithm 1 against FedAdagrad, FedAdam, FedYogi and FedAvgM, two classes per device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ownstep.methods import FedAdagrad, FedAdam, FedAvgM, FedYogi, Method
from ownstep.paper.machinery import contest, mnist_problem, neural
from ownstep.paper.machinery.runner import Kept, Pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "Algorithm 1 converges faster than FedAdam, FedYogi, FedAdagrad and FedAvgM (MNIST, two classes per device)."

SAYS = (
    "Algorithm 1 converges faster than FedAdam, FedYogi, FedAdagrad and FedAvgM in training loss, training accuracy "
    "and test accuracy."
)
WHY = (
    "The paper does not give the rivals' step sizes. Adaptive methods choose a scale of their own, so their step sizes "
    "decide such a comparison. Here they run with their library's defaults, and again after a search. Algorithm 1 runs "
    "as it is, and with its steps searched as well."
)
NOTICE = mnist_problem.notice

SETTINGS = (
    *mnist_problem.SETTINGS,
    *contest.SETTINGS,
    ("split", "two classes per device, five devices", "classes in the order of their constants, paired",
     "as in its MNIST section"),
    ("rivals' steps", "not said", "eta = eta_l = 0.1 (Flower's default), FedAvgM 1 and 1/L-bar; and tuned",
     "Reddi et al. tune both on a grid; their method untuned is another method"),
    ("rivals' constants", "not said", "beta_1 0.9 (FedAdagrad 0), beta_2 0.99, tau 0.001, momentum 0.9",
     "their papers'"),
    ("runs", "not said", "5 draws of the images unless asked otherwise", "one draw proves little"),
    ("local steps", "full batch", "E = 1, full batch", "the paper's case"),
)  # fmt: skip

WORDS = {"faster": "Algorithm 1 is faster", "slower": "Algorithm 1 is slower"}
SEEDS = 5
RACE: contest.Race = (1000, (0.1, 0.03, 0.01), 30)
RIVALS: dict[str, Method] = {
    "FedAdagrad": FedAdagrad(),
    "FedAdam": FedAdam(),
    "FedYogi": FedYogi(),
    "FedAvgM": FedAvgM("mean"),
}


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """One arm per seed; ``quick`` takes digits, fewer rounds and smaller searches."""
    rounds, gaps, budget = (120, (0.5, 0.3), 10) if quick else RACE
    levels = mnist_problem.levels(quick, gaps)

    def one(_: str, s: int, kept: Kept) -> dict[str, Any]:
        setting = mnist_problem.problem(quick, s, split(s))
        searched = RIVALS if quick or s >= seed + contest.NEWER_SEEDS else RIVALS | contest.newer()
        return contest.contest(setting, RIVALS, searched, rounds, levels, s, budget, progress=progress, pieces=kept)

    arms = contest.repeated(("two classes a device",), one, seed, seeds or (1 if quick else SEEDS), pieces)
    return completed({"arms": arms}, quick)


def split(seed: int) -> mnist_problem.Splitter:
    """Two classes per device."""
    return mnist_problem.two_classes(5, seed)


def completed(result: dict[str, Any], quick: bool = False) -> dict[str, Any]:
    """And what a GPU gave for the network, where it is recorded: the paper's rivals, and the newer ones."""
    whole = mnist_problem.with_network("fedopt", result, quick)
    found = {} if quick else neural.committed("fedopt", optional=("gpu-rivals.json",))
    return whole | {"rivals": found["rivals"]} if found else whole


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Counted by :func:`ownstep.paper.machinery.contest.judge`; newer rivals on the network are findings."""
    found = mnist_problem.judged(result, lambda part: contest.judge(part["arms"], tuple(RIVALS)))
    return found | {"findings": [*found["findings"], *_beside(result.get("rivals"))]}


def _beside(recorded: Mapping[str, Any] | None) -> list[str]:
    """What :mod:`benchmarks.gpu_rivals` recorded, each method against Algorithm 1 beyond the noise floor of the two."""
    out = []
    for name, cells in (recorded or {}).get("verdicts", {}).items():
        said = [
            f"to {share} of the first loss: {WORDS.get(cell['algorithm 1 is'], cell['algorithm 1 is'])}"
            + ("" if cell["ratio"] is None else f" ({cell['ratio']:.2f}, noise floor {cell['floor']:.2f})")
            for share, cell in cells.items()
        ]
        out.append(f"the paper's network, after the same search, against {name}: " + "; ".join(said))
    return out


charts = contest.charts


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals on the pooled data; of the paper's network where it was trained."""
    return contest.fair(result)


def figure(result: dict[str, Any]) -> Figure:
    """The methods as they were set, and tuned; one row per model."""
    from ownstep.paper.machinery.race_pictures import contests

    return contests(result, tuple(RIVALS), (), tuple(RIVALS), "adaptive federated methods")
