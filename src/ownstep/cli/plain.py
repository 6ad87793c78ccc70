"""Plain help texts: what typer 0.20 loses beside newer versions of click is put back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from ownstep.cli.options import spread


def _plain(text: str) -> str:
    return text.replace("\\[", "[")  # typer escapes brackets for rich, even where rich does not print


class Command(TyperCommand):
    """A command whose help has the descriptions of its arguments."""

    def get_help(self, ctx: Any) -> str:
        """The help text, without backslashes and with every argument described."""
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for argument in self.params:
            if isinstance(argument, TyperArgument) and not argument.help:  # click 8.5 sets it to None after typer
                notes = getattr(hints.get(str(argument.name)), "__metadata__", ())
                argument.help = next((note.help for note in notes if getattr(note, "help", None)), None)
        return _plain(super().get_help(ctx))

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Leave out click's list of the arguments: typer prints the same list."""


class Group(TyperGroup):
    """A group of commands in plain text."""

    def get_help(self, ctx: Any) -> str:
        """The help text, without backslashes."""
        return _plain(super().get_help(ctx))


class App(typer.Typer):
    """A :class:`typer.Typer` whose commands print plain help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": Group, "rich_markup_mode": None} | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """As everywhere in typer, and groups of options become options."""
        add = super().command(name, **{"cls": Command} | options)
        return lambda command: add(spread(command))
