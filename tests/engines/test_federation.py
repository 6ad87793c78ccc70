"""The federation without its processes: Flower's messages and records, handed over directly."""

from __future__ import annotations

import io
import json
import logging
import shutil
import subprocess
import time
import tomllib
import types
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

flwr = pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402

import ownstep  # noqa: E402
from ownstep.cli import main  # noqa: E402
from ownstep.engines import Bernoulli, Cohort, Outages, describe, run  # noqa: E402
from ownstep.engines.federation import coordinator as fed  # noqa: E402
from ownstep.engines.federation import hessians  # noqa: E402
from ownstep.engines.federation.app import init  # noqa: E402
from ownstep.engines.federation.nodes import Nodes  # noqa: E402
from ownstep.engines.federation.secure import SecurePlus, _Proxy, _Strategy  # noqa: E402
from ownstep.engines.federation.site import Site, load_open_site, site_app  # noqa: E402
from ownstep.engines.federation.wire import Question, Refused, _losses, checked, size  # noqa: E402
from ownstep.engines.local.sketching import Sketching  # noqa: E402
from ownstep.methods import GD, METHODS, At, Nesterov, Never, OwnCurvature, OwnStep, Scaffold  # noqa: E402
from ownstep.problems import BinaryLogistic  # noqa: E402
from ownstep.smoothness import Smoothness  # noqa: E402
from ownstep.support.errors import InvalidInput, OwnstepError  # noqa: E402
from ownstep.support.memory import limited_memory  # noqa: E402

from ..conftest import make_least_squares, make_logistic  # noqa: E402
from . import written_by_0_1  # noqa: E402
from .federation_grid import SERVED, DirectGrid, apps_of, sites_of  # noqa: E402

ALL = fed.Terms(3)
ROUGH = 1e-6
"""Steps that are quotients of differences of gradients carry the rounding of those differences from round to round."""
ADAPTIVE = OwnStep(smoothness="adaptive")
logging.getLogger("flwr").setLevel(logging.ERROR)


