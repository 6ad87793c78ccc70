"""A complete Flower app, written out for a federation to make its own."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template

from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError

CODE = ("__init__.py", "server.py", "client.py", "site.py")
TEXTS = ("pyproject.toml", "env.sh", "README.md")
KIT = ("compose.yaml", "Containerfile", "proxy.conf", "superlink.service", "supernode.service", "certificates.sh")
"""What an operator needs besides: containers, units, a proxy that closes the Control API, certificates."""
TAKEN = {"flwr", "numpy", "ownstep", "ray", "scipy", "sklearn", "torch", *keyword.kwlist, *sys.stdlib_module_names}
"""Names a package of the app may not have: it would stand before what the app itself imports."""


def init(folder: str | Path, sites: int = 3, publisher: str = "ownstep") -> list[Path]:
    """Write a Flower app into a new or empty folder and return the files.

    Parameters
    ----------
    folder : its name becomes the app's name.
    sites : how many the coordinator waits for.
    publisher : the account under which Flower files the app.
    """
    whole_number("sites", sites, 1)
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InvalidInput(f"{str(folder)!r} is not a new or an empty folder; nothing was written")
    name = re.sub(r"[^a-z0-9]+", "-", place.resolve().name.lower()).strip("-")
    package = name.replace("-", "_")
    if not name or not name[0].isalpha() or package in TAKEN:
        raise InvalidInput(
            f"the folder's name becomes a package's: a letter first, and no name that is taken; got {place.name!r}"
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", publisher):
        raise InvalidInput(f"a publisher's name has letters, digits and dashes, got {publisher!r}")
    words = {"name": name, "package": package, "sites": str(sites), "publisher": publisher}
    source = files(__package__) / "template"
    contents = {place / words["package"] / file: (source / file).read_text("utf-8") for file in CODE}
    contents |= {
        place / file: Template((source / f"{file}.txt").read_text("utf-8")).substitute(words)
        for file in (*TEXTS, *(f"deploy/{name}" for name in KIT))
    }
    try:
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)
    except OSError as error:
        raise OwnstepError(f"cannot write the app to {str(folder)!r}: {error}") from error
    return list(contents)
