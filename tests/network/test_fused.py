"""What torch.compile fuses is compared with the same operations unfused before it is trusted."""

import re
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ownstep import partition  # noqa: E402
from ownstep.problems import Network  # noqa: E402
from ownstep.smoothness import Region, differences  # noqa: E402

from .helpers import Conv, data, problem  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own: as an error, one ends its tracing without a word


@pytest.fixture
def graphs(monkeypatch):
    """How many graphs were compiled; by a backend that needs no C++ compiler."""
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch._dynamo.reset()
    torch.manual_seed(0)
    return seen


def test_a_fused_model_is_compiled_and_gives_the_same(graphs):
    plain, fused = problem(), problem(fused=True)
    c = np.array([0.3, 0.1, 0.5, 0.1])
    for a, b in zip(plain.mix(plain.x0(), c), fused.mix(plain.x0(), c), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-12, atol=1e-14)
    assert len(graphs) == 1
    assert "not fused" not in fused.replay_note
    assert fused.accuracy(plain.x0()) == plain.accuracy(plain.x0())
    some = fused.keep([1, 2])
    torch.testing.assert_close(
        some.mix(plain.x0(), np.ones(2))[1], plain.keep([1, 2]).mix(plain.x0(), np.ones(2))[1], rtol=1e-12, atol=1e-14
    )


class Miscompiled(nn.Module):
    """Right as it stands, and wrong when compiled, in the backward pass alone."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.layer = scale, nn.Linear(4, 3, dtype=torch.float64)

    def forward(self, x):
        out = self.layer(x)
        if torch.compiler.is_compiling():
            out = out.detach() + self.scale * (out - out.detach())
        return out


@pytest.mark.parametrize(
    ("scale", "said"), [(float("nan"), "differ by nan"), (0.9, r"differ by 0\."), (None, "failed: .*no compiler here")]
)
def test_a_miscompiled_model_is_run_unfused_and_says_so(graphs, monkeypatch, scale, said):
    def absent(graph, inputs):
        raise RuntimeError("no compiler here")

    if scale is None:
        monkeypatch.setattr(torch, "compile", partial(torch.compile.func, backend=absent))
    x, y = data()
    model, split = Miscompiled(scale or 1.0), partition.iid(len(y), 2)
    plain, fused = Network(model, x, y, split), Network(model, x, y, split, fused=True)
    assert fused.value(plain.x0()) == plain.value(plain.x0())  # says nothing of gradients, so it settles nothing
    for _ in range(2):
        torch.testing.assert_close(
            fused.mix(plain.x0(), plain.weights)[1], plain.mix(plain.x0(), plain.weights)[1], rtol=0, atol=0
        )
    assert re.search(f"not fused: .*{said}", fused.replay_note)
    torch.testing.assert_close(fused.gradients(plain.x0()), plain.gradients(plain.x0()), rtol=0, atol=0)


class OneTensor(nn.Module):
    """Compiled, one small tensor has a gradient a third too long."""

    def __init__(self):
        super().__init__()
        self.first, self.gain = nn.Linear(4, 3, dtype=torch.float64), nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        gain = self.gain
        if torch.compiler.is_compiling():
            gain = gain.detach() + 4 / 3 * (gain - gain.detach())
        return gain * self.first(x)


@pytest.mark.parametrize("model", [OneTensor, lambda: Miscompiled(0.9), lambda: Miscompiled(-1.0)])
@pytest.mark.parametrize("samples", [60, 5000])
def test_every_tensor_is_compared_however_large_the_data(graphs, model, samples):
    x, y = data(samples)
    fused = Network(model(), x, y, fused=True)
    fused.mix(fused.x0(), fused.weights)
    assert "differ by" in fused.replay_note


def test_fused_differences_are_the_plain_ones(graphs):
    images, labels = torch.rand(12, 1, 6, 6, dtype=torch.float64), np.arange(12) % 3
    made = Network(Conv().double(), images, labels, partition.given(np.arange(12) % 2))
    plain = differences(made, Region(0.1), 5, samples=4, layout="patches", chunk=2)
    fused = differences(made, Region(0.1), 5, samples=4, layout="patches", chunk=2, fused=True)
    assert graphs
    np.testing.assert_allclose(fused.history, plain.history, rtol=1e-6)