def assert_same_run(ours, local, tolerance=1e-12):
    for column in ("value", "step"):
        np.testing.assert_allclose(ours.columns[column], local.columns[column], atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(ours.phase, local.phase)
    np.testing.assert_allclose(ours.x, local.x, atol=tolerance)
    assert (ours.stopped, ours.switched_at) == (local.stopped, local.switched_at)


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("make", [make_logistic, partial(make_least_squares, shares=True)], ids=["logistic", "squares"])
def test_every_method_with_a_server_gives_the_iterates_of_the_local_engine(name, make):
    problem = make()
    pooled = describe(problem).devices.L_pooled
    method = METHODS[name]()
    ours = fed.run(method, DirectGrid(apps_of(problem)), 15, ALL, L_pooled=pooled)
    local = run(method, problem, 15)
    if getattr(method, "searches", False):  # once it has arrived, its steps are of rounding's size and making
        lowest = np.minimum.accumulate(ours.value), np.minimum.accumulate(local.value)
        np.testing.assert_allclose(*lowest, atol=ROUGH)
        np.testing.assert_allclose(ours.best_x, local.best_x, atol=1e-4)
    else:
        assert_same_run(ours, local, ROUGH if name in ("adgd", "barzilai_borwein") else 1e-12)


LOCAL = [name for name, kind in METHODS.items() if "federated" in kind.__module__]
"""Methods whose devices take several steps: their sums are of the devices' vectors, in the order of the devices."""


def with_local_steps(name):
    """Several steps per round also where the default is one."""
    kind = METHODS[name]
    return kind(local_steps=3) if getattr(kind, "local_steps", 5) == 1 else kind()


def assert_same_bits(ours, local):
    np.testing.assert_array_equal(ours.x, local.x)
    np.testing.assert_array_equal(
        ours.took_part, np.ones_like(ours.took_part) if local.took_part is None else local.took_part
    )
    for column in ("bytes_up", "bytes_down", "participants"):
        np.testing.assert_array_equal(ours.columns[column], local.columns[column], column)


@pytest.mark.parametrize("name", LOCAL)
def test_a_federation_has_the_bits_and_bytes_of_the_local_engine(name, small_logistic):
    """What the sites send is added in their order, whichever answers first; batches and coins come from (seed, k)."""
    method = with_local_steps(name)
    local = run(method, small_logistic, 15)
    assert_same_bits(fed.run(method, DirectGrid(apps_of(small_logistic)), 15, ALL), local)
    assert_same_bits(fed.run(method, DirectGrid(apps_of(small_logistic), backwards=True), 15, ALL), local)


@pytest.mark.parametrize("missing", ["rescale", "drop"])
@pytest.mark.parametrize("name", [name for name in LOCAL if not getattr(METHODS[name], "needs_everyone", False)])
def test_the_same_seed_asks_the_same_sites_and_gives_the_same_bits(name, missing, small_logistic):
    """Client sampling: who, how many bytes, and the same bits; another seed asks others."""
    method, rule = with_local_steps(name), Cohort(2, missing, seed=4)
    local = run(method, small_logistic, 12, participation=rule)
    grid = DirectGrid(apps_of(small_logistic), backwards=True)
    ours = fed.run(method, grid, 12, replace(ALL, missing=missing, participation=rule))
    assert_same_bits(ours, local)
    assert sum(grid.sent.values()) == 3 + 2 * 13  # who are you, then two sites per round and at the end
    assert ours.settings["absences"] == []  # nobody was missing: they were not asked
    other = run(method, small_logistic, 12, participation=Cohort(2, missing, seed=5))
    assert (other.took_part != local.took_part).any()


def test_one_sum_over_all_rows_agrees_to_rounding(small_logistic):
    rule = Cohort(2, "drop", seed=4)
    local = run(OwnStep(), small_logistic, 12, participation=rule)
    terms = replace(ALL, missing="drop", participation=rule)
    ours = fed.run(OwnStep(), DirectGrid(apps_of(small_logistic)), 12, terms)
    np.testing.assert_array_equal(ours.took_part, local.took_part)
    np.testing.assert_allclose(ours.x, local.x, rtol=1e-12)
    other = fed.run(OwnStep(), DirectGrid(apps_of(small_logistic)), 12, replace(terms, participation=Cohort(2, seed=5)))
    assert (other.took_part != local.took_part).any()


@pytest.mark.parametrize("name", ["lbfgs", "own_curvature", "newton", "delta_sgd", "fedsps", "fedexp"])
@pytest.mark.parametrize("missing", ["rescale", "last"])
def test_sampled_sites_give_the_iterates_of_the_local_engine(name, missing, small_logistic):
    method, rule = METHODS[name](), Cohort(2, missing, seed=1)
    if name in ("delta_sgd", "fedsps") and missing == "last":
        rule = Cohort(1, missing, seed=1)
    local = run(method, small_logistic, 8, participation=rule)
    terms = replace(ALL, missing=missing, participation=rule)
    ours = fed.run(method, DirectGrid(apps_of(small_logistic)), 8, terms)
    np.testing.assert_allclose(ours.x, local.x, atol=1e-8)
    np.testing.assert_array_equal(ours.took_part, local.took_part)


def test_sampling_has_its_limits(small_logistic, tmp_path):
    grid = DirectGrid(apps_of(small_logistic))
    terms = replace(ALL, participation=Bernoulli(0.01, seed=0))
    with pytest.raises(OwnstepError, match=r"asks nobody in round \d: Cohort"):
        fed.run(METHODS["gd"](), grid, 5, terms)
    with pytest.raises(InvalidInput, match="needs every device in every round"):
        fed.run(METHODS["scaffnew"](), grid, 5, replace(ALL, participation=Cohort(2)))
    with pytest.raises(InvalidInput, match="secure aggregation asks every site"):
        replace(ALL, participation=Cohort(2), secure=SecurePlus())
    fed.run(METHODS["gd"](), grid, 3, replace(ALL, participation=Cohort(2)), folder=tmp_path)
    with pytest.raises(OwnstepError, match="its participation differs"):
        fed.run(METHODS["gd"](), grid, 5, replace(ALL, participation=Cohort(1)), folder=tmp_path)


def test_the_batches_of_a_site_are_those_of_the_device():
    """Drawn from (seed, round, device): the same samples whether a process holds all devices or one."""
    torch = pytest.importorskip("torch")
    from ownstep.problems import PerDevice
    from ownstep.problems.network.subset import keep

    from .cluster_worker import network

    whole = network(PerDevice(2))
    for k in (0, 3, 11):
        whole.begin_round(k)
        at = whole._batch_indices()
        for i in range(len(whole.weights)):
            alone = keep(whole, [i])
            alone.begin_round(k)
            mine = whole.parts[0][0][at[whole.device_of[at] == i]]
            assert torch.equal(alone.parts[0][0][alone._batch_indices()], mine)


def test_curvature_is_measured_from_what_is_sent_anyway(small_logistic, tmp_path):
    ours = fed.run(ADAPTIVE, DirectGrid(apps_of(small_logistic, smoothness="adaptive")), 12, ALL)
    local = run(ADAPTIVE, small_logistic, 12, smoothness="adaptive")
    assert_same_run(ours, local, ROUGH)
    assert ours.columns["bytes_up"][3] == 3 * 8 * (small_logistic.dim + 1) < local.columns["bytes_up"][3]
    # a restarted coordinator remembers the last gradients, so nothing changes
    fed.run(ADAPTIVE, DirectGrid(apps_of(small_logistic, smoothness="adaptive")), 5, ALL, folder=tmp_path)
    again = fed.run(ADAPTIVE, DirectGrid(apps_of(small_logistic, smoothness="adaptive")), 12, ALL, folder=tmp_path)
    np.testing.assert_array_equal(again.x, ours.x)


@pytest.mark.parametrize("missing", ["rescale", "drop", "last"])
def test_curvature_of_sites_that_come_and_go(small_logistic, missing):
    apps = apps_of(small_logistic, smoothness="adaptive")
    # missing at first, so that this run knows from the start what the other is told: somebody may be absent
    grid = DirectGrid(apps, lambda node, sent: node == 102 and (sent == 1 or 4 <= sent < 7))
    ours = fed.run(ADAPTIVE, grid, 10, fed.Terms(3, deadline=0.2, missing=missing))
    gone = Outages(((1, 0, 1), (1, 3, 6)), missing=missing)
    local = run(ADAPTIVE, small_logistic, 10, smoothness="adaptive", participation=gone)
    np.testing.assert_array_equal(ours.took_part, local.took_part)
    np.testing.assert_allclose(ours.x, local.x, atol=ROUGH)


def test_a_race_sends_one_message_a_site_and_round_for_all_methods(small_logistic):
    methods = {"ours": OwnStep(At(4)), "gd": GD("mean"), "scaffold": Scaffold()}
    grid = DirectGrid(apps_of(small_logistic))
    histories = fed.race(methods, grid, 6, ALL)
    assert set(grid.sent.values()) == {1 + 7}  # who are you; x^0 to x^6
    for name, method in methods.items():
        assert_same_run(histories[name], run(method, small_logistic, 6))


def test_bytes_are_those_of_the_vectors_and_numbers_that_travel(small_logistic):
    ours = fed.run(OwnStep(At(2)), DirectGrid(apps_of(small_logistic)), 3, ALL)
    local = run(OwnStep(At(2)), small_logistic, 3)
    for column in ("bytes_up", "bytes_down", "participants"):
        np.testing.assert_array_equal(ours.columns[column], local.columns[column])
    vector = 8 * small_logistic.dim
    nesterov = fed.run(Nesterov("mean"), DirectGrid(apps_of(small_logistic)), 3, ALL)
    # round 0 looks where it stands; later f is measured at x^k and the gradient is wanted at y^k
    assert nesterov.columns["bytes_down"].tolist()[1:] == [3 * (2 * vector + 8)] * 2 + [0]
    assert nesterov.columns["bytes_up"].tolist()[1:] == [3 * (vector + 16)] * 2 + [0]


def test_a_torch_network_in_single_precision():
    torch = pytest.importorskip("torch")
    from ownstep.problems.network.subset import keep

    from ..network import helpers

    problem = helpers.problem(devices=3, dtype=torch.float32)
    one = Smoothness(np.ones(1), "estimate", "given")
    sites = [Site(name, keep(problem, [i]), smoothness=one) for i, name in enumerate(problem.names)]
    grid = DirectGrid([site_app(lambda context, s=s: s) for s in sites])
    ours = fed.run(GD(0.1), grid, 4, ALL, x0=problem.x0().numpy())
    local = run(GD(0.1), problem, 4, devices=helpers.constants(problem))
    assert ours.x.dtype == np.float32
    assert ours.settings["smoothness"] == "estimate"
    np.testing.assert_allclose(ours.x, local.x, atol=1e-6)


# --- numbers that cannot be true --------------------------------------------------------------------------------------


def once(change, at):
    """A site that tells the truth but for one reply, the n-th."""
    count = []

    def wrapped(content):
        count.append(1)
        return change(content) if len(count) == at else content

    return wrapped


def scaled(factor):
    def change(content):
        vector = content.array_records["answer"]["0"].numpy() * factor
        return _vector(content, Array(vector))

    return change


@pytest.mark.parametrize("factor", [1e200, 1e100, 1e6])
def test_one_absurd_reply_is_refused_named_and_costs_that_round_alone(small_logistic, tmp_path, factor):
    apps = apps_of(small_logistic)
    apps[1] = lying_app(sites_of(small_logistic)[1], once(scaled(factor), 4))
    ours = fed.run(OwnStep(At(6)), DirectGrid(apps), 10, ALL, folder=tmp_path)
    (absence,) = ours.settings["absences"]
    assert (absence["site"], absence["first"], absence["last"]) == ("D2", 3, 3)
    assert "not believed" in absence["why"] or "overflow" in absence["why"]
    local = run(OwnStep(At(6)), small_logistic, 10, participation=Outages(((1, 3, 4),)))
    np.testing.assert_allclose(ours.x, local.x, atol=1e-12)


def test_an_absurd_first_reply_ends_the_run_names_the_site_and_leaves_a_good_checkpoint(small_logistic, tmp_path):
    """In the first round there is nothing to compare with: the next shows it, and the last good point is kept."""
    apps = apps_of(small_logistic)
    apps[2] = lying_app(sites_of(small_logistic)[2], once(scaled(1e100), 1))
    broken = fed.run(GD("mean"), DirectGrid(apps), 10, ALL, folder=tmp_path)
    assert broken.failed
    assert "in the round before, D3 sent a vector of length" in broken.stopped
    healed = fed.run(GD("mean"), DirectGrid(apps_of(small_logistic)), 10, ALL, folder=tmp_path)
    assert_same_run(healed, run(GD("mean"), small_logistic, 10))


def test_an_absurd_loss_is_not_believed(small_logistic):
    apps = apps_of(small_logistic)

    def lie(content):
        told = dict(content.metric_records["numbers"]) | {"loss": [1e200], "loss_at": [1e200]}
        return _numbers(content, MetricRecord(told))

    for reply, why in ((5, "its loss rose from"), (1, "its loss is 1e+200, and was 0.693 at the start")):
        apps[0] = lying_app(sites_of(small_logistic)[0], once(lie, reply))
        (absence,) = fed.run(OwnStep(At(6)), DirectGrid(apps), 8, ALL).settings["absences"]
        assert absence["why"].startswith(why)
        assert (absence["first"], absence["last"]) == (reply - 1, reply - 1)


def test_a_first_loss_is_compared_with_the_one_at_the_start_also_after_a_resume(small_logistic, tmp_path):
    """Far from the start an honest loss may be far larger: by convexity at most by ||grad f_i(x)|| ||x||."""
    far = 40 * np.ones(small_logistic.dim)
    ours = fed.run(GD("mean"), DirectGrid(apps_of(small_logistic)), 3, ALL, x0=far, folder=tmp_path)
    again = fed.run(GD("mean"), DirectGrid(apps_of(small_logistic)), 6, ALL, x0=far, folder=tmp_path)
    assert ours.settings["absences"] == again.settings["absences"] == []
    assert ours.value[0] > 20


def test_honest_sites_are_believed_whatever_the_units():
    for scale in (1e-12, 1.0, 1e12):
        rng = np.random.default_rng(3)
        rows, owner = rng.standard_normal((40, 4)), np.arange(40) % 3
        rows *= np.array([0.5, 1.0, 3.0])[owner][:, None]
        problem = ownstep.LeastSquares(scale * rows, scale * rng.standard_normal(40), ownstep.partition.given(owner))
        ours = fed.run(OwnStep(At(5)), DirectGrid(apps_of(problem)), 12, ALL)
        assert ours.settings["absences"] == []


# --- what sites say of themselves -------------------------------------------------------------------------------------


def test_words_of_a_site_are_bounded_and_harmless(small_logistic):
    apps = apps_of(small_logistic)
    honest = apps[1]

    def shouting(message, context):
        if "join" in message.metadata.message_type:
            return honest(message, context)
        raise RuntimeError("\x1b[31m" + "evil\n" * 500_000)

    apps[1] = shouting
    (absence,) = fed.run(OwnStep(At(2)), DirectGrid(apps), 3, ALL).settings["absences"]
    assert len(absence["why"]) < 400
    assert absence["why"].isprintable()
    for name in ("x" * 1_000_000, "a\x1b[2Jb", "a\nb"):
        loud = [site_app(lambda context, s=s: s) for s in [Site(name, small_logistic.only(0))]]
        with pytest.raises(OwnstepError, match="a name has at most 80 characters") as refused:
            fed.run(OwnStep(), DirectGrid(loud), 1, fed.Terms(1))
        assert len(str(refused.value)) < 400
        assert str(refused.value).isprintable()


def test_a_message_that_outlived_its_deadline_is_a_late_site(small_logistic):
    grid = DirectGrid(apps_of(small_logistic))
    honest = grid.apps[102]
    grid.apps[102] = lambda message, context: (
        honest(message, context)
        if "join" in message.metadata.message_type
        else Message(Error(3, "Message Unavailable"), reply_to=message)
    )
    (absence,) = fed.run(OwnStep(At(2)), grid, 3, fed.Terms(3, deadline=7)).settings["absences"]
    assert absence["why"] == "no reply within 7 s"


def test_one_look_serves_all_sites(small_logistic):
    """However many sites there are, the SuperLink is asked once for all their replies, and each is taken in alone."""
    grid, looks, taken = DirectGrid(apps_of(small_logistic)), [], []
    waiting = grid.replies

    class Tree:
        pass

    class Answer:
        def __init__(self, messages_list, message_object_trees):
            self.messages_list, self.message_object_trees = messages_list, message_object_trees

    class Client:
        def PullMessages(self, request):
            looks.append(len(request.message_ids))
            there = [i for i in request.message_ids if i in waiting]
            return Answer([_proto(i) for i in there], [Tree() for _ in there])

    def _proto(identity):
        proto = Tree()
        proto.metadata = Tree()
        proto.metadata.reply_to_message_id = identity
        return proto

    def pull(ids):
        answer = grid._client.PullMessages(type("Request", (), {"message_ids": ids}))
        taken.extend(p.metadata.reply_to_message_id for p in answer.messages_list)
        return [waiting.pop(p.metadata.reply_to_message_id) for p in answer.messages_list]

    grid._client = Client()
    grid._runtime_client, grid.pull_messages = grid._client, pull
    ours = fed.run(OwnStep(At(2)), grid, 4, ALL)
    assert_same_run(ours, run(OwnStep(At(2)), small_logistic, 4))
    assert looks == [3] * 6  # who are you; x^0 to x^4
    assert len(taken) == len(set(taken)) == 18


def test_a_site_waits_for_the_place_that_its_crash_left_taken(tmp_path, monkeypatch, capfd):
    from ownstep.engines.federation import join

    count = tmp_path / "count"
    program = tmp_path / "flower-supernode"
    program.write_text(f'#!/bin/sh\necho "$@" >> {count}\n[ $(wc -l < {count}) -ge 3 ] || exit 7\n')
    program.chmod(0o755)
    monkeypatch.setattr(join, "_program", lambda: str(program))
    monkeypatch.setattr(join, "BETWEEN", 0.01)
    assert main_code(["federate", "join", "--superlink", "there:1", "--node-config", "a=1"]) == 0
    assert count.read_text().splitlines() == ["--superlink there:1 --node-config a=1"] * 3
    assert capfd.readouterr().err.count("counts a site as present for a minute; trying again") == 2
    count.unlink()
    with pytest.raises(OwnstepError, match="did not let this site in within 0 s"):
        join.join(["--x"], patience=0)


def main_code(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_flowers_own_grid_keeps_its_client_where_one_look_for_all_needs_it():
    """If Flower moves it, every reply is looked for on its own again, which is slow with many sites: notice it here."""
    from flwr.superlink.grid.http_grid import HttpGrid

    assert isinstance(HttpGrid._runtime_client, property)
    assert {"_client", "_is_connected"} <= set(HttpGrid._runtime_client.fget.__code__.co_names)


def test_two_coordinators_do_not_share_a_folder(small_logistic, tmp_path):
    from ownstep.support.files import hold

    with hold(tmp_path / "sites.json"), pytest.raises(OwnstepError, match="in use by process"):
        fed.run(OwnStep(), DirectGrid(apps_of(small_logistic)), 2, fed.Terms(3, deadline=0.3), folder=tmp_path)


def test_folders_of_the_first_version_are_gone_on_from(tmp_path):
    problem = written_by_0_1.problem()
    shutil.copytree(Path(__file__).parent / "written_by_0_1" / "federation", tmp_path / "kept")
    again = fed.run(OwnStep(), DirectGrid(apps_of(problem)), 12, ALL, folder=tmp_path / "kept", name="own_step")
    assert_same_run(again, run(OwnStep(), problem, 12))


# --- who is missing ---------------------------------------------------------------------------------------------------

BRIEF = fed.Terms(3, deadline=0.2)


@pytest.mark.parametrize("missing", ["rescale", "drop", "last"])
@pytest.mark.parametrize("method", [OwnStep(At(5)), Scaffold(), METHODS["fedavg"](local_steps=3)])
def test_a_site_that_falls_silent_costs_what_the_rule_promises(small_logistic, missing, method):
    grid = DirectGrid(apps_of(small_logistic), lambda node, sent: node == 102 and sent >= 1 + 4)
    terms = fed.Terms(3, deadline=0.2, missing=missing)
    ours = fed.run(method, grid, 8, terms)
    gone = Outages(((1, 4, None),), missing=missing)
    local = run(method, small_logistic, 8, participation=gone)
    np.testing.assert_allclose(ours.x, local.x, atol=1e-12)
    np.testing.assert_array_equal(ours.took_part, local.took_part)
    (absence,) = ours.settings["absences"]
    assert (absence["site"], absence["first"], absence["last"]) == ("D2", 4, 8)
    assert absence["weight"] == pytest.approx(small_logistic.weights[1])
    assert "no reply within 0.2 s" in absence["why"]


def test_who_answered_counts_even_if_sending_took_longer_than_the_deadline(small_logistic):
    grid = DirectGrid(apps_of(small_logistic))
    at_once = grid.push_messages
    grid.push_messages = lambda messages: (at_once(messages), time.sleep(0.02))[0]
    assert set(Nodes(grid, 0.01).ask(dict.fromkeys(grid.apps, RecordDict()), "query.join", "")) == {101, 102, 103}


def test_a_site_that_comes_back_is_waited_for_again(small_logistic):
    grid = DirectGrid(apps_of(small_logistic), lambda node, sent: node == 103 and 3 <= sent < 5)
    ours = fed.run(OwnStep(Never()), grid, 7, BRIEF)
    assert ours.took_part[:, 2].tolist() == [True, True, False, False, True, True, True]
    gone = Outages(((2, 2, 4),))
    np.testing.assert_allclose(ours.x, run(OwnStep(Never()), small_logistic, 7, participation=gone).x, atol=1e-12)


def test_nobody_waits_twice_for_the_dead_but_a_late_answer_brings_them_back(small_logistic):
    grid = DirectGrid(apps_of(small_logistic), lambda node, sent: node == 101)
    nodes = Nodes(grid, 0.2)
    content = RecordDict()
    for _ in range(3):
        assert set(nodes.ask(dict.fromkeys(grid.apps, content), "query.join", "")) == {102, 103}
        assert nodes.suspects == {101}
    expired, answered, *_ = nodes.late
    sent = Message(content, 101, "query.join")
    grid.replies[expired] = Message(Error(3, "expired"), reply_to=_identified(sent, expired))
    nodes.ask(dict.fromkeys(grid.apps, content), "query.join", "")
    assert expired not in nodes.late
    assert nodes.suspects == {101}  # the SuperLink's word is no sign of life
    cleared = []

    class Watched(set):
        def discard(self, node):
            cleared.append(node)
            super().discard(node)

    nodes.suspects = Watched(nodes.suspects)
    grid.replies[answered] = Message(RecordDict(), reply_to=_identified(sent, answered))
    nodes.ask(dict.fromkeys(grid.apps, content), "query.join", "")
    assert answered not in nodes.late
    assert 101 in cleared  # for a moment nobody was suspected: it was waited for again


def test_a_node_that_the_superlink_calls_unreachable_is_not_waited_for(small_logistic):
    grid = DirectGrid(apps_of(small_logistic))
    honest = grid.apps[103]
    grid.apps[103] = lambda message, context: (
        honest(message, context)
        if "join" in message.metadata.message_type
        else Message(Error(5, "Node Unavailable"), reply_to=message)
    )
    ours = fed.run(OwnStep(At(2)), grid, 3, fed.Terms(3, deadline=600))
    (absence,) = ours.settings["absences"]
    assert (absence["site"], absence["why"]) == ("D3", "not reached: Node Unavailable")
    np.testing.assert_allclose(
        ours.x, run(OwnStep(At(2)), small_logistic, 3, participation=Outages(((2, 0, None),))).x, atol=1e-12
    )


def _identified(message, identity):
    message.metadata.__dict__["_message_id"] = identity
    return message


def test_when_nobody_answers_the_run_ends_with_their_names_and_can_go_on(small_logistic, tmp_path):
    silent = DirectGrid(apps_of(small_logistic), lambda node, sent: sent >= 4)
    with pytest.raises(OwnstepError, match="no site answered in round 3 within 0.2 s .*D1: no reply.*D3"):
        fed.run(OwnStep(At(2)), silent, 6, BRIEF, folder=tmp_path)
    ours = fed.run(OwnStep(At(2)), DirectGrid(apps_of(small_logistic)), 6, BRIEF, folder=tmp_path)
    assert_same_run(ours, run(OwnStep(At(2)), small_logistic, 6))


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["rescale", "last"])
def test_a_restarted_coordinator_goes_on_as_if_nothing_had_happened(small_logistic, tmp_path, missing):
    def silent(node, sent):
        return node == 102 and sent in (3, 6)

    terms = fed.Terms(3, deadline=0.2, missing=missing)
    unbroken = fed.run(OwnStep(At(5)), DirectGrid(apps_of(small_logistic), silent), 9, terms)
    first = DirectGrid(apps_of(small_logistic), silent)
    fed.run(OwnStep(At(5)), first, 4, terms, folder=tmp_path)
    second = DirectGrid(apps_of(small_logistic), lambda node, sent: silent(node, sent + 4))
    ours = fed.run(OwnStep(At(5)), second, 9, terms, folder=tmp_path)
    assert second.kinds[:4] == ["query.join"] * 3 + ["train.plain"]  # all are asked once more who they are
    assert second.kinds[4:].count("query.join") == 1  # D2, when it is back
    np.testing.assert_array_equal(ours.x, unbroken.x)
    np.testing.assert_array_equal(ours.took_part, unbroken.took_part)
    assert ours.settings["absences"] == unbroken.settings["absences"]


def test_a_coordinator_goes_on_from_the_checkpoint_before_a_damaged_one(small_logistic, tmp_path, caplog):
    for rounds in (2, 4):
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), rounds, ALL, folder=tmp_path, name="a run")
    kept = tmp_path / "a-run.ckpt.npz"
    kept.write_bytes(kept.read_bytes()[:-200])
    ours = fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 6, ALL, folder=tmp_path, name="a run")
    assert "going on from" in caplog.text
    np.testing.assert_array_equal(ours.x, fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 6, ALL).x)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a-run.ckpt.1.npz", "a-run.ckpt.npz", "sites.json"]


