"""Many different devices by way of a few kinds: both ends hold, against an all-pairs program of every device."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.methods import GD, At, DecentralisedGD, Nesterov, Never, OwnStep
from ownstep.pep import few_kinds
from ownstep.pep.few_kinds import Above, Few
from ownstep.pep.search import Search
from ownstep.pep.solve.exact import reached
from ownstep.pep.trace.kinds import above, below, line, places
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting, canonical
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError
from tests.pep import independent

METRICS = ("value", "distance", "gradient")


def population(seed: int, devices: int = 4) -> Devices:
    """Unequal in everything."""
    rng = np.random.default_rng([17, seed])
    L = np.exp(rng.uniform(0, np.log(10), devices))
    w = rng.uniform(0.2, 2, devices)
    return Devices(w / w.sum(), L, L * rng.uniform(0, 0.4, devices))


def asked_of(method, devices: Devices, rounds: int, rstar: float, metric: str) -> Setting:
    return canonical(Setting(trace(method, devices, rounds), devices, 1.0, rstar, metric))[0]


def forced(asked: Setting, most: int) -> Few:
    on = line(asked.path, asked.devices)
    assert on is not None
    return few_kinds.enclose(Search(asked), on, 1e-6, most=most)


@pytest.mark.parametrize("seed", range(9))
def test_the_enclosure_holds_the_worst_case_of_all_devices(seed: int) -> None:
    """Against the program with every device and every condition, on another solver; more kinds are never wider."""
    devices, metric = population(seed, 5), METRICS[seed % 3]
    rstar, rounds = (0.0, 0.5, 2.0)[seed // 3], 1 + seed % 2
    method = OwnStep(At(1))
    asked, units = canonical(Setting(trace(method, devices, rounds), devices, 1.0, rstar, metric))
    truth = independent.worst_case(method, devices, rounds, 1.0, rstar, metric).value / units.metric(metric)
    two, more = forced(asked, 2), forced(asked, 4)
    for few in (two, more):
        assert few.lower <= truth * (1 + 1e-6)
        assert few.upper.proof.bound >= truth * (1 - 1e-6)
        assert few.worst is not None
    assert 0 < more.gap <= two.gap < 0.7


def test_copies_at_nodes_add_up_to_what_the_devices_send() -> None:
    """Every sum and f itself, of any gradients, by the weights, classes and ratios of the kinds; theta from NumPy."""
    devices, rng = population(3, 9), np.random.default_rng(3)
    asked = asked_of(OwnStep(At(2)), devices, 4, 0.5, "value")
    d, on = asked.devices, line(asked.path, asked.devices)
    assert on is not None
    nodes, label = places(on.t, d.weights, 4)
    assert len(set(label)) == 4
    assert {on.t.min(), on.t.max()} <= set(nodes) <= set(on.t)
    setting, groups = above(asked, on, nodes, local_optima=True, cap=1.0)
    theta = np.stack([np.interp(on.t, nodes, row) for row in np.eye(4)], axis=1)
    x, u = rng.normal(size=3), rng.normal(size=(9, 3))  # u = grad h_i + s_i
    a = d.L - d.mu
    gradients = d.mu[:, None] * x + a[:, None] * u
    for k, mix in enumerate([*asked.path.mixes, d.weights]):
        total = np.zeros(3)
        for b, group in enumerate(groups):
            p = d.weights * theta[:, b]
            mean = (p * a) @ u / (p @ a)
            factor = group.mix[k] if k < 4 else group.weight
            total += factor * (group.mu * x + (group.L - group.mu) * mean)
            assert group.own == pytest.approx((d.mu / a)[theta[:, b] > 0].max() * (group.L - group.mu))
        np.testing.assert_allclose(total, mix @ gradients, rtol=1e-12)
    assert setting.devices.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("rstar", [0.0, 0.7])
def test_one_function_for_a_cluster_is_an_instance_of_its_devices(rstar: float) -> None:
    """The cluster's program and the replay on the devices themselves, with their own steps, meet."""
    asked = asked_of(OwnStep(At(1)), population(5, 6), 2, rstar, "value")
    on = line(asked.path, asked.devices)
    assert on is not None
    _, label = places(on.t, asked.devices.weights, 2)
    search = Search(asked, groups=below(asked, label, local_optima=rstar > 0))
    search.prepare()
    search.run(1e-6)
    assert search.lower == pytest.approx(search.best.proof.bound, rel=1e-5)
    if rstar:  # the member whose minimiser is furthest must be the one that is looked at
        turned = tuple(replace(part, members=part.members[::-1]) for part in search.worst.parts)
        assert reached(asked, replace(search.worst, parts=turned)) == 0.0


