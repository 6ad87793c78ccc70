"""Files that ownstep 0.1 wrote, and the problem they are of."""

import numpy as np

from ownstep import partition
from ownstep.problems import BinaryLogistic


def problem() -> BinaryLogistic:
    """As the files were written for; it must not change."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 4)) * rng.uniform(0.3, 2, (60, 1))
    labels = np.where(rows @ rng.standard_normal(4) + 0.5 * rng.standard_normal(60) > 0, 1, -1)
    return BinaryLogistic(rows, labels, partition.by_norm(rows, 3), mu=0.05)