def test_a_coordinator_goes_on_without_a_site_that_is_away_and_knows_one_with_a_new_node_id(small_logistic, tmp_path):
    fed.run(OwnStep(At(2)), DirectGrid(apps_of(small_logistic)), 3, BRIEF, folder=tmp_path)
    apps = apps_of(small_logistic)
    again = DirectGrid(apps)
    again.apps = {101: apps[0], 777: apps[2]}  # D2 is away, D3 has been set up anew
    again.contexts[777], again.sent[777], again.sent[103] = again.contexts[103], 0, 0
    real = again.push_messages
    again.push_messages = lambda messages: [
        real([m])[0] if m.metadata.dst_node_id in again.apps else None for m in messages
    ]
    ours = fed.run(OwnStep(At(2)), again, 5, BRIEF, folder=tmp_path)
    assert ours.took_part[3:].tolist() == [[True, False, True]] * 2
    assert {a["site"] for a in ours.settings["absences"]} == {"D2"}


def test_a_run_goes_on_as_what_it_began_or_not_at_all(small_logistic, tmp_path):
    def start(method, rounds, terms=ALL):
        return fed.run(method, DirectGrid(apps_of(small_logistic)), rounds, terms, folder=tmp_path, name="a run")

    start(OwnCurvature(rank=3), 2)
    (kept,) = tmp_path.glob("a-run.ckpt.npz")
    before = kept.read_bytes()
    for method, terms, message in (
        (OwnCurvature(rank=4), ALL, "is of another run .its method differs"),
        (GD(0.1), ALL, "is of another run .its method differs"),
        (OwnCurvature(rank=3), replace(ALL, missing="last"), "missing='rescale', and this one has 'last'; it was left"),
    ):
        with pytest.raises(OwnstepError, match=message):
            start(method, 4, terms)
        assert kept.read_bytes() == before
    assert start(OwnCurvature(rank=3), 4).rounds == 4


