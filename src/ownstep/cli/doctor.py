"""Check a site before its first run: versions, key, certificates, clock, reachability, data."""

from __future__ import annotations

import email.utils
import http.client
import os
import ssl
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FLOWER = (1, 41)
SKEW = 60.0
"""Seconds that two clocks may differ: signatures of messages carry the time."""
SOON = 30
"""Days before a certificate ends that are worth a warning."""
TIMEOUT = 10.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it is well, and what was seen or has to be done."""

    name: str
    well: bool
    told: str


def examine(
    superlink: str | None = None,
    ca: Path | None = None,
    key: Path | None = None,
    site_file: Path | None = None,
    node_config: dict[str, Any] | None = None,
) -> list[Check]:
    """Everything that can be looked at with what was given; nothing is sent but a request for the server's clock."""
    looks: list[tuple[str, Callable[[], str]]] = [("versions", _versions)]
    if key is not None:
        looks.append(("key", lambda: _key(key)))
    if ca is not None:
        looks.append(("certificate authority", lambda: _authority(ca)))
    if superlink is not None:
        looks.append(("coordinator and clock", lambda: _reach(superlink, ca)))
    if site_file is not None:
        looks.append(("data", lambda: _data(site_file, node_config or {})))
    return list(_all(looks))


def _all(looks: list[tuple[str, Callable[[], str]]]) -> Iterator[Check]:
    for name, look in looks:
        try:
            yield Check(name, True, look())
        except Exception as error:  # whatever is wrong at a site is what was asked for
            bare = not str(error) or type(error) is KeyError  # which says the key and nothing else
            yield Check(name, False, f"{type(error).__name__}: {error}" if bare else str(error))


class _NoSetting(KeyError):
    """A setting of the node that open_site asks for and that is not there."""

    def __str__(self) -> str:
        return (
            f"open_site asks for the node's setting {self.args[0]!r}, which is not set. The generated site.py takes "
            "a part of a sample dataset by partition-id and num-partitions, which Flower's simulation sets: put your "
            'own data there, such as data = ownstep.load("/srv/ownstep/patients.csv", label="ill"), and name the site'
        )


class _Settings(dict[str, Any]):
    """A node's settings, which say so when one is missing."""

    def __missing__(self, key: str) -> Any:
        raise _NoSetting(key)


def _versions() -> str:
    try:
        flower = version("flwr")
    except PackageNotFoundError:
        raise ValueError("Flower is not installed: pip install 'ownstep[flower]'") from None
    if tuple(int(part) for part in flower.split(".")[:2]) < FLOWER:
        raise ValueError(f"Flower {flower} is older than {'.'.join(map(str, FLOWER))}: install a newer one")
    return f"ownstep {version('ownstep')}, Flower {flower}, Python {sys.version.split()[0]}"


def _key(path: Path) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{str(path)!r} is no OpenSSH key without a password: ssh-keygen -t ecdsa -b 384") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{str(path)!r} is not an elliptic-curve key, which Flower wants: ssh-keygen -t ecdsa -b 384")
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ValueError(f"others can read {str(path)!r}: chmod 600 {path}")
    return f"{path}, {key.curve.name}"


def _authority(path: Path) -> str:
    import datetime

    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no certificate: {error}") from error
    left = (certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days
    if left < 0:
        raise ValueError(f"{str(path)!r} ended {-left} days ago: ask the coordinator for the new one")
    return f"{path}, {left} days left" + (": renew it soon" if left < SOON else "")


def _reach(superlink: str, ca: Path | None) -> str:
    host, _, port = superlink.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"the coordinator's address must be HOST:PORT, got {superlink!r}")
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise ValueError(f"not tried, as {str(ca)!r} is no certificate authority: {error.strerror or error}") from error
    connection = http.client.HTTPSConnection(host, int(port), timeout=TIMEOUT, context=context)
    try:
        connection.connect()
        shown: Any = connection.sock.getpeercert()
        left = (ssl.cert_time_to_seconds(shown["notAfter"]) - time.time()) / 86400
        connection.request("GET", "/v1/fleet/")
        said = connection.getresponse().getheader("Date")
    except ssl.SSLCertVerificationError as error:
        raise ValueError(f"{ca or 'this machine'} does not vouch for {superlink}'s certificate: {error}") from error
    except OSError as error:
        raise ValueError(f"{superlink} cannot be reached: {error}; a firewall, or is it not running?") from error
    finally:
        connection.close()
    told = f"{superlink} answers over TLS, its certificate has {left:.0f} days left"
    if said is None:
        return f"{told}; it does not tell its time"
    skew = time.time() - email.utils.parsedate_to_datetime(said).timestamp()
    if abs(skew) > SKEW:
        raise ValueError(f"this clock is {skew:+.0f} s off the coordinator's: set it, for example with NTP")
    return f"{told}; clocks differ by {abs(skew):.0f} s"


def _data(path: Path, node_config: dict[str, Any]) -> str:
    from flwr.app import Context, RecordDict

    from ownstep.engines.federation.site import load_open_site

    began = time.monotonic()
    site = load_open_site(path)(Context(0, 0, _Settings(node_config), RecordDict(), {}))
    told = site.describe()
    took = time.monotonic() - began
    slow = ": it is read again in every round, prepare a file that reads faster" if took > 10 else ""
    return f"site {told['name']!r}, {told['samples']:,} samples, {told['dim']} coordinates, read in {took:.1f} s{slow}"
