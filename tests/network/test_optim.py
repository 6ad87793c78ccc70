"""The optimizer: the same trajectory as the problem's, and a good citizen of torch's training loops."""

import copy
import io
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ownstep import At, Devices, InvalidInput, Never, NormBelow, OwnStep, Plateau, run  # noqa: E402
from ownstep.optim import OwnStepOptimizer  # noqa: E402
from ownstep.problems.network.models import mlp  # noqa: E402

from .helpers import constants, data, problem  # noqa: E402


def losses_of(model, made):
    x, y = data()
    each = nn.functional.cross_entropy(model(x), y, reduction="none")
    return torch.stack([each[torch.as_tensor(made.partition.indices(i))].mean() for i in range(len(made.weights))])


@pytest.mark.parametrize("way", ["weigh", "losses", "weighted", "closure"])
@pytest.mark.parametrize("switch", [At(5), Plateau(), NormBelow(0.03), Never()])
def test_it_walks_the_problems_path(switch, way):
    made = problem(3)
    devices = constants(made, 1.0, 4.0)
    history = run(OwnStep(switch), made, 40, devices=devices)
    model = mlp(4, 3, 6).double()
    optimizer = OwnStepOptimizer(model.parameters(), devices, switch)

    def closure():
        optimizer.zero_grad()
        weighted = optimizer.weigh(losses_of(model, made))
        weighted.backward()
        return weighted

    for _ in range(40):
        if way == "weigh":
            closure()
            optimizer.step()
        elif way == "losses":
            optimizer.step(losses_of(model, made))
        elif way == "weighted":
            optimizer.step(optimizer.weigh(losses_of(model, made)))
        else:
            optimizer.step(closure)
    mine = made.layout.join(dict(model.named_parameters())).numpy()
    np.testing.assert_allclose(mine, history.x, rtol=0, atol=1e-13)
    assert optimizer.switched_at == history.switched_at


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_device_is_sgd_bit_for_bit(dtype):
    x, y = data()
    ours, theirs = mlp(4, 3).to(dtype), mlp(4, 3).to(dtype)
    mine = OwnStepOptimizer(ours.parameters(), Devices(np.ones(1), np.array([7.0])))
    sgd = torch.optim.SGD(theirs.parameters(), lr=1 / 7)
    for _ in range(50):
        mine.step(nn.functional.cross_entropy(ours(x.to(dtype)), y)[None])
        sgd.zero_grad()
        nn.functional.cross_entropy(theirs(x.to(dtype)), y).backward()
        sgd.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_what_the_switch_sees_is_the_mean_by_weights():
    devices = Devices(np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 5.0]))
    model = mlp(4, 3, 6).double()
    optimizer = OwnStepOptimizer(model.parameters(), devices)
    losses = next(model.parameters()).sum() * 0 + torch.tensor([1.0, 4.0, 10.0], dtype=torch.float64)
    weighed = optimizer.weigh(losses)
    assert optimizer.value == pytest.approx(0.5 * 1 + 0.3 * 4 + 0.2 * 10)
    own = np.array([0.5 / 1, 0.3 / 2, 0.2 / 5])  # what is differentiated: each device by its own step
    assert float(weighed.detach()) == pytest.approx(own @ [1, 4, 10] / own.sum())


def test_state_travels_through_a_file():
    made = problem(3)
    devices = constants(made, 1.0, 4.0)

    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.step(losses_of(model, made))

    whole = mlp(4, 3, 6).double()
    unbroken = OwnStepOptimizer(whole.parameters(), devices)
    steps(whole, unbroken, 30)
    first = mlp(4, 3, 6).double()
    optimizer = OwnStepOptimizer(first.parameters(), devices)
    steps(first, optimizer, 11)
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    second = mlp(4, 3, 6, seed=9).double()
    resumed = OwnStepOptimizer(second.parameters(), devices)
    second.load_state_dict(kept["model"])
    resumed.load_state_dict(kept["optimizer"])
    steps(second, resumed, 19)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))
    assert resumed.switched_at == unbroken.switched_at
    assert resumed.phase == unbroken.phase


def test_groups_and_schedulers_scale_the_step():
    made = problem(2)
    model = mlp(4, 3, 6).double()
    before = copy.deepcopy(model)
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}]
    optimizer = OwnStepOptimizer(groups, constants(made), Never())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step(losses_of(model, made))
    first = before[2].weight - model[2].weight
    schedule.step()
    assert torch.equal(model[0].weight, before[0].weight)
    assert optimizer.param_groups[1]["lr"] == 0.5
    with torch.no_grad():
        for p, q in zip(model.parameters(), before.parameters(), strict=True):
            p.copy_(q)
    optimizer.step(losses_of(model, made))
    assert torch.allclose(before[2].weight - model[2].weight, first / 2, atol=1e-15)


def test_grad_scaler_skips_what_overflowed():
    made = problem(2)
    model = mlp(4, 3, 6).double()
    optimizer = OwnStepOptimizer(model.parameters(), constants(made), At(3))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = mlp(4, 3, 6).double()
    other = OwnStepOptimizer(plain.parameters(), constants(made), At(3))
    for k in range(6):
        optimizer.zero_grad()
        weighted = optimizer.weigh(losses_of(model, made))
        scaler.scale(weighted * (float("inf") if k == 2 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        if k != 2:
            other.step(losses_of(plain, made))
    assert optimizer.switched_at == other.switched_at == 3
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.slow
def test_a_compiled_model_trains_alike():
    made = problem(2)
    model, plain = mlp(4, 3, 6).double(), mlp(4, 3, 6).double()
    compiled = torch.compile(model, backend="aot_eager")
    one, two = (OwnStepOptimizer(m.parameters(), constants(made)) for m in (model, plain))
    for _ in range(4):
        one.step(losses_of(compiled, made))
        two.step(losses_of(plain, made))
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_bad_input():
    made = problem(2)
    model = mlp(4, 3, 6).double()
    optimizer = OwnStepOptimizer(model.parameters(), constants(made))
    with pytest.raises(InvalidInput, match="one loss for each of 2 devices"):
        optimizer.weigh(torch.zeros(3))
    with pytest.raises(InvalidInput, match="the loss of device 'D2' is nan: its batch may be empty"):
        optimizer.step(torch.tensor([1.0, float("nan")], requires_grad=True))
    losses_of(model, made).sum().backward()
    with pytest.raises(InvalidInput, match=r"Plateau\(\) looks at f"):
        optimizer.step()
    with pytest.raises(InvalidInput, match="lr"):
        OwnStepOptimizer(model.parameters(), constants(made), lr=-1.0)


def test_the_documentation_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "torch.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "docs/torch.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "common phase since round 20" in printed
    assert "parameters, loss" in printed