@pytest.mark.parametrize("column", ["samples", "L", "mu", "losses", "nodes"])
@pytest.mark.parametrize("entry", [None, "a", float("inf")])
def test_a_list_of_sites_that_is_none_is_called_so(small_logistic, tmp_path, column, entry):
    fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 2, ALL, folder=tmp_path)
    listed = tmp_path / "sites.json"
    told = json.loads(listed.read_text())
    told[column][1] = entry
    listed.write_text(json.dumps(told))
    with pytest.raises(OwnstepError, match=r"sites.json' is not a readable list of sites: "):
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 4, ALL, folder=tmp_path)


def test_nobody_takes_the_place_of_a_site_that_is_there(small_logistic, tmp_path):
    fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 2, ALL, folder=tmp_path)
    impostor = DirectGrid([*apps_of(small_logistic), apps_of(small_logistic)[1]])
    with pytest.raises(OwnstepError, match="two nodes call themselves 'D2': 102 and 104"):
        fed.run(GD(0.1), impostor, 4, ALL, folder=tmp_path)


def test_a_site_that_comes_back_with_other_data_is_refused(small_logistic, tmp_path):
    fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 2, ALL, folder=tmp_path)
    others = apps_of(make_logistic(seed=1))
    again = DirectGrid([*apps_of(small_logistic)[:2], None, others[2]])
    del again.apps[103]
    with pytest.raises(OwnstepError, match="'D3' is not what it was when this federation began .its L differs"):
        fed.run(GD(0.1), again, 4, ALL, folder=tmp_path)


def test_a_checkpoint_of_other_data_is_refused(small_logistic, tmp_path):
    for folder, problem in ((tmp_path / "a", small_logistic), (tmp_path / "b", make_logistic(seed=8))):
        fed.run(GD(0.1), DirectGrid(apps_of(problem)), 3, ALL, folder=folder)
    (kept,) = (tmp_path / "b").glob("*.ckpt.npz")
    shutil.copy(kept, tmp_path / "a")
    with pytest.raises(OwnstepError, match="of another run"):
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 5, ALL, folder=tmp_path / "a")


