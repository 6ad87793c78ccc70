"""What does a round cost? One mix against scikit-learn's gradient, and 1,000 devices against one.

Peers are measured in the same run, interleaved, and the ratio of medians is printed: below 1 means we are faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn._loss import HalfBinomialLoss
from sklearn.linear_model._linear_loss import LinearModelLoss

from ownstep import BinaryLogistic, OwnStep, load, partition, run
from ownstep.engines import describe

REPEATS = 100


def interleaved(*calls: Callable[[], object]) -> list[float]:
    """Median seconds of each call, measured in turns so that noise hits all alike."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for mine, call in zip(times, calls, strict=True):
            began = time.perf_counter()
            call()
            mine.append(time.perf_counter() - began)
    return [float(np.median(t)) for t in times]


def main() -> None:
    data = load("w8a")
    rows, labels = data.rows.tocsr(), data.labels
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    x = 0.1 * np.random.default_rng(0).standard_normal(rows.shape[1])
    one, many = (BinaryLogistic(rows, labels, partition.iid(rows.shape[0], n), mu=1e-3) for n in (1, 1000))
    theirs = LinearModelLoss(base_loss=HalfBinomialLoss(), fit_intercept=False)
    target = (labels > 0).astype(float)

    ours, split, gradient, both = interleaved(
        lambda: one.mix(x, one.weights),
        lambda: many.mix(x, many.weights),
        lambda: theirs.gradient(x, rows, target, l2_reg_strength=1e-3),
        lambda: theirs.loss_gradient(x, rows, target, l2_reg_strength=1e-3),
    )
    print(f"w8a: {rows.shape[0]:,} rows, {rows.nnz:,} non-zeros")
    print(f"mix, 1,000 devices / 1 device                       {split / ours:.2f}")
    print(f"mix / LinearModelLoss.gradient (no loss)            {ours / gradient:.2f}")
    print(f"mix / LinearModelLoss.loss_gradient (loss as well)  {ours / both:.2f}")

    alone, crowd = describe(one).devices, describe(many).devices
    short, long = interleaved(
        lambda: run(OwnStep(), one, 10, devices=alone), lambda: run(OwnStep(), many, 10, devices=crowd)
    )
    print(f"a recorded round, 1,000 devices / 1 device          {long / short:.2f}")

    # The floor: two products, each reading 12 bytes a non-zero once, at the speed at which a plain sum reads memory.
    block = np.ones(rows.nnz * 12 // 8)
    (reading,) = interleaved(block.sum)
    print(f"mix / memory floor (reading the matrix twice)       {ours / (2 * reading):.1f}")


if __name__ == "__main__":
    main()
