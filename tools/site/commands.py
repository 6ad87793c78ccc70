"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import typer
from mkdocs.structure.files import File, Files

PAGES = {
    "commands-data": ("Data, plans and fits", ("data", "plan", "fit", "predict", "demo")),
    "commands-runs": ("Runs and comparisons", ("run", "compare")),
    "commands-train": ("Training networks", ("train",)),
    "commands-proofs": ("Worst cases", ("pep", "rate", "tune", "check")),
    "commands-more": ("Federations, paper, report", ()),  # and whatever is on no other page
}


def on_files(files: Files, config: Any) -> Files:
    """One page per topic, and an index of all commands."""
    from ownstep.cli import app

    whole = typer.main.get_command(app)
    assert isinstance(whole, click.Group)
    named = {name for _, names in PAGES.values() for name in names}
    rest = tuple(name for name in whole.commands if name not in named)
    index = [
        "# Command line",
        "",
        "`ownstep COMMAND --help` prints the same text.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    for page, (title, names) in PAGES.items():
        text = [f"# {title}", ""]
        for name in names or rest:
            for command, path in below(whole.commands[name], f"ownstep {name}"):
                text += section(command, path)
                if not isinstance(command, click.Group):
                    index.append(f"| [`{path}`]({page}.md#{path.replace(' ', '-')}) | {first(command)} |")
        files.append(File.generated(config, f"reference/{page}.md", content="\n".join(text)))
    files.append(File.generated(config, "reference/commands.md", content="\n".join(index) + "\n"))
    return files


def below(command: click.Command, path: str) -> Iterator[tuple[click.Command, str]]:
    """A command and those below it."""
    yield command, path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from below(inner, f"{path} {name}")


def first(command: click.Command) -> str:
    """The first sentence of a command's help."""
    text = " ".join((command.help or "").split())
    return cell(re.split(r"(?<=\.)\s", text, maxsplit=1)[0])


def section(command: click.Command, path: str) -> list[str]:
    """Heading, help, usage and a table of arguments and options."""
    context = click.Context(command, info_name=path)
    usage = command.get_usage(context).removeprefix("Usage: ")
    out = [
        f"## `{path}` {{ #{path.replace(' ', '-')} }}",
        "",
        *paragraphs(command.help or ""),
        "",
        "```text",
        usage,
        "```",
        "",
    ]
    rows = [row for p in command.get_params(context) if (row := option(p, context)) is not None]
    if rows:
        out += ["| option | meaning |", "|---|---|", *rows, ""]
    return out


def paragraphs(text: str) -> list[str]:
    """The help as Markdown: examples that start with the program's name stand as code."""
    out: list[str] = []
    for line in re.sub(r"[\b\f]", "", text).strip().splitlines():
        example = re.match(r"(?:Example: )?(ownstep .+)$", line.strip())
        out += ["", f"    {example[1]}", ""] if example else [escaped(line.strip())]
    return out


def option(parameter: click.Parameter, context: click.Context) -> str | None:
    """One row of the table; options without help are left out, as they are in the terminal."""
    if isinstance(parameter, click.Argument):
        return f"| `{parameter.make_metavar(context)}` | {cell(getattr(parameter, 'help', None) or '')} |"
    record = parameter.get_help_record(context)
    if record is None or parameter.name == "help":
        return None
    return f"| `{' '.join(record[0].split()).replace('|', '&#124;')}` | {cell(record[1])} |"


def cell(text: str) -> str:
    """Text that stays within one cell of a table."""
    return escaped(" ".join(text.split())).replace("|", "\\|")


def escaped(text: str) -> str:
    """Stars, angle brackets and dollars are meant as such."""
    parts = re.split(r"(`[^`]*`)", text.replace("\\[", "["))
    return "".join(p if p.startswith("`") else re.sub(r"([*<$_\[])", r"\\\1", p) for p in parts)