@pytest.mark.parametrize("renamed", [False, True])
def test_a_site_whose_data_changed_between_two_starts_is_named(small_logistic, tmp_path, renamed):
    """Whether or not its node has the same id."""
    fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 3, BRIEF, folder=tmp_path)
    apps = apps_of(small_logistic)
    rows, labels = small_logistic.rows(1), small_logistic._y[small_logistic.block(1)]
    fewer = Site("D2", BinaryLogistic(rows[1:], labels[1:], mu=small_logistic.strong_convexity))
    apps[1] = site_app(lambda context: fewer)
    grid = DirectGrid(apps)
    if renamed:
        listed = tmp_path / "sites.json"
        listed.write_text(listed.read_text().replace("102", "999"))
    with pytest.raises(OwnstepError, match=r"site 'D2' is not what it was .* \(its samples, .*differs\)"):
        fed.run(GD(0.1), grid, 5, BRIEF, folder=tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_site_whose_data_changes_during_a_run_refuses_until_it_is_back(small_logistic, packed):
    """One number of one row is enough; what tells it never leaves the site."""
    apps, honest = apps_of(small_logistic), apps_of(small_logistic)[1]
    rows, labels = small_logistic.rows(1).copy(), small_logistic._y[small_logistic.block(1)]
    rows[3, 1] += 1e-9
    other = BinaryLogistic(sp.csr_array(rows) if packed else rows, labels, mu=small_logistic.strong_convexity)
    grid = DirectGrid(apps)

    def observe(node, sent):
        if node == 102 and sent:
            grid.apps[102] = site_app(lambda context: Site("D2", other)) if sent == 3 else honest
        return False

    grid.silent = observe
    history = fed.run(GD(0.1), grid, 5, BRIEF)
    assert history.took_part[:, 1].sum() == len(history.took_part) - 1
    (absence,) = history.settings["absences"]
    assert (absence["site"], absence["first"], absence["last"]) == ("D2", 2, 2)
    assert "the data of site 'D2' changed during the run: bring it back" in absence["why"]


def test_a_site_with_other_data_takes_part_in_a_new_run(small_logistic):
    """Its node remembers the data of the last run; a new one that has no folder begins with what is there."""
    grid = DirectGrid(apps_of(small_logistic))
    first = fed.run(GD(0.1), grid, 3, BRIEF)
    rows, labels = small_logistic.rows(1) * 1.5, small_logistic._y[small_logistic.block(1)]
    other = BinaryLogistic(rows, labels, mu=small_logistic.strong_convexity)
    grid.apps[102] = site_app(lambda context: Site("D2", other))
    again = fed.run(GD(0.1), grid, 3, BRIEF)
    assert again.settings["absences"] == []
    assert (again.x != first.x).any()


def test_a_known_site_that_is_silent_at_a_new_start_is_absent_and_nothing_waits_for_it(small_logistic, tmp_path):
    fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 3, BRIEF, folder=tmp_path)
    again = DirectGrid(apps_of(small_logistic), lambda node, sent: node == 102)
    history = fed.run(GD(0.1), again, 5, BRIEF, folder=tmp_path)
    assert history.took_part[3:, [0, 2]].all()
    assert not history.took_part[3:, 1].any()


@pytest.mark.parametrize("secure", [None, SecurePlus(clip=4.0, threshold=0.5)], ids=["plain", "secure"])
@pytest.mark.parametrize("again", [False, True], ids=["fell silent", "silent at a new start"])
def test_a_site_that_was_silent_is_compared_when_it_speaks_again(small_logistic, tmp_path, secure, again):
    """It comes back with other data, which is named and counts for nothing, then with its own, which counts."""
    terms, grid = replace(BRIEF, secure=secure), DirectGrid(apps_of(small_logistic))
    own, other = apps_of(small_logistic)[1], apps_of(make_logistic(seed=1))[1]
    if again:
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 1, terms, folder=tmp_path)
    script = [own, None, other, other, own, own]

    class Script:
        def round(self, name, k, *_):
            """Before round k + 1: the site's node is set up anew, so it remembers nothing."""
            grid.contexts[102] = Context(1, 102, {}, RecordDict(), {})
            grid.apps[102] = script[k + 1] if k + 1 < len(script) else own
            grid.silent = lambda node, sent: grid.apps[node] is None

    log = Script()
    log.round("", 0 if again else -1)
    history = fed.run(GD(0.1), grid, 5, terms, folder=tmp_path, log=log)
    assert history.took_part[:, 1].tolist() == [True, False, False, False, True]
    silent, different = history.settings["absences"]
    assert [(a["site"], a["first"], a["last"]) for a in (silent, different)] == [("D2", 1, 1), ("D2", 2, 3)]
    assert silent["why"] == "no reply within 0.2 s"
    assert different["why"].startswith("site 'D2' is not what it was when this federation began (its ")


# --- bad sites --------------------------------------------------------------------------------------------------------


def lying_app(site, change):
    """An app whose replies are changed on the way out, as a hostile node could."""
    honest, app = site_app(lambda context: site), ClientApp()

    @app.query("join")
    def join(message, context):
        return honest(message, context)

    @app.train("plain")
    def plain(message, context):
        return Message(change(honest(message, context).content), reply_to=message)

    return app


def _vector(content, array):
    content["answer"] = ArrayRecord({"0": array})
    return content


def _numbers(content, numbers):
    content["numbers"] = MetricRecord(numbers)
    return content


def _forged(data):
    """An array that claims to be what was asked for."""
    return lambda content: _vector(content, Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=data))


def _huge():
    """The header of ten gigabytes with nothing after it."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (1_250_000_000,)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def _pickled():
    file = io.BytesIO()
    np.save(file, np.array([print], dtype=object), allow_pickle=True)
    return file.getvalue()


LIES = {
    "nan": (lambda c: _vector(c, Array(np.full(4, np.nan))), "4 entries that are not finite"),
    "shape": (lambda c: _vector(c, Array(np.zeros(5))), r"shape \(5,\) of float64, asked for was \(4,\)"),
    "type": (lambda c: _vector(c, Array(np.zeros(4, np.float32))), r"of float32, asked for was \(4,\) of float64"),
    "size": (lambda c: _vector(c, Array(np.zeros(10**6))), "its vector has 8 MB, at most 1.06 kB"),
    "zip": (_forged(b"PK\3\4 not npy"), "cannot be read"),
    "huge": (_forged(_huge()), "not the \\(4,\\) of float64 that it claims to be"),
    "pickle": (_forged(_pickled()), "not the \\(4,\\) of float64 that it claims to be"),
    "loss": (lambda c: _numbers(c, {"loss": [np.inf], "loss_at": [0.0]}), "its loss is inf"),
    "no loss": (lambda c: _numbers(c, {"loss_at": [0.0]}), "its loss is None"),
    "nothing": (lambda c: RecordDict(), "not an answer to 1 questions"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_reply_that_is_not_what_was_asked_for_is_refused_and_named(small_logistic, lie):
    change, why = LIES[lie]
    sites = sites_of(small_logistic)
    apps = [
        *(site_app(lambda context, s=s: s) for s in sites[:2]),
        lying_app(sites[2], lambda c: change(RecordDict(c))),
    ]
    ours = fed.run(OwnStep(At(2)), DirectGrid(apps), 3, ALL)
    (absence,) = ours.settings["absences"]
    assert (absence["site"], absence["first"], absence["last"]) == ("D3", 0, 3)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(absence["why"])
    gone = Outages(((2, 0, None),))
    np.testing.assert_allclose(ours.x, run(OwnStep(At(2)), small_logistic, 3, participation=gone).x, atol=1e-12)


class Broken:
    """A site's own problem gone wrong: ten gigabytes, or nan."""

    def __init__(self, problem, vector):
        self.problem, self.vector = problem, vector

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def mix(self, x, c):
        losses, _ = self.problem.mix(x, c)
        return losses, self.vector


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        (np.broadcast_to(0.0, (1_250_000_000,)), "returned 10 GB for a point of 32 bytes: not sent"),
        (np.zeros((2, 2)), "returned shape"),
        (np.full(4, np.nan), "not finite: not sent"),
    ],
)
def test_an_honest_site_does_not_send_what_would_be_refused(small_logistic, vector, why):
    sites = sites_of(small_logistic)
    bad = Site("D3", Broken(sites[2].problem, vector), smoothness=describe(sites[2].problem).smoothness)
    apps = [site_app(lambda context, s=s: s) for s in (*sites[:2], bad)]
    ours = fed.run(OwnStep(At(2)), DirectGrid(apps), 2, ALL)
    (absence,) = ours.settings["absences"]
    assert absence["site"] == "D3"
    assert why in absence["why"]


def test_memory_is_limited_only_inside_the_block():
    with pytest.raises(MemoryError), limited_memory(1 << 28):
        np.ones(1 << 28)
    assert np.ones(1 << 24).sum() == 1 << 24


def test_a_reply_that_does_not_fit_into_memory_is_refused_and_named(small_logistic):
    class Bomb(DirectGrid):
        def pull_messages(self, message_ids):
            if self.kinds[-1] == "train.plain" and message_ids[0].startswith("102"):
                bytearray(1 << 36)  # what unpacking a forged reply would allocate
            return super().pull_messages(message_ids)

    ours = fed.run(OwnStep(At(2)), Bomb(apps_of(small_logistic)), 2, ALL)
    (absence,) = ours.settings["absences"]
    assert absence["site"] == "D2"
    assert "needs more than 2.15 GB of memory" in absence["why"]


