"""A site's half of a fit: it sends its columns, sums, losses, gradients and Hessians, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data import Dataset
from ownstep.glm import disclosure, held_out
from ownstep.glm.federated.common_columns import Agreed, Columns
from ownstep.glm.prediction import Model
from ownstep.glm.sums import Scale, sums_of
from ownstep.support.errors import InvalidInput

if TYPE_CHECKING:
    from ownstep.engines.federation import Site


@dataclass(frozen=True, eq=False)
class Owner:
    """One site's data in a fit; what :func:`fit_site` makes.

    Parameters
    ----------
    name : how the coordinator calls this site.
    data : rows, labels, and the names of the columns.
    allow : take part although the limits of disclosure control are not kept.
    """

    name: str
    data: Dataset = field(repr=False)
    allow: bool = False

    def tell(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``columns``, ``sums`` or ``measure``."""
        asked = str(question.get("question"))
        if asked == "columns":
            return self._columns(question)
        if asked == "sums":
            return self._sums(question)
        if asked == "measure":
            return self._measure(question)
        raise InvalidInput(f"{self.name} does not know the question {asked!r}: is its ownstep older?")

    def site(self, task: Mapping[str, Any]) -> Site:
        """The loss on the rows that are fitted, in columns standardised over all sites."""
        from ownstep.engines.federation import Site

        agreed = Agreed.from_words(task)
        rows, labels, tested = self._rows(agreed, task)
        self._check(agreed, rows, labels, tested)
        scale = Scale(np.array(task["mean"]), np.array(task["deviation"]))
        options: dict[str, Any] = {"classes": agreed.classes} if agreed.kind.classes else {}
        standard = scale.apply(rows, np.flatnonzero(~tested))
        problem = agreed.kind.problem(standard, labels[~tested], mu=float(task["mu"]), intercept="last", **options)
        return Site(self.name, problem, smoothness="adaptive")

    def describe(self) -> dict[str, Any]:
        """What the data shows before the first run. It is refused where the site would refuse a fit."""
        here = Columns.of(self.name, self.data, "auto")
        rows, labels = self.data.table()
        self._check(here, rows, labels, np.zeros(len(labels), bool))
        return {"name": self.name, "samples": len(labels), "dim": len(here.features) + 1}

    def _columns(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Names alone, and only if no class or category among them has so few rows that its name tells of people."""
        here = Columns.of(self.name, self.data, str(question["family"]))
        rows, labels = self.data.table()
        tested = held_out.chosen(self.name, len(labels), float(question["holdout"]), int(question["seed"]))
        self._check(here, rows, labels, tested)
        return here.to_words()

    def _sums(self, question: Mapping[str, Any]) -> dict[str, Any]:
        agreed = Agreed.from_words(question)
        rows, labels, tested = self._rows(agreed, question)
        self._check(agreed, rows, labels, tested)
        fitted = ~tested
        sums = sums_of(rows[fitted], labels[fitted], agreed.classes)
        try:
            sums.check(agreed.features, agreed.label)
        except InvalidInput as error:
            raise InvalidInput(f"cannot take part: {error}") from None
        return {"sums": sums.flat().tolist()}

    def _measure(self, question: Mapping[str, Any]) -> dict[str, Any]:
        agreed = Agreed.from_words(question)
        rows, labels, tested = self._rows(agreed, question)
        self._check(agreed, rows, labels, tested)
        outputs = max(1, len(agreed.classes) - 1)
        coefficients = np.array(question["coefficients"]).reshape(-1, outputs)
        classes = tuple(map(str, agreed.classes.tolist()))
        model = Model(agreed.kind.name, agreed.features, coefficients, np.array(question["intercepts"]), classes)
        if not tested.any():
            return {"rows": 0}
        told = held_out.measure(model, rows[tested], labels[tested])
        return {key: value for key, value in told.items() if value is not None}

    def _rows(self, agreed: Agreed, task: Mapping[str, Any]) -> tuple[Any, NDArray[Any], NDArray[np.bool_]]:
        """(Rows with the columns agreed on, labels, which rows are held out)."""
        here = Columns.of(self.name, self.data, agreed.kind.name)
        rows, labels = self.data.table()
        labels = np.asarray(labels)
        if agreed.classes.dtype.kind == "U":
            labels = labels.astype(str)
        tested = held_out.chosen(self.name, len(labels), float(task["holdout"]), int(task["seed"]))
        return agreed.rows_of(here, rows), labels, tested

    def _check(self, columns: Columns | Agreed, rows: Any, labels: NDArray[Any], tested: NDArray[np.bool_]) -> None:
        """Disclosure control, by the site itself and on every question: the coordinator's word is not enough."""
        if self.allow:
            return
        outputs = max(1, len(columns.classes) - 1) if isinstance(columns, Agreed) else 1
        limit = (len(columns.features) + 1) * outputs
        about = (columns.features, columns.classes, limit, int(tested.sum()))
        why = list(disclosure.reasons(rows, labels, *about, counted=False, levels=columns.levels))
        if why:
            raise InvalidInput(
                f"does not take part, as so few could be recognised ({disclosure.listed(why)}); its owner can join "
                "small groups, leave columns out, or agree with allow=True"
            )


def fit_site(name: str, data: Dataset, *, allow: bool = False) -> Owner:
    """A site that takes part in fits, for the owner's ``open_site``.

    Parameters
    ----------
    name : how the coordinator calls this site; unique among the sites.
    data : what :func:`ownstep.load` returns, with columns of the same names at every site. Categories may differ: their
        levels are joined, the names of levels with at least five rows.
    allow : take part although the limits of disclosure control are not kept; the owner's decision.

    Examples
    --------
    >>> import numpy as np
    >>> from ownstep.data import Dataset
    >>> fit_site("Basel", Dataset("mine", np.eye(30), np.arange(30) % 2)).name
    'Basel'
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a site needs a name, got {name!r}")
    if not isinstance(data, Dataset):
        raise InvalidInput(f"fit_site takes what ownstep.load returns, got a {type(data).__name__}")
    data.table()  # text has none
    return Owner(name, data, allow)
