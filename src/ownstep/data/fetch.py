"""Find, download, verify and cache the files of a dataset.

A file is used only after its hash was checked, and appears under its name only when complete. Downloads go
to a ``.part`` file first and continue from there when they are started again.
"""

from __future__ import annotations

import bz2
import hashlib
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ownstep.data.sources import Remote, Source
from ownstep.support.errors import OwnstepError
from ownstep.support.files import write_atomically
from ownstep.support.progress import Bar

ENVIRONMENT = "OWNSTEP_DATA"
CHUNK = 1 << 18
TIMEOUT = 30


def cache_folder() -> Path:
    """Where downloads are kept: the platform's cache folder for this user."""
    from platformdirs import user_cache_path

    return user_cache_path("ownstep") / "data"


def folders() -> Iterator[Path]:
    """Where files are looked for, in this order: ``OWNSTEP_DATA`` if set, then the cache."""
    if named := os.environ.get(ENVIRONMENT):
        yield Path(named)
    yield cache_folder()


def locate(remote: Remote) -> Path | None:
    """The first folder's copy of a file, unverified; None if there is none."""
    return next((f / remote.path for f in folders() if (f / remote.path).is_file()), None)


def read(source: Source, remote: Remote, progress: bool | None = None) -> bytes:
    """The verified content of a file (uncompressed, for ``.bz2``), downloading it if it is nowhere."""
    path = locate(remote)
    if path is None:
        download(source, remote, progress)
        path = cache_folder() / remote.path
    return verified(path, remote)


def verified(path: Path, remote: Remote) -> bytes:
    """The content of a file if it hashes to what its authors published, else an error."""
    try:
        raw = path.read_bytes()
        content = bz2.decompress(raw) if remote.path.endswith(".bz2") else raw
        found = hashlib.sha256(content).hexdigest()
    except (OSError, ValueError, EOFError) as error:
        raise OwnstepError(f"{str(path)!r} cannot be read: {error}. Remove it and fetch it again") from error
    if found != remote.sha256:
        raise OwnstepError(
            f"{str(path)!r} is damaged: its sha256 is {found}, its authors' is {remote.sha256}. "
            "Remove it; what is in the cache is replaced by 'ownstep data fetch' with --force"
        )
    return content


def fetch(source: Source, force: bool = False, progress: bool | None = None) -> list[Path]:
    """Make sure every file of a dataset is there and intact; returns their paths."""
    paths, fetched = [], set()
    for remote in source.files:
        path = locate(remote)
        if path is None or (force and path.is_relative_to(cache_folder()) and remote.urls not in fetched):
            download(source, remote, progress)
            if remote.member:  # its siblings came along
                fetched.add(remote.urls)
            path = cache_folder() / remote.path
        verified(path, remote)
        paths.append(path)
    return paths


def download(source: Source, remote: Remote, progress: bool | None = None) -> None:
    """Get one file, or the archive that holds it with all its siblings, into the cache."""
    part = cache_folder() / "downloads" / (remote.urls[0].rsplit("/", 1)[-1] + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OwnstepError(f"cannot write to the cache {str(cache_folder())!r}: {error}") from error
    failures = []
    for url in remote.urls:
        try:
            _stream(url, part, source.name, progress)
            break
        except (urllib.error.URLError, OSError) as error:
            failures.append(f"{url}: {getattr(error, 'reason', error)}")
    else:
        raise OwnstepError(_missing(source, remote, failures))
    siblings = [r for r in source.files if r.urls == remote.urls] if remote.member else [remote]
    try:
        for sibling in siblings:
            _keep(part, sibling, cache_folder() / sibling.path)
    except (tarfile.TarError, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise OwnstepError(f"what {remote.urls[0]} sent is not the archive it should be: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    for sibling in siblings:
        try:
            verified(cache_folder() / sibling.path, sibling)
        except OwnstepError:
            (cache_folder() / sibling.path).unlink(missing_ok=True)
            raise


def _stream(url: str, part: Path, label: str, progress: bool | None) -> None:
    """Append the rest of a URL to a partial file."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response: Any = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if done and error.code == 416:  # nothing is left to send: the part is whole
            return
        raise
    with response:
        resumed = done > 0 and response.status == 206
        total = int(response.headers.get("Content-Length") or 0) + (done if resumed else 0)
        with part.open("ab" if resumed else "wb") as file, Bar(f"fetching {label}", total, progress) as bar:
            received = done if resumed else 0
            while chunk := response.read(CHUNK):
                file.write(chunk)
                received += len(chunk)
                bar.update(received)
        if total and received < total:
            raise OSError(f"the connection closed after {received} of {total} bytes; run it again to continue")


def _keep(part: Path, remote: Remote, target: Path) -> None:
    """Move a finished download, or one member of it, to its place in the cache."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if remote.member is None:
        part.replace(target)
        return
    with write_atomically(target) as out:
        if zipfile.is_zipfile(part):
            with zipfile.ZipFile(part) as archive, archive.open(remote.member) as member:
                _copy(member, out)
        else:
            with tarfile.open(part) as bundle:
                found = bundle.extractfile(remote.member)
                if found is None:
                    raise KeyError(remote.member)
                _copy(found, out)


def _copy(source: IO[bytes], out: IO[bytes]) -> None:
    while chunk := source.read(CHUNK):
        out.write(chunk)


def _missing(source: Source, remote: Remote, failures: list[str]) -> str:
    looked = ", ".join(str(f / remote.path) for f in folders())
    return (
        f"{source.name} is not here and could not be fetched.\n"
        f"  missing:  {remote.path}\n"
        f"  looked:   {looked}\n"
        f"  tried:    {'; '.join(failures)}\n"
        f"  to fix:   download {remote.urls[0]}"
        + (f" and take {remote.member} out of it" if remote.member else "")
        + f",\n            and put it at DIR/{remote.path} with {ENVIRONMENT}=DIR"
    )