def test_an_error_reply_is_named(small_logistic):
    def failing(context):
        raise RuntimeError("the disk is gone")

    sites = sites_of(small_logistic)
    grid = DirectGrid([site_app(lambda context, s=s: s) for s in sites])
    honest = grid.apps[102]
    grid.apps[102] = lambda message, context: (
        honest(message, context) if "join" in message.metadata.message_type else failing(context)
    )
    ours = fed.run(GD(0.1), grid, 2, ALL)
    assert "its ClientApp failed: the disk is gone" in ours.settings["absences"][0]["why"]


# --- joining ----------------------------------------------------------------------------------------------------------


def test_the_smoothness_is_measured_and_sent_once(small_logistic, monkeypatch):
    from ownstep.engines.federation import site as federation_site

    real, count = federation_site.describe, []
    monkeypatch.setattr(federation_site, "describe", lambda *a: count.append(1) or real(*a))
    grid = DirectGrid(apps_of(small_logistic))
    fed.run(GD(0.1), grid, 4, ALL)
    fed.run(GD(0.1), grid, 4, ALL)
    assert len(count) == 3
    assert grid.kinds.count("query.join") == 6


def test_sites_go_by_their_names_whatever_node_they_are(small_logistic):
    """So that sums are added in one order, and a seed asks the same sites, however Flower numbers the nodes."""
    terms = replace(ALL, participation=Cohort(2, seed=4))
    one, other = (
        fed.run(OwnStep(At(5)), DirectGrid(apps), 8, terms)
        for apps in (apps_of(small_logistic), apps_of(small_logistic)[::-1])
    )
    assert one.settings["sites"] == other.settings["sites"] == ["D1", "D2", "D3"]
    assert one.settings["samples"] == other.settings["samples"] == small_logistic.counts.tolist()
    np.testing.assert_array_equal(one.took_part, other.took_part)
    np.testing.assert_array_equal(one.x, other.x)


def test_too_few_sites_two_of_a_name_and_different_lengths_are_told_apart(small_logistic):
    with pytest.raises(OwnstepError, match="3 of 4 sites joined within 0.3 s: 'D1', 'D2', 'D3'"):
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 1, fed.Terms(4, joining=0.3))
    with pytest.raises(OwnstepError, match="3 sites are here, 2 were expected"):
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 1, fed.Terms(2))
    twice = [site_app(lambda context: sites_of(small_logistic)[0])] * 2
    with pytest.raises(OwnstepError, match="two nodes call themselves by one name"):
        fed.run(GD(0.1), DirectGrid(twice), 1, fed.Terms(2))
    other = sites_of(make_logistic(features=5))
    mixed = [site_app(lambda context, s=s: s) for s in (sites_of(small_logistic)[0], other[1])]
    with pytest.raises(OwnstepError, match="differ in dim: D1: 4, D2: 5"):
        fed.run(GD(0.1), DirectGrid(mixed), 1, fed.Terms(2))


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"L": -1.0}, "node 101, 'D1', described itself by .*'L': -1.0"),
        ({"L": np.nan}, "described itself by .*'L': nan"),
        ({"mu": 9.0}, "described itself by .*'mu': 9.0"),
        ({"samples": 0}, "described itself by .*'samples': 0"),
        ({"dtype": "object"}, "of 'object'"),
        ({"kind": "perfect"}, "a smoothness of kind 'perfect'"),
        ({"dim": "4"}, "node 101 described itself without dim"),
    ],
)
def test_a_site_that_describes_itself_impossibly_is_named(small_logistic, lie, why):
    app = ClientApp()

    @app.query("join")
    def join(message, context):
        about = sites_of(small_logistic)[0].describe() | lie
        return Message(RecordDict({"site": ConfigRecord(about)}), reply_to=message)

    with pytest.raises(OwnstepError, match=why):
        fed.run(GD(0.1), DirectGrid([app]), 1, fed.Terms(1))


@pytest.mark.parametrize(
    ("method", "why"),
    [(METHODS["extra"](), "has no server"), (GD("tuned"), "not tuned through a federation")],
)
def test_methods_that_a_federation_cannot_run(small_logistic, method, why):
    with pytest.raises(InvalidInput, match=why):
        fed.run(method, DirectGrid(apps_of(small_logistic)), 1, ALL)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sites": 0}, "sites"),
        ({"deadline": 0.0}, "deadline is a positive number of seconds, got 0.0"),
        ({"missing": "ignore"}, "missing must be 'rescale', 'drop', 'last', got 'ignore'"),
        ({"missing": "last", "secure": SecurePlus()}, "keeps single gradients"),
    ],
)
def test_terms_are_checked(options, why):
    with pytest.raises(InvalidInput, match=why):
        fed.Terms(**{"sites": 3} | options)


def test_a_site_is_one_device_with_a_name(small_logistic):
    with pytest.raises(InvalidInput, match="a site is one device, but its problem has 3"):
        Site("all", small_logistic)
    with pytest.raises(InvalidInput, match="needs a name"):
        Site("", small_logistic.only(0))
    site = Site("one", small_logistic.only(0))
    assert site.count == small_logistic.counts[0]
    with pytest.raises(InvalidInput, match="shape"):
        site.answer(Question(np.zeros(9), None, 1.0, 0))


def test_an_owners_file_is_used_in_place_of_the_apps_own(tmp_path, small_logistic):
    file = tmp_path / "site.py"
    file.write_text("def open_site(context):\n    return context\n")
    assert load_open_site(file)("me") == "me"
    file.write_text("x = 1\n")
    with pytest.raises(OwnstepError, match="no function open_site"):
        load_open_site(file)
    with pytest.raises(OwnstepError, match="not a Python file"):
        load_open_site(tmp_path / "nothing.py")


def test_sizes_are_said_in_the_largest_unit_that_fits():
    said = [size(n) for n in (0, 999, 1000, 999_999, 10**6, 2_345_678, 10**9, 3 * 10**12)]
    assert said == ["0 bytes", "999 bytes", "1 kB", "1e+03 kB", "1 MB", "2.35 MB", "1 GB", "3e+03 GB"]


def npy_file(numbers, version=(1, 0), more=b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(numbers), version=version)
    return file.getvalue() + more


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (Array("float32", (3,), "numpy.ndarray", npy_file(np.zeros(3))), "has shape .3,. of float32, asked for was"),
        (Array("float64", (3,), "numpy.ndarray", npy_file(np.zeros(3), (2, 0))), "not in npy format 1.0"),
        (Array("float64", (3,), "numpy.ndarray", npy_file(np.zeros(4))), "not the .3,. of float64 that it claims"),
        (Array("float64", (3,), "numpy.ndarray", npy_file(np.zeros(3, np.float32))), "not the .3,. of float64"),
        (Array("float64", (3,), "numpy.ndarray", npy_file(np.zeros(3), more=b"x")), "not the .3,. of float64"),
        (Array("float64", (3,), "numpy.ndarray", npy_file(np.zeros(3))[:-1]), "not the .3,. of float64"),
        (Array("float64", (3,), "numpy.ndarray", b"no npy"), "cannot be read|npy"),
        (Array("float64", (3,), "numpy.ndarray", b"x" * (24 + 1024)), "cannot be read|npy"),
        (Array("float64", (3,), "numpy.ndarray", b"x" * (24 + 1025)), "at most 1.05 kB were asked for"),
        (Array(np.array([0.0, np.inf, np.nan])), "has 2 entries that are not finite, the first at 1"),
        (Array(np.array([0.0, 1e200, 1.0])), "entries of up to 1e.200, whose squares overflow float64"),
    ],
)
def test_what_a_vector_s_file_says_has_to_be_so(array, why):
    with pytest.raises(Refused, match=why):
        checked(array, np.zeros(3))


