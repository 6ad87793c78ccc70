from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownstep.plan import WIDEST, Devices, Plan, plan
from ownstep.smoothness import Smoothness
from ownstep.support.errors import InvalidInput

constants = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8)


@given(constants)
def test_gain_is_arithmetic_over_harmonic_mean_and_at_least_one(L):
    devices = Devices.uniform(L)
    arithmetic = sum(L) / len(L)
    harmonic = len(L) / sum(1 / v for v in L)
    assert devices.gain == pytest.approx(arithmetic / harmonic)
    assert devices.gain >= 1 - 1e-12


def test_equal_constants_gain_nothing_and_the_verdict_says_so():
    devices = Devices.uniform([2.0, 2.0, 2.0])
    assert devices.gain == pytest.approx(1)
    assert Plan(devices).verdict.startswith("Not worth it")


def test_the_paper_s_pair():
    devices = Devices.uniform([1 / 3, 3])
    assert devices.L_bar == pytest.approx(5 / 3)
    assert devices.mean_step == pytest.approx((3 + 1 / 3) / 2)
    assert devices.gain == pytest.approx(25 / 9)


def test_verdicts_for_one_device_a_doubtful_and_a_good_split():
    assert "nothing can be gained" in Plan(Devices.uniform([1.0])).verdict
    doubtful = plan([0.5, 0.5], Smoothness(np.array([0.5, 1.5]), "exact", "by hand", pooled=0.75))
    assert doubtful.verdict.startswith("Doubtful")
    good = plan([0.5, 0.5], Smoothness(np.array([0.1, 1.9]), "exact", "by hand", pooled=0.95))
    assert good.verdict.startswith("Worth trying")
    blind = Plan(Devices.uniform([1.0, 9.0])).verdict  # the pooled constant is not known: it is not compared with
    assert blind.startswith("Worth trying: the mean local step is 2.78 times 1/L_bar.")
    assert good.to_dict()["devices"][0]["step"] == pytest.approx(10)


def pair(gain):
    """Weights 0.3 and 0.7, L = (1, r): the gain is 1 + 0.21 (r - 1)^2 / r, solved for r."""
    t = (gain - 1) / 0.21
    return np.array([1.0, 1 + t / 2 + np.sqrt(t + t**2 / 4)])


@pytest.mark.parametrize(
    ("gain", "over_true", "word"),
    [
        (1.0499, None, "Not worth it"),
        (1.0501, None, "Worth trying"),
        (1.0499, 1.0497, "Not worth it"),
        (1.2, 1.0499, "Doubtful"),
        (1.2, 1.0501, "Worth trying"),
    ],
)
def test_verdicts_change_at_a_twentieth(gain, over_true, word):
    L = pair(gain)
    pooled = None if over_true is None else over_true / (0.3 / L[0] + 0.7 / L[1])
    made = plan([0.3, 0.7], Smoothness(L, "exact", "by hand", pooled=pooled))
    assert made.devices.gain == pytest.approx(gain, abs=1e-12)
    assert made.verdict.startswith(word)


def test_the_gain_over_the_true_constant_is_the_mean_step_times_it():
    made = plan([0.25, 0.75], Smoothness(np.array([2.0, 8.0]), "exact", "by hand", pooled=5.0))
    assert made.gain_over_true == made.to_dict()["gain_over_true_L"] == 5 * (0.25 / 2 + 0.75 / 8)
    assert made.devices.gain == 6.5 * (0.25 / 2 + 0.75 / 8)
    assert "1.42 times 1/L_bar and 1.09 times the true 1/L" in made.verdict
    assert made.steps.tolist() == [row["step"] for row in made.to_dict()["devices"]] == [1 / 2, 1 / 8]


def test_uniform_weights_replace_the_samples():
    devices = Devices(np.array([0.9, 0.1]), np.array([1.0, 3.0]))
    assert devices.reweighted("samples") is devices
    assert devices.reweighted("uniform").L_bar == pytest.approx(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.4], [1, 2]), "sum to 1, they sum to 0.9"),
        (([0.5, 0.5, 0.0], [1, 2, 3]), "weights must be positive, got 0"),
        (([1.0], [0.0]), "L must be positive, got 0"),
        (([1.0], [-2.0]), "L must be positive, got -2"),
        (([1.0], [np.nan]), "L must be finite, got nan"),
        (([0.5, 0.5], [1.0]), "2 weights for 1 devices"),
        (([1.0], [1.0], [-0.1]), "mu must be at least 0, got -0.1"),
        (([0.5, 0.5], [1.0, 1.01 * WIDEST]), "within a factor of 1e"),
        (([0.5, 0.5], [1.0, 2.0], [0.1, np.nan]), "mu must be at least 0, got nan"),
        (([0.5, 0.5], [1.0, 2.0], [0.5, 3.0]), "mu=3 and L=2 on device 2"),
        (([1.0], [1.0], [0.0], ("a",), np.inf), "L_pooled must be positive, got inf"),
        (([0.5, np.nan], [1, 2]), "weights must be finite, got nan"),
        (([1.0], [1.0], [2.0]), "mu=2 and L=1 on device 1"),
        (([1.0], [1.0], [0.0], ("a", "b")), "2 names for 1 devices"),
        (([1.0], [1.0], [0.0], ("a",), -1.0), "L_pooled must be positive, got -1.0"),
        (([[0.5, 0.5]], [1.0, 1.0]), "one number per device, got shape"),
    ],
)
def test_bad_devices_are_refused_with_the_value(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Devices(*(np.asarray(a) if isinstance(a, list) else a for a in arguments))


def test_what_devices_may_just_be():
    """The widest range of constants, mu as large as L, weights that sum to one but for rounding; names by number."""
    made = Devices(np.array([0.3, 0.7]) * (1 + 1e-12), np.array([1.0, WIDEST]), np.array([1.0, 0.0]))
    assert made.names == ("D1", "D2")
    assert len(made) == 2
    assert Devices.uniform([2.0, 3.0], 0.5).mu.tolist() == [0.5, 0.5]
    assert Devices.uniform(4.0).L.tolist() == [4.0]
    whole = Devices(np.array([0.9, 0.1]), np.array([1.0, 3.0]), np.array([0.2, 0.1]), ("a", "b"), 1.1)
    other = whole.reweighted("uniform")
    assert (other.weights.tolist(), other.names, other.L_pooled) == ([0.5, 0.5], ("a", "b"), 1.1)
    assert (other.L == whole.L).all()
    assert (other.mu == whole.mu).all()


def test_bad_smoothness_and_weights_rule():
    with pytest.raises(InvalidInput, match="positive and finite, got 0"):
        Smoothness(np.array([1.0, 0.0]), "exact", "")
    with pytest.raises(InvalidInput, match="'samples' or 'uniform', got 'even'"):
        Devices.uniform([1.0]).reweighted("even")