def test_own_minimisers_count_with_the_largest_of_a_node() -> None:
    """With the mean of e_i = mu_i / (L_i - mu_i) in place of the largest the upper end would fall below the truth."""
    devices = Devices(np.array([0.1, 0.6, 0.3]), np.array([1.0, 1.1, 8.0]), np.array([0.45, 0.0, 0.0]))
    method, rounds, rstar, metric = OwnStep(At(2)), 2, 3.0, "value"
    asked, units = canonical(Setting(trace(method, devices, rounds), devices, 1.0, rstar, metric))
    truth = independent.worst_case(method, devices, rounds, 1.0, rstar, metric).value / units.metric(metric)
    d, on = asked.devices, line(asked.path, asked.devices)
    assert on is not None
    nodes = np.array([on.t.min(), on.t.max()])

    def upper(cap: float, mean: bool = False) -> float:
        setting, groups = above(asked, on, nodes, local_optima=True, cap=cap)
        if mean:
            p = d.weights * np.interp(on.t, nodes, [0.0, 1.0])
            groups = [replace(g, own=b * float(p @ d.mu / p.sum())) for b, g in enumerate(groups)]
        search = Above(setting, groups=groups)
        search.prepare()
        search.run(1e-7)
        return search.best.proof.bound

    assert upper(1.0, mean=True) < truth * (1 - 1e-3)
    assert all(upper(cap) > truth for cap in (0.0, 0.5, 1.0))


def test_clusters_stand_for_sums_of_their_devices() -> None:
    """With one h and one s: every sum and f, of the devices and of the one function; the furthest minimiser first."""
    devices, rng = population(4, 7), np.random.default_rng(4)
    asked = asked_of(OwnStep(At(2)), devices, 3, 0.5, "value")
    d, label = asked.devices, np.array([1, 0, 1, 2, 0, 1, 0])
    groups = below(asked, label, local_optima=True)
    assert [sorted(g.members) for g in groups] == [[1, 4, 6], [0, 2, 5], [3]]
    assert all(g.own is None for g in below(asked, label, local_optima=False))
    x, u = rng.normal(size=3), rng.normal(size=(3, 3))
    a = d.L - d.mu
    for b, g in enumerate(groups):
        index = list(g.members)
        assert g.weight == pytest.approx(d.weights[index].sum())
        e = d.mu[index] / a[index]
        assert e[0] == e.min()
        assert g.own == pytest.approx(e[0] * (g.L - g.mu))
        gradients = d.mu[index][:, None] * x + np.outer(a[index], u[b])
        for k, mix in enumerate([*asked.path.mixes, d.weights]):
            slope = (g.L - g.mu) * u[b]
            seen = g.mix[k] * slope + g.pull[k] * x if k < 3 else g.weight * (slope + g.mu * x)
            np.testing.assert_allclose(seen, np.asarray(mix)[index] @ gradients, rtol=1e-12)


def cost_of_nodes(t, w, nodes, signed: bool) -> float:
    """Each device between nodes tau and tau' adds w (t - tau)(tau' - t) / unit^2."""
    unit = np.abs(t) if signed else np.abs(t).max()
    right = np.clip(np.searchsorted(nodes, t), 1, len(nodes) - 1)
    return float(np.sum(w * (t - nodes[right - 1]) * (nodes[right] - t) / unit**2))


def spread_of_clusters(t, w, label, signed: bool) -> float:
    """Weighted squares of how far log t is from its cluster's mean."""
    u, total = np.log(np.abs(t)) if signed else t, 0.0
    for b in set(label):
        mine = label == b
        total += float(w[mine] @ (u[mine] - w[mine] @ u[mine] / w[mine].sum()) ** 2)
    return total