@pytest.mark.parametrize(
    ("bits", "sites", "allowed"), [(30, 5, False), (30, 4, True), (22, 1025, False), (8, 1, False), (8, 2, True)]
)
def test_secure_aggregation_has_room_for_so_many_sites(bits, sites, allowed):
    roster = types.SimpleNamespace(names=("a",) * sites)
    error = AttributeError if allowed else InvalidInput  # beyond this check there is nobody to ask
    with pytest.raises(error) as caught:
        SecurePlus(bits=bits).gather(None, roster, None, None, 0)
    if not allowed:
        assert str(caught.value) == f"secure aggregation with {bits} bits is for 2 to {2 ** (32 - bits)} sites"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "its loss is None, asked for were 2 numbers"),
        ({"loss": 1.0}, "its loss is 1.0, asked for were 2 numbers"),
        ({"loss": [1.0]}, "asked for were 2 numbers"), ({"loss": [1.0, 2.0, 3.0]}, "asked for were 2 numbers"),
        ({"loss": [1.0, float("nan")]}, "its loss is nan"), ({"loss": [float("inf"), 1.0]}, "its loss is inf"),
    ],
)  # fmt: skip
def test_there_is_one_finite_loss_per_question(told, why):
    with pytest.raises(Refused, match=why):
        _losses(MetricRecord(told), "loss", 2)
    assert _losses(MetricRecord({"loss": [1, 2]}), "loss", 2) == [1.0, 2.0]


def test_a_silent_site_is_looked_for_less_and_less_often(small_logistic):
    """Pauses of 10 ms that double: in 0.7 s six looks or seven, and not seventy."""
    grid, looks = DirectGrid(apps_of(small_logistic), lambda node, sent: node == 102), []
    pull = grid.pull_messages
    grid.pull_messages = lambda identities: looks.append(list(identities)) or pull(identities)
    content = RecordDict({"ask": ConfigRecord({"question": "?"})})
    Nodes(grid, 0.7).ask({102: content}, "query.ask", "")
    assert 2 <= len(looks) <= 12


def test_sums_of_sketches_say_how_many_coordinates_are_free():
    """Of an intercept one, from any of the sites that answer; the penalty and the mean trace with it."""
    rows = np.random.default_rng(0).standard_normal((30, 4))
    split = ownstep.partition.given([0, 1, 1] * 10)
    problem = BinaryLogistic(rows, rows[:, 0] > rows[:, 1], split, mu=0.2, intercept=True)
    method = METHODS["own_curvature"](rank=2, sketch="sum")
    ask = method.ask(method.start(problem.x0(), describe(problem).devices))
    extras, traces = [], []
    for i, c in enumerate((0.25, 0.75)):
        site = problem.keep([i])
        more = hessians.More(sketch=ask.sketch)
        extras.append(hessians.answer(site, problem.x0(), None, c, more, Sketching(site))[0])
        traces.append(hessians.split(ask, extras[-1], c).shared.trace / c)
        assert hessians.split(ask, extras[-1], c).shared.free == 1
    found = hessians.split(ask, extras[0] + extras[1], 1.0).shared
    assert found.free == 1
    assert found.trace == pytest.approx(0.25 * traces[0] + 0.75 * traces[1])


def test_limits_of_secure_parameters():
    assert (SecurePlus(bits=8).bits, SecurePlus(bits=30).bits, SecurePlus(threshold=1.0).threshold) == (8, 30, 1.0)
    assert SecurePlus(clip=4.0, bits=10).resolution == 8.0 / 1024
    for name, wrong in (("clip", np.inf), ("clip", 0.0), ("clip", np.nan), ("bits", 7), ("bits", 31),
                        ("threshold", 0.0), ("threshold", 1.01), ("threshold", np.nan)):  # fmt: skip
        with pytest.raises(InvalidInput, match=rf"^{name} .*{wrong!r}"):
            SecurePlus(**{name: wrong})


def test_checked_takes_exactly_what_was_asked_for():
    like = np.zeros(3)
    np.testing.assert_array_equal(checked(Array(np.arange(3.0)), like), np.arange(3.0))
    lying = Array(dtype="float64", shape=(3,), stype="numpy.ndarray", data=Array(np.zeros(7)).data)
    with pytest.raises(Refused, match="not the \\(3,\\) of float64 that it claims"):
        checked(lying, like)


# --- secure aggregation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 28])
@pytest.mark.parametrize("method", [OwnStep(At(4)), Nesterov("mean"), METHODS["fedavg"](local_steps=3)])
def test_secure_sums_are_the_plain_ones_up_to_rounding(small_logistic, bits, method):
    secure = SecurePlus(clip=4.0, bits=bits)
    rounds = 4
    ours = fed.run(method, DirectGrid(apps_of(small_logistic, secure_only=True)), rounds, fed.Terms(3, secure=secure))
    local = run(method, small_logistic, rounds)
    # Each sum is off by at most three resolutions; a round's map has Lipschitz constant below 3 for these methods.
    step = 1.0 if isinstance(method, OwnStep) else float(local.columns["step"][0]) * 3
    bound = 3 * secure.resolution * sum(3.0**k for k in range(rounds)) * max(step, 1.0)
    assert 0 < abs(ours.x - local.x).max() <= bound
    np.testing.assert_allclose(ours.value, local.value, atol=10 * bound)


@pytest.mark.parametrize("name", ["fedprox", "fednova", "fedexp", "fedsps", "delta_sgd", "fedavgm", "fedyogi"])
def test_federated_methods_need_only_sums(name, small_logistic):
    """Local rules, numbers of local steps and sums of squared norms all travel masked; the map is smooth, so that the
    rounding of 28 bits stays below 1e-5 after three rounds."""
    method, secure = METHODS[name](), SecurePlus(clip=8.0, bits=28)
    ours = fed.run(method, DirectGrid(apps_of(small_logistic, secure_only=True)), 3, fed.Terms(3, secure=secure))
    local = run(method, small_logistic, 3)
    assert 0 < abs(ours.x - local.x).max() <= 1e-5
    assert abs(local.x).max() > 1e-2


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "scaffnew", "fedlin"])
def test_methods_with_a_vector_per_site_are_refused_under_secure_aggregation(name, small_logistic):
    with pytest.raises(InvalidInput, match="needs every site's own vector"):
        fed.run(METHODS[name](), DirectGrid(apps_of(small_logistic)), 1, fed.Terms(3, secure=SecurePlus()))


def test_the_coordinator_receives_nothing_but_masked_vectors(small_logistic):
    seen = []

    class Watching(DirectGrid):
        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            seen.extend(found)
            return found

    grid = Watching(apps_of(small_logistic))
    fed.run(OwnStep(At(1)), grid, 1, fed.Terms(3, secure=SecurePlus()))
    for message in seen:
        for record in message.content.array_records.values():
            assert not record  # the vectors themselves were taken out
        assert "numbers" not in message.content
    stages = [m.content.config_records["secaggplus_configs"] for m in seen if "site" not in m.content]
    assert sum("masked_params" in stage for stage in stages) == 3 * 2


@pytest.mark.parametrize("stage", [0, 1, 2], ids=["before its keys", "before its shares", "before its vector"])
def test_a_secure_round_survives_a_site_that_falls_silent(small_logistic, stage):
    """And so do the rounds after it, in which the site is away from their beginning."""
    # who are you: 1 message; then 4 a round: D3 leaves in round 1
    grid = DirectGrid(apps_of(small_logistic), lambda node, sent: node == 103 and sent >= 1 + 4 + stage)
    secure = SecurePlus(clip=4.0, bits=28)
    ours = fed.run(OwnStep(At(9)), grid, 3, fed.Terms(3, deadline=0.3, secure=secure))
    assert ours.took_part.tolist() == [[True] * 3] + [[True, True, False]] * 2
    (absence,) = ours.settings["absences"]
    assert (absence["site"], absence["first"], absence["last"]) == ("D3", 1, 3)
    assert absence["why"] == "no reply within 0.3 s"
    w, L = small_logistic.weights, describe(small_logistic).devices.L
    x = -small_logistic.mix(small_logistic.x0(), w / L)[1]
    here = np.array([1, 1, 0]) * w / w[:2].sum()
    for _ in range(2):
        x = x - small_logistic.mix(x, here / L)[1]
    np.testing.assert_allclose(ours.x, x, atol=1e-6)
    assert ours.value[-1] == pytest.approx(here @ small_logistic.mix(x, w)[0], abs=1e-5)


def test_what_secure_aggregation_cannot_do_is_said(small_logistic):
    with pytest.raises(InvalidInput, match="needs every site's own vector"):
        fed.run(Scaffold(), DirectGrid(apps_of(small_logistic)), 1, fed.Terms(3, secure=SecurePlus()))
    with pytest.raises(InvalidInput, match="needs every site's own vector"):
        fed.run(ADAPTIVE, DirectGrid(apps_of(small_logistic)), 1, fed.Terms(3, secure=SecurePlus()))
    tiny = fed.Terms(3, deadline=0.3, secure=SecurePlus(clip=1e-6))
    with pytest.raises(OwnstepError, match="no site answered"):  # an entry beyond the clip is refused, not cut off
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic)), 1, tiny)
    refusing = fed.Terms(3, deadline=0.3)
    with pytest.raises(OwnstepError, match="answers under secure aggregation only"):
        fed.run(GD(0.1), DirectGrid(apps_of(small_logistic, secure_only=True)), 1, refusing)


