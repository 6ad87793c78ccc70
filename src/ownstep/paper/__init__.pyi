from typing import Any

from .machinery.runner import (
    Pieces as Pieces,
)
from .machinery.runner import (
    conduct as conduct,
)
from .machinery.runner import (
    conduct_all as conduct_all,
)
from .machinery.runner import (
    judge_again as judge_again,
)
from .machinery.runner import (
    on_disk as on_disk,
)
from .machinery.runner import (
    provenance as provenance,
)

EXPERIMENTS: dict[str, str]

def load_experiment(name: str) -> Any: ...
