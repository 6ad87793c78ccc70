"""What a seed, a round and an epoch decide: another gives something else, the same gives the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ownstep import partition
from ownstep.engines import Bernoulli, Bursts, Cohort, Stragglers, compare, run, tune
from ownstep.engines.tuning import tune_step
from ownstep.methods import GD, FedAvgM
from ownstep.methods.gossip.graphs import erdos_renyi
from ownstep.paper import fig2_w8a
from ownstep.paper.appendix import mnist as mnist_experiment
from ownstep.paper.machinery import contest, mnist_problem
from ownstep.paper.machinery.bootstrap import interval
from ownstep.paper.ours import beyond

from .conftest import make_logistic, unequal_owner

RULES = [Bernoulli(0.5), Cohort(4), Bursts(0.2, 0.3), Stragglers(1.0, 0.7)]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
def test_participants(rule):
    """Rounds are drawn apart from each other, and so are the rounds of two seeds."""

    def who(seed):
        return np.array([dataclasses.replace(rule, seed=seed).present(k, 9) for k in range(1, 60)])

    np.testing.assert_array_equal(who(3), who(3))
    assert len(np.unique(who(3), axis=0)) > 20
    assert (who(3) != who(4)).mean() > 0.2
    later = [np.mean(who(3)[lag:] == who(4)[:-lag]) for lag in (1, 2, 3)]
    assert max(later) < 0.95  # the second seed is not the first a few rounds later


def test_the_default_seed_of_participants_is_zero():
    for rule in RULES:
        assert rule.seed == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: partition.iid(60, 4, seed),
        lambda seed: partition.shards(np.arange(60) % 3, 4, 2, seed),
        lambda seed: partition.dirichlet(np.arange(60) % 3, 4, 0.5, seed),
        lambda seed: partition.make("dirichlet", np.ones((60, 1)), np.arange(60) % 3, 4, seed, alpha=0.5),
        lambda seed: partition.make("shards", np.ones((60, 1)), np.arange(60) % 3, 4, seed),
        lambda seed: partition.make("iid", np.ones((60, 1)), np.arange(60) % 3, 4, seed),
        lambda seed: mnist_problem.dirichlet(4, 0.5, seed)(None, np.arange(60) % 3),
        lambda seed: mnist_problem.two_classes(4, seed)(np.ones((60, 2)), np.arange(60) % 10),
    ],
)
def test_splits(make):
    seen = [make(seed).device_of for seed in (0, 0, 1, 2)]
    np.testing.assert_array_equal(seen[0], seen[1])
    for a, b in ((0, 2), (0, 3), (2, 3)):
        assert (seen[a] != seen[b]).any()


def test_samples_of_experiments():
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.standard_normal((900, 12)), 2 * rng.standard_normal((900, 12))]) / 2
    labels = np.repeat([-1, 1], 900)
    for draw in (
        lambda seed: fig2_w8a.subset(rows, labels, seed),
        lambda seed: mnist_experiment.choose(labels, 5, seed),
        lambda seed: beyond._per_class(labels, 5, seed),
        lambda seed: beyond.synthetic(seed).rows(0).ravel(),
        lambda seed: mnist_problem._images(True, seed)[1],
    ):
        first, same, other = (np.asarray(draw(seed)) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, same)
        assert first.shape != other.shape or (first != other).any()


def test_repeated_contests_go_through_the_seeds():
    arms = contest.repeated(["a", "b"], lambda name, seed, _: {"made": [name, seed]}, 5, 3, None)
    assert [arm["made"] for arm in arms.values()] == [[n, s] for n in "ab" for s in (5, 6, 7)]
    assert [arm["seed"] for arm in arms.values()] == [5, 6, 7] * 2
    assert list(contest.firsts(arms)) == ["a", "b"]


def test_graphs():
    first, same, other = (erdos_renyi(12, 0.4, seed) for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()


def test_intervals():
    data = [1.0, 1.53, 2.11, 4.07, 2.9]
    assert interval(data, 0, 30) == interval(data, 0, 30) != interval(data, 1, 30)


def test_searches(small_logistic):
    grid = {"client_step": (0.1, 0.5, 2.0), "momentum": (0.0, 0.5, 0.9)}
    first, same, other = (tune(FedAvgM(), small_logistic, 5, grid=grid, budget=4, seed=s) for s in (0, 0, 1))
    assert first.trials == same.trials != other.trials
    first, same, other = (tune_step(small_logistic, 5, seed=s, coarse=4, fine=2) for s in (0, 0, 1))
    assert first.trials == same.trials
    assert not {s for s, _, _ in first.trials} & {s for s, _, _ in other.trials}
    through = [run(GD("tuned"), small_logistic, 5, seed=s).settings["tuning"]["trials"] for s in (0, 0, 1)]
    assert through[0] == through[1] != through[2]
    races = [compare(small_logistic, {"GD tuned": GD("tuned")}, rounds=5, seed=s) for s in (0, 0, 1)]
    tuned = [race.histories["GD tuned"].settings["tuning"]["trials"] for race in races]
    assert tuned[0] == tuned[1] != tuned[2]


def test_estimators():
    from ownstep.sklearn import OwnStepClassifier

    rows, labels = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
    made = [OwnStepClassifier("iid", 3, random_state=s).fit(rows, labels) for s in (0, 0, 1)]
    assert made[0].gain_ == made[1].gain_ != made[2].gain_


# mini-batches, networks and sampled constants need torch

torch = pytest.importorskip("torch")

from ownstep.problems import Network  # noqa: E402
from ownstep.problems.network.batches import PerDevice, Pooled, Stratified  # noqa: E402
from ownstep.problems.network.models import CropFlip, cifar_cnn, mlp, mnist_cnn  # noqa: E402
from ownstep.smoothness.sampled import differences  # noqa: E402

SPLIT = partition.given(np.random.default_rng(0).permutation(unequal_owner(45, 3)))


@pytest.mark.parametrize("rule", [Pooled(9), PerDevice(3), Stratified(9)], ids=lambda r: type(r).__name__)
def test_batches(rule):
    """An epoch deals every sample of a deck once; epochs, decks and seeds are shuffled apart."""
    dealer = rule.deal(SPLIT, seed=5)
    for d, deck in enumerate(dealer.decks):
        rounds, quota = len(deck) // dealer.quota[d], dealer.quota[d]
        epochs = []
        for epoch in range(3):
            dealt = np.concatenate([dealer._cards(d, epoch * rounds + k) for k in range(rounds)])
            assert len(np.unique(dealt)) == rounds * quota
            assert np.isin(dealt, deck).all()
            epochs.append(dealt.tolist())
        assert len({tuple(e) for e in epochs}) == 3  # shuffled anew
        if len(deck) % quota == 0:
            assert all(sorted(e) == sorted(deck) for e in epochs)
    rounds = [dealer.indices(k) for k in range(20)]
    assert len({tuple(r) for r in rounds}) == 20
    again = rule.deal(SPLIT, seed=5)
    for k in (7, 19, 0):  # out of order, from a fresh start: a resumed run sees what it would have seen
        np.testing.assert_array_equal(again.indices(k), rounds[k])
    other = rule.deal(SPLIT, seed=6)
    assert sum((other.indices(k) != rounds[k]).any() for k in range(20)) > 15
    if not isinstance(rule, Pooled):
        for k in range(3):
            assert np.bincount(SPLIT.device_of[rounds[k]], minlength=3).tolist() == dealer.quota.tolist()
        kept = dealer.keep(np.array([0, 2]), np.flatnonzero(SPLIT.device_of != 1))
        held = np.flatnonzero(SPLIT.device_of != 1)
        for k in range(12):
            whole = rounds[k][SPLIT.device_of[rounds[k]] != 1]
            np.testing.assert_array_equal(held[kept.indices(k)], whole)


def test_devices_of_equal_size_are_shuffled_apart():
    dealer = PerDevice(1).deal(partition.given(np.arange(40) % 2), seed=0)
    first, second = (np.concatenate([dealer._cards(d, k) for k in range(20)]) // 2 for d in (0, 1))
    assert (first != second).any()


def test_stratified_batches_share_out_by_size():
    dealer = Stratified(10).deal(partition.given(np.repeat([0, 1, 2], [50, 27, 23])), 0)
    assert dealer.quota.tolist() == [5, 3, 2]


def test_a_network_s_batches_and_their_changes():
    inputs, labels = torch.rand(40, 1, 8, 8), np.arange(40) % 4
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))

    def losses(seed, *rounds):
        made = Network(
            model, inputs, labels, partition.by_label(labels), batch=PerDevice(2), augment=CropFlip(), seed=seed
        )
        out = []
        for k in rounds:
            made.begin_round(k)
            out.append(made.mix(made.x0(), made.weights)[0])
        return np.array(out), [made.augmentation(k) for k in rounds]

    (a, drawn), (b, _), (c, others) = losses(0, 0, 1, 2), losses(0, 2, 0), losses(1, 0, 1, 2)
    np.testing.assert_array_equal(a[[2, 0]], b)
    assert len(np.unique(a, axis=0)) == 3
    assert (a != c).all()
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[0] != others[0]).any()


def test_initial_parameters():
    for build in (mnist_cnn, cifar_cnn, lambda seed: mlp(4, 3, seed=seed)):
        first, same, other = (torch.nn.utils.parameters_to_vector(build(seed).parameters()) for seed in (0, 0, 1))
        assert torch.equal(first, same)
        assert not torch.equal(first, other)
    before = torch.random.get_rng_state()
    mlp(4, 3, seed=7)
    assert torch.equal(before, torch.random.get_rng_state())


def test_sampled_constants():
    rng = np.random.default_rng(0)
    made = Network(mlp(4, 3, seed=0), torch.as_tensor(rng.standard_normal((60, 4))).float(), np.arange(60) % 3,
                   partition.given(np.arange(60) % 3))  # fmt: skip
    first, same, other, longer = (
        differences(made, draws=n, samples=6, seed=s, progress=False) for s, n in ((0, 8), (0, 8), (1, 8), (0, 16))
    )
    np.testing.assert_array_equal(first.values, same.values)
    assert (first.values != other.values).all()
    assert (longer.values >= first.values).all()  # more draws go on where fewer ended


def test_a_logistic_fixture_depends_on_its_seed():
    assert make_logistic(seed=0).value(np.ones(4)) != make_logistic(seed=1).value(np.ones(4))