def test_under_secure_aggregation_a_refusal_keeps_its_reason(small_logistic):
    grid = DirectGrid(apps_of(small_logistic))
    apps = list(grid.apps.values())
    honest = apps[1]

    def failing(message, context):
        if grid.sent[102] >= 1 + 2:  # when the masked vector is wanted
            raise RuntimeError("an entry of 9 is beyond the clip of 8: not sent")
        return honest(message, context)

    grid.apps[102] = failing
    terms, why = fed.Terms(3, deadline=2, secure=SecurePlus(threshold=0.5)), "its ClientApp failed: an entry of 9 is "
    history = fed.run(OwnStep(At(2)), grid, 1, terms)
    (absence,) = history.settings["absences"]
    assert (absence["site"], absence["first"], absence["last"]) == ("D2", 0, 1)
    assert absence["why"].startswith(f"{why}beyond the clip of 8")
    grid.sent[102] = 0
    with pytest.raises(OwnstepError, match=f"D2: {why}beyond the clip of 8"):
        fed.run(OwnStep(At(2)), grid, 1, replace(terms, secure=SecurePlus(threshold=1.0)))


@pytest.mark.parametrize("options", [{"clip": 0.0}, {"bits": 31}, {"threshold": 1.5}])
def test_secure_parameters_are_checked(options):
    with pytest.raises(InvalidInput):
        SecurePlus(**options)


# --- the app ----------------------------------------------------------------------------------------------------------


def test_init_writes_an_app_that_flower_accepts(tmp_path, capsys):
    from flwr.cli.config_utils import load_and_validate

    main_ok(["federate", "init", str(tmp_path / "My Hospitals"), "--sites", "5"])
    assert "flwr run" in capsys.readouterr().out
    folder = tmp_path / "My Hospitals"
    config, warnings = load_and_validate(folder / "pyproject.toml")
    assert not warnings
    assert config["tool"]["flwr"]["app"]["components"]["clientapp"] == "my_hospitals.client:app"
    settings = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert settings["sites"] == 5
    env = (folder / "env.sh").read_text()
    for name in ("FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1", "RAY_USAGE_STATS_ENABLED=0"):
        assert name in env
    assert "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in env
    told = subprocess.run(["sh", "-c", "umask 022; . ./env.sh; umask"], cwd=folder, capture_output=True, text=True)
    assert int(told.stdout, 8) == 0o077, told.stderr  # replies in Flower's database are for their owner alone
    assert "$" not in (folder / "README.md").read_text()


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # Flower's
def test_the_bundle_that_sites_receive_holds_the_code_and_nothing_else(tmp_path):
    """What a run leaves beside the app, or whatever else lies there, is not shipped to the sites."""
    import zipfile

    from flwr.cli.build import build_fab_from_disk

    app = tmp_path / "hospitals"
    init(app, sites=3)
    secrets = {
        "hospitals-out/checkpoints/sites.json": "{}", "hospitals-out/history.json": "{}", "history.json": "{}",
        "notes.md": "x", "state.yaml": "x", "hospitals/patients.json": "{}", "tools/own.py": "x = 1",
        "hospitals-out/own.py": "x = 1",
    }  # fmt: skip
    for name, text in secrets.items():
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        held = {name for name in bundle.namelist() if not name.startswith(".info")}
    assert held == {"pyproject.toml"} | {f"hospitals/{file}.py" for file in ("__init__", "server", "client", "site")}


@pytest.mark.parametrize("name", ["1st", "site", "flwr", "torch", "class", "---"])
def test_init_refuses_names_that_cannot_be_a_package(tmp_path, name):
    with pytest.raises(InvalidInput, match="name"):
        init(tmp_path / name)


def test_init_overwrites_nothing(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "precious.txt").write_text("x")
    with pytest.raises(InvalidInput, match="nothing was written"):
        init(tmp_path / "app")
    assert [p.name for p in (tmp_path / "app").iterdir()] == ["precious.txt"]


def main_ok(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def app_grid(open_site, configs):
    """Nodes of an app, each with its own node config."""
    grid = DirectGrid([site_app(open_site) for _ in configs])
    for context, config in zip(grid.contexts.values(), configs, strict=True):
        context.node_config.update(config)
    return grid


def test_the_generated_apps_code_runs_as_it_is(tmp_path, capsys):
    from ownstep.engines.federation.template import server, site

    init(tmp_path / "hospitals", sites=3)
    settings = tomllib.loads((tmp_path / "hospitals" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings |= {"rounds": 4, "out": str(tmp_path / "out"), "deadline": 0.3}
    grid = app_grid(site.open_site, [{"partition-id": i, "num-partitions": 3} for i in range(3)])
    grid.silent = lambda node, sent: node == 103 and sent >= 3
    server.main(grid, Context(1, 0, {}, RecordDict(), settings))
    assert "site-3 (weight 0.332) was missing in rounds 2 to 4: no reply within 0.3 s" in capsys.readouterr().out
    rows, labels = ownstep.load("breast_cancer").table()
    problem = ownstep.BinaryLogistic(rows, labels, ownstep.partition.by_norm(rows, devices=3), mu=1e-2)
    local = run(OwnStep(), problem, 4, participation=Outages(((2, 2, None),)))
    np.testing.assert_allclose(ownstep.History.load(tmp_path / "out" / "history").x, local.x, atol=1e-12)
    assert (tmp_path / "out" / "checkpoints" / "own-step.ckpt.npz").exists()


def test_the_generated_app_runs_own_curvature_with_its_rank_and_asks_a_cohort(tmp_path, capsys):
    from ownstep.engines.federation.template import server, site

    init(tmp_path / "hospitals", sites=3)
    settings = tomllib.loads((tmp_path / "hospitals" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings |= {"rounds": 5, "out": str(tmp_path / "out"), "method": "own_curvature", "rank": 3, "sketch": "sum"}
    settings |= {"participation": "cohort:2", "seed": 7}
    grid = app_grid(site.open_site, [{"partition-id": i, "num-partitions": 3} for i in range(3)])
    server.main(grid, Context(1, 0, {}, RecordDict(), settings))
    found = ownstep.History.load(tmp_path / "out" / "history")
    rows, labels = ownstep.load("breast_cancer").table()
    problem = ownstep.BinaryLogistic(rows, labels, ownstep.partition.by_norm(rows, devices=3), mu=1e-2)
    local = run(ownstep.OwnCurvature(3, sketch="sum"), problem, 5, participation=Cohort(2, seed=7))
    np.testing.assert_array_equal(found.took_part, local.took_part)
    np.testing.assert_allclose(found.x, local.x, atol=1e-8)


def test_the_command_line_says_where_a_federation_is_run(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "breast_cancer", "--engine", "federation"])
    assert ended.value.code == 2
    assert "ownstep federate init" in capsys.readouterr().err


def test_the_samples_of_a_device_make_its_problem_again(small_logistic):
    x = np.linspace(-1, 1, small_logistic.dim)
    for i in range(3):
        rows, labels = small_logistic.samples(i)
        again = ownstep.BinaryLogistic(rows, labels, mu=small_logistic.mu)
        np.testing.assert_allclose(again.gradients(x)[0], small_logistic.gradients(x)[i], atol=1e-15)
    sparse = ownstep.BinaryLogistic(sp.csr_array(rows), labels)
    assert (sparse.samples(0)[0] != sp.csr_array(rows)).nnz == 0


def test_a_secure_round_in_which_nobody_stayed_has_no_mean():
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters

    strategy = _Strategy(types.SimpleNamespace(nodes=(11, 22, 33)), None, 0, None, 1.0)
    assert strategy.num_available() == 3
    strategy.aggregate_fit(0, [], [])
    assert (strategy.mean, strategy.stayed) == (None, set())
    mean = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([np.array([1.5, -2.0])]), 1, {})
    strategy.aggregate_fit(0, [(_Proxy(22), mean), (_Proxy(33), mean)], [])
    assert strategy.stayed == {22, 33}
    np.testing.assert_array_equal(strategy.mean, [1.5, -2.0])
