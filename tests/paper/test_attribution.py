"""Factors of a speed-up, on curves whose crossings are known in closed form."""

import json

import numpy as np
import pytest

from ownstep import OwnstepError
from ownstep.paper.machinery.curves import to_common_level
from ownstep.paper.ours import attribution


def decay(rate, rounds=400, every=1):
    at = list(range(0, rounds + 1, every))
    return at, [float(np.exp(-rate * k)) for k in at]


def test_exponential_decays_give_the_ratio_of_their_rates():
    # the slowest method sets the level exp(-r K); the others reach it after r K / rate rounds
    series = {"GD 1/L-bar": decay(0.01), "GD matched step": decay(0.015), "Algorithm 1": decay(0.012)}
    rounds = to_common_level(series, list(series))
    assert rounds["GD 1/L-bar"] == pytest.approx(400)
    assert rounds["GD matched step"] == pytest.approx(400 / 1.5, rel=1e-3)
    split = attribution._split([{"seed": 0, "gain": 2.0, "series": series}])
    factors = split["runs"][0]["factors"]
    assert factors["longer step"] == pytest.approx(1.5, rel=1e-3)
    assert factors["geometry"] == pytest.approx(0.8, rel=1e-3)
    assert factors["longer step"] * factors["geometry"] == pytest.approx(factors["all"])


def test_crossings_are_read_between_recorded_rounds():
    series = {"a": ([0, 100], [1.0, 0.0]), "b": ([0, 100], [1.0, 0.25])}
    assert to_common_level(series, ["a", "b"]) == {"a": pytest.approx(75), "b": pytest.approx(100)}


def test_noise_does_not_make_a_method_arrive_late():
    noisy = ([0, 1, 2, 3, 4], [1.0, 0.2, 0.9, 0.5, 0.6])
    smooth = ([0, 1, 2, 3, 4], [1.0, 0.8, 0.6, 0.4, 0.2])
    rounds = to_common_level({"noisy": noisy, "smooth": smooth}, ["noisy", "smooth"])
    assert rounds == {"noisy": pytest.approx(1), "smooth": pytest.approx(4)}


def test_records_are_read_from_the_folder_of_the_results_first(tmp_path, monkeypatch):
    monkeypatch.setattr(attribution, "REPOSITORY", tmp_path / "kept")
    for folder, value in (("kept", 0.25), ("own", 0.5)):
        (tmp_path / folder / "devices").mkdir(parents=True)
        one = {"seed": 0, "gain": 2.0, "series": {"GD 1/L-bar": [1.0, value]}}
        result = {"axis": "devices", "rounds": 100, "arms": [{"value": 2, "runs": [one]}]}
        (tmp_path / folder / "devices" / "result.json").write_text(json.dumps({"result": result}))
    for folder, value in (("own", 0.5), ("elsewhere", 0.25)):
        ((label, runs),) = attribution._recorded("devices", tmp_path / folder)
        assert label == "devices, devices 2"
        assert runs[0]["series"]["GD 1/L-bar"] == ([0, 1], [1.0, value])
    (tmp_path / "own/devices/result.json").write_text("[]")
    with pytest.raises(OwnstepError, match="run 'ownstep paper devices' first"):
        list(attribution._recorded("devices", tmp_path / "own"))


def test_splits_that_two_experiments_share_are_taken_once(tmp_path):
    for name, axis, values in (("devices", "N", (2, 5, 15, 25)), ("dirichlet", "alpha", (0.1, 5))):
        arms = [{"value": v, "runs": [{"seed": 0, "gain": 2.0, "series": {}}]} for v in values]
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(
            json.dumps({"result": {"axis": axis, "rounds": 100, "arms": arms}})
        )
    # five devices of Dirichlet 0.1 are both experiments' splits
    assert [label for label, _ in attribution._recorded("devices", tmp_path)] == [
        f"devices, N {n}" for n in (2, 15, 25)
    ]
    assert len(list(attribution._recorded("dirichlet", tmp_path))) == 2


def test_a_diverged_run_has_no_factors():
    series = {"GD 1/L-bar": decay(0.01), "Algorithm 1": ([0, 1], [1.0, None])}
    split = attribution._split([{"seed": 0, "gain": 1.0, "series": series}])
    assert split["runs"][0]["factors"] == {}


@pytest.mark.parametrize(("rate", "word"), [(0.012, "does not hold here"), (0.02, "holds")])
def test_the_verdict_asks_what_geometry_adds_to_the_step(rate, word):
    series = {"GD 1/L-bar": decay(0.01), "GD matched step": decay(0.015), "Algorithm 1": decay(rate)}
    result = {
        "experiments": {"made up": attribution._split([{"seed": 0, "gain": 2.0, "series": series}])},
        "worst_case": {"rounds": 1, "switch": 1, "gain": 1.0, "best_scale": 1.5,
                       "values": dict.fromkeys((*series, attribution.BEST), 1.0)},
    }  # fmt: skip
    assert attribution.verdict(result)["verdict"] == word


def test_worst_cases_agree_with_the_closed_form_of_gradient_descent():
    # f(x_K) - f* <= R0^2 L/2 max((1 - a mu)^2K, (1 - a L)^2K) is attained by quadratics; one device class is enough
    found = attribution._worst_case(4)
    L_bar, step = 5 / 3, 1.25 * 4 / 3
    quadratic = 100 * L_bar / 2 * (1 - step * L_bar) ** 8
    assert found["values"]["GD matched step"] == pytest.approx(quadratic, rel=1e-4)


@pytest.mark.parametrize(("options", "seeds"), [({}, 8), ({"seeds": 3}, 3), ({"quick": True}, 2)])
def test_digits_are_run_with_so_many_seeds(monkeypatch, options, seeds):
    series = {name: decay(0.01) for name in ("GD 1/L-bar", "GD matched step", "Algorithm 1")}
    seen = []

    def digits(seed, rounds, progress):
        seen.append(seed)
        return {"seed": seed, "gain": 1.0, "series": series}

    monkeypatch.setattr(attribution, "_digits", digits)
    monkeypatch.setattr(attribution, "RECORDED", ())
    monkeypatch.setattr(attribution, "_worst_case", lambda rounds: {})
    attribution.run(seed=5, **options)
    assert seen == list(range(5, 5 + seeds))


def test_w8a_is_one_run_of_seed_0_per_split(tmp_path):
    arm = {"series": {"GD": {"round": [0, 1], "gap": [1.0, 0.5]}}, "plan": {"gain": 1.5}}
    (tmp_path / "w8a").mkdir()
    result = {"subset": {"by_norm": arm}, "all": {"iid": arm}}
    (tmp_path / "w8a" / "result.json").write_text(json.dumps({"result": result}))
    run = {"seed": 0, "gain": 1.5, "series": {"GD": ([0, 1], [1.0, 0.5])}}
    assert dict(attribution._recorded("w8a", tmp_path)) == {"w8a subset, by_norm": [run], "w8a all, iid": [run]}


def test_weights_are_no_factor_where_the_two_runs_share_no_level():
    """The run with equal weights stands still: there is nothing that both get down to."""
    k = list(range(4))
    series = {m: (k, [1.0, 0.5, 0.25, 0.1]) for m in attribution.CHAIN} | {attribution.UNIFORM: (k, [None] * 4)}
    (row,) = attribution._split([{"seed": 0, "gain": 2.0, "series": series}])["runs"]
    assert row["factors"]["weights"] is None
