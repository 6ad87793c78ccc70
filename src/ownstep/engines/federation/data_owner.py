"""Owners who answer questions before there is a problem: what the columns are, what their sums are.

A method needs a problem of known size. Where the sites first have to agree on one, as in a fit of columns and
categories that each knows for itself, ``open_site`` returns a :class:`Holder` in place of a
:class:`~ownstep.engines.federation.site.Site`. It answers questions, and becomes a site once it is told the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from flwr.app import ConfigRecord

from ownstep.support.errors import OwnstepError, plain_text

if TYPE_CHECKING:
    from ownstep.engines.federation.site import Site

REFUSED = "refused"
"""Under this word a site says why it does not answer; nothing else is in such a reply."""


@runtime_checkable
class Holder(Protocol):
    """Data that becomes a site when it is told what for."""

    @property
    def name(self) -> str:
        """How the coordinator calls this site."""
        ...

    def tell(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question with words, numbers and lists of them; an :class:`OwnstepError` is a refusal."""
        ...

    def describe(self) -> dict[str, Any]:
        """Its name, samples and dim, before any task; an :class:`OwnstepError` where it would not take part."""
        ...

    def site(self, task: Mapping[str, Any]) -> Site:
        """The site for a task that the coordinator has sent."""
        ...


def answered(holder: object, question: Mapping[str, Any]) -> ConfigRecord:
    """What a site answers: its own words, or why it refuses."""
    name = plain_text(getattr(holder, "name", ""), 80)
    if not isinstance(holder, Holder):
        return ConfigRecord({
            "name": name,
            REFUSED: "its open_site returns a problem, which takes part in runs of a method; for a fit it returns "
            "ownstep.glm.fit_site(name, data)",
        })  # fmt: skip
    try:
        return ConfigRecord({"name": name} | holder.tell(question))
    except OwnstepError as refusal:
        print(f"ownstep: {name} refuses: {refusal}", flush=True)  # the owner's log says what the coordinator hears
        return ConfigRecord({"name": name, REFUSED: plain_text(refusal, 600)})
