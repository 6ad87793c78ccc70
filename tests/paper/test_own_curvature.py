from __future__ import annotations

import numpy as np
import pytest

from ownstep.paper.ours import own_curvature


def rows(found):
    """(data, split, devices, method, rank, seed, exchanges) as rows of a result."""
    names = ("data", "split", "devices", "method", "rank", "seed", "exchanges")
    more = {"bytes": 1.0, "seconds": {"home": 1.0, "wan": 1.0, "datacentre": 1.0}}
    return {"rows": [dict(zip(names, r, strict=True)) | more for r in found], "quick": False}


def made(own, fifty, default=50):
    main = own_curvature.MAIN
    out = []
    for seed in (0, 1):
        out += [(main, "one", 1, "lbfgs", None, seed, 60), (main, "one", 1, "own_curvature", 20, seed, 40)]
        for split in ("iid", "label"):
            out += [(main, split, n, "own_curvature", 20, seed, e) for n, e in ((2, 35), (10, own), (50, fifty))]
            out += [(main, split, 10, "own_curvature", 10, seed, default)]
    return rows(out)


@pytest.mark.parametrize(
    ("own", "fifty", "default", "word"),
    [
        (30, 25, 66, "holds"),
        (31, 25, 66, "holds partly"),  # more than half of L-BFGS's
        (30, 33, 60, "holds partly"),  # 50 devices against one: 0.83
        (30, 25, 67, "holds partly"),  # the default rank more than 1.1 of L-BFGS's
        (None, 33, 67, "does not hold here"),
    ],
)
def test_the_rules_decide(own, fifty, default, word):
    assert own_curvature.verdict(made(own, fifty, default))["verdict"] == word


def test_a_small_run_makes_a_verdict_and_a_figure(tmp_path):
    jobs = [("one", 1, "lbfgs", None), ("one", 1, "newton", None), ("one", 1, "own_curvature", 10)]
    jobs += [(s, 3, "own_curvature", 10) for s in ("iid", "label", "by_norm", "dirichlet")]
    result = {"rows": own_curvature._make("breast_cancer", 1e-2, 0, jobs), "quick": True}
    assert all(r["exchanges"] for r in result["rows"])
    assert len({r["bytes"] for r in result["rows"]}) > 3
    said = own_curvature.verdict(result)
    assert said["verdict"] == "holds"
    assert {n["what"] for n in said["numbers"]} >= {"3 label", "1 one"}
    own_curvature.figure(result).savefig(tmp_path / "figure.png")
    assert np.isfinite([r["seconds"]["home"] for r in result["rows"]]).all()
