"""The fit between owners of data, on Flower's messages: the numbers of the pooled fit, and refusals of small sites."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the federation needs the extra [flower]")

import ownstep
from ownstep.engines.federation import Terms, site_app
from ownstep.glm import fit, fit_over, fit_site
from ownstep.support.errors import InvalidInput

from ..conftest import needs
from ..engines.federation_grid import DirectGrid
from .test_fit import sample


def over(rows, labels, sites, family, classes, features, **options):
    """The same fit over a grid whose nodes each hold one site's rows."""
    apps = []
    for name in sorted(set(sites)):
        mine = sites == name
        held = fit_site(
            str(name), rows[mine], labels[mine], features=features, family=family, classes=classes, **options
        )
        apps.append(site_app(lambda context, held=held: held))
    terms = Terms(sites=len(apps), deadline=20.0, joining=20.0)
    return fit_over(DirectGrid(apps), terms, features=features, family=family, classes=classes)


@pytest.mark.parametrize("family", ["logistic", "softmax", "linear"])
def test_the_numbers_are_those_of_the_pooled_fit(family):
    rows, labels, sites = sample(family)
    classes = [] if family == "linear" else np.unique(labels).tolist()
    features = ["a", "b", "c", "d"]
    there = over(rows, labels, sites, family, classes, features)
    here = fit(rows, labels, sites, family=family, features=features)
    for key in ("estimate", "standard_error", "p", "low"):
        mine, theirs = ([getattr(c, key) for c in f.coefficients] for f in (there, here))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-12)
    assert [c.name for c in there.coefficients] == [c.name for c in here.coefficients]
    assert there.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-7)
    assert there.sites == here.sites
    assert there.exchanges <= here.exchanges + 2


def test_a_site_refuses_by_itself_unless_its_owner_allows():
    rows, labels, _ = sample("logistic")
    few = {"features": ["a", "b", "c", "d"], "classes": ["no", "yes"]}
    with pytest.raises(InvalidInput, match="site 'tiny' does not take part.*8 rows, fewer than 15"):
        fit_site("tiny", rows[:8], labels[:8], **few)
    assert fit_site("tiny", rows[:8], labels[:8], **few, allow=True).count == 8
    alone = np.full(40, "yes")
    with pytest.raises(InvalidInput, match="0 rows of class no"):
        fit_site("one-sided", rows[:40], alone, **few)
    with pytest.raises(InvalidInput, match="labels must be one of"):
        fit_site("other", rows[:40], np.full(40, "maybe"), **few, allow=True)


@pytest.mark.real_data
@needs("heart_disease")
def test_four_hospitals_in_eight_exchanges():
    data = ownstep.load("heart_disease")
    there = over(data.rows, data.labels, data.sites, "logistic", [0, 1], data.features, allow=True)
    here = fit(data.rows, data.labels, features=data.features)
    np.testing.assert_allclose(
        [c.estimate for c in there.coefficients], [c.estimate for c in here.coefficients], atol=1e-6
    )
    assert there.exchanges - 1 <= 8  # joining apart