@pytest.mark.parametrize("kinds", [2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_nodes_and_clusters_are_the_best_of_all(seed: int, kinds: int) -> None:
    """By trying every choice of nodes, and every way to cut the line; equal t, and t of both signs."""
    rng = np.random.default_rng([8, seed])
    t = rng.choice(np.exp(rng.uniform(0, 3, 7)), 9) * (-1 if seed % 3 == 1 else 1)
    t = t - t.mean() * (seed % 3 == 2)
    w = rng.uniform(0.1, 1, 9)
    nodes, label = places(t, w, kinds)
    values, signed = np.unique(t), seed % 3 != 2
    count = min(kinds, len(values))
    ends, inner = (values[0], values[-1]), values[1:-1]
    costs = [
        cost_of_nodes(t, w, np.array(sorted({*ends, *more})), signed)
        for more in itertools.combinations(inner, min(count - 2, len(inner)))
    ]
    assert (np.diff(nodes) > 0).all()
    assert {*ends} <= {*nodes} <= {*values}
    assert len(nodes) == count
    assert cost_of_nodes(t, w, nodes, signed) == pytest.approx(min(costs), rel=1e-9, abs=1e-12)
    cuts = [
        spread_of_clusters(t, w, np.searchsorted(values[list(at)], t, side="right"), signed)
        for at in itertools.combinations(range(1, len(values)), count - 1)
    ]
    assert len({*label}) == count
    assert spread_of_clusters(t, w, label, signed) == pytest.approx(min(cuts), rel=1e-9, abs=1e-12)
    for b in range(count):
        assert (label[(t >= t[label == b].min()) & (t <= t[label == b].max())] == b).all()


def test_one_value_has_one_cluster_and_many_are_thinned_out(monkeypatch) -> None:
    """Of more different t than are considered, both ends stay candidates, and every device has its cluster."""
    _, label = places(np.full(4, 2.0), np.full(4, 0.25), 3)
    assert label.tolist() == [0] * 4
    monkeypatch.setattr("ownstep.pep.trace.kinds.CANDIDATES", 10)
    t = np.linspace(1, 3, 101)
    nodes, label = places(t, np.full(101, 1 / 101), 4)
    assert (nodes[0], nodes[-1], len(nodes)) == (1, 3, 4)
    assert {*nodes} <= {*t[np.linspace(0, 100, 10).round().astype(int)]}
    assert (np.diff(label) >= 0).all()
    assert {*label} == {0, 1, 2, 3}


def test_lines() -> None:
    devices = population(1, 5)
    for method, straight in ((OwnStep(At(2)), True), (GD(), False), (Nesterov("mean"), False)):
        found = line(trace(method, devices, 4), devices)  # gradient descent's ratios are one point: nothing to enclose
        assert (found is not None) == straight
    path = trace(OwnStep(At(2)), devices, 4)
    found, ratios = line(path, devices), np.stack(path.mixes) / devices.weights
    np.testing.assert_allclose(found.at(found.t), ratios, rtol=1e-11)
    assert found.beta[2:].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found.at(np.zeros(1))[:, 0], found.alpha)
    bent = replace(path, mixes=(path.mixes[0], path.mixes[1] ** 2, *path.mixes[2:]))
    assert line(bent, devices) is None
    nearly = replace(path, mixes=(path.mixes[0] * (1 + 1e-10 * np.array([1, 0, 0, 0, 0])), *path.mixes[1:]))
    assert line(nearly, devices) is None
    within = replace(path, mixes=(path.mixes[0] * (1 + 1e-11 * np.array([1, 0, 0, 0, 0])), *path.mixes[1:]))
    assert line(within, devices) is not None
    scaled = replace(path, mixes=tuple(a * m for a, m in zip((1e-9, -3.0, 1e6, 0.0), path.mixes, strict=True)))
    np.testing.assert_allclose(
        line(scaled, devices).at(line(scaled, devices).t), np.stack(scaled.mixes) / devices.weights, rtol=1e-11
    )
    assert line(trace(DecentralisedGD(), devices, 2), devices) is None
    assert line(trace(OwnStep(At(2)), devices, 0), devices) is None


def test_few_kinds_through_the_front_door(monkeypatch, capsys, tmp_path) -> None:
    """Bound, instance and status say that kinds stand for the devices; a certificate claims nothing."""
    monkeypatch.setattr(few_kinds, "EXACT", 0.0)
    monkeypatch.setattr(few_kinds, "LADDER", (2, 3))
    devices = population(2, 6)
    bound = pep.worst_case(OwnStep(At(1)), devices, 2, 1.0, 0.5)
    assert bound.kinds == 3
    assert "6 different devices in 3 kinds" in bound.status
    assert 0 < bound.gap < 0.5
    assert (bound.rounds, bound.r0, bound.rstar, bound.metric) == (2, 1.0, 0.5, "value")
    assert bound.size >= few_kinds.columns(2, 3, True)
    assert bound.conditions > bound.solves > 0
    assert bound.seconds > 0
    found = bound.instance()
    assert found.error == pytest.approx(bound.lower, rel=1e-6)
    assert sorted(i for loss in found.losses for i in loss.members) == list(range(6))
    apart = pep.worst_case(OwnStep(At(1)), devices, 2, 1.0, 0.5, symmetry=False)
    assert apart.kinds is None
    assert bound.lower <= apart.upper
    assert apart.lower <= bound.upper
    with pytest.raises(OwnstepError, match="by way of 3 kinds"):
        bound.certify()
    listed = tmp_path / "L.txt"
    listed.write_text("\n".join(map(repr, devices.L.tolist())) + "\n")
    with pytest.raises(SystemExit) as stopped:
        main(["pep", "--L", f"@{listed}", "--rounds", "2", "--switch", "1", "--rstar", "0.5", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert stopped.value.code == 0
    assert (answer["kinds"], answer["devices"]) == (3, 6)
    assert answer["lower"] < answer["upper"]


def test_ten_different_devices_over_three_rounds_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs are exact, certificates and all; what a few kinds say about the same devices encloses that."""
    devices = pep.repeated(np.linspace(0.5, 3, 10), 0.1)
    asked = (OwnStep(At(1)), devices, 3, 1.0, 0.3)
    exact = pep.worst_case(*asked)
    assert exact.kinds is None
    assert exact.gap <= 1e-5
    assert exact.size == few_kinds.columns(3, 10, True) == 60
    monkeypatch.setattr(few_kinds, "EXACT", 0.0)
    monkeypatch.setattr(few_kinds, "EFFORT", 0.2)
    few = pep.worst_case(*asked)
    assert few.kinds == 3
    assert few.lower <= exact.upper
    assert few.upper >= exact.lower
    assert few.gap > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(("number", "kinds", "width"), [(50, None, 1e-5), (100, 20, 1e-2)])
def test_many_different_devices_over_two_rounds(number: int, kinds: int | None, width: float) -> None:
    """Fifty once used 7.4 GB, and a hundred died inside the solver without a word; more devices change little here."""
    options = (2, 1.0, 0.3)
    bound = pep.worst_case(OwnStep(At(1)), pep.repeated(np.linspace(0.5, 3, number), 0.1), *options)
    assert (bound.kinds, bound.gap < width) == (kinds, True)
    ten = pep.worst_case(OwnStep(At(1)), pep.repeated(np.linspace(0.5, 3, 10), 0.1), *options)
    assert bound.upper == pytest.approx(ten.upper, rel=0.01)


@pytest.mark.parametrize(("rounds", "number", "rstar"), [(2, 3, 0.5), (4, 2, 0.0), (1, 5, 0.5)])
def test_columns_are_counted_before_there_are_any(rounds: int, number: int, rstar: float) -> None:
    devices = population(3, number)
    setting = Setting(trace(OwnStep(Never()), devices, rounds), devices, 1.0, rstar, "value")
    search = Search(setting)
    search.prepare()
    assert len(search.gram.columns) == few_kinds.columns(rounds, number, search.local_optima)


@pytest.mark.parametrize("number", [2, 4, 30])
def test_a_few_devices_are_kept_apart_however_many_rounds_there_are(number: int) -> None:
    """Two devices at K = 400 came out as "2 different devices in 2 kinds", with no lower end and after 300 s."""
    devices = population(2, number)
    setting = Setting(trace(OwnStep(At(200)), devices, 400), devices, 1.0, 0.5, "value")
    assert (few_kinds.on_line(Search(setting), 1.0) is None) == (number < 5)


@pytest.mark.parametrize(
    ("option", "number", "message"),
    [
        ("--count", f"{10**14},1", "100,000,000,000,001 devices would need"),
        ("--rounds", f"{10**9}", "rounds would need"),
    ],
)
def test_memory_is_counted_before_it_is_taken(option: str, number: str, message: str, capsys) -> None:
    """Both went on until the machine had no memory left."""
    with pytest.raises(SystemExit) as stopped:
        main(["pep", "--L", "1,2", option, number])
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert "GB of memory" in said


@pytest.mark.parametrize(("text", "message"), [("1,2\nx\n", "line 2"), ("", "no numbers")])
def test_files_of_numbers_that_cannot_be_read(text: str, message: str, capsys, tmp_path) -> None:
    path = tmp_path / "L.txt"
    path.write_text(text)
    for name, expected in ((path, message), (tmp_path / "none", "cannot read")):
        with pytest.raises(SystemExit) as stopped:
            main(["pep", "--L", f"@{name}"])
        assert stopped.value.code == 2
        assert expected in capsys.readouterr().err
