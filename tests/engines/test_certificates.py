"""The certificates we make and document, under OpenSSL's strict rules, and their renewal."""

from __future__ import annotations

import re
import ssl
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from ownstep.engines.federation.loopback import keys

PAGE = Path(__file__).parents[2] / "docs" / "federation-coordinator.md"


def shake_hands(server_pem: Path, server_key: Path, authorities: Path, name: str) -> None:
    """A TLS handshake in memory, the client as strict as Python 3.13's is by default."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(server_pem, server_key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(authorities)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not ends:
            return
    pytest.fail("no handshake")


def commands(heading: str) -> str:
    """The openssl commands of one section of the coordinator's page, as printed."""
    section = PAGE.read_text().split(heading, 1)[1]
    return re.search(r"```\n(openssl.*?)```", section, re.S).group(1)


def shell(text: str, folder: Path) -> None:
    try:
        subprocess.run(["bash", "-ec", text], cwd=folder, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("bash or openssl is not installed here")


def test_throw_away_certificates_pass_strict_rules(tmp_path):
    keys.server(tmp_path, keys.authority(tmp_path))
    shake_hands(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.crt", "localhost")
    keys.authority(tmp_path, "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "other.crt", "localhost")


def test_the_documented_certificates_pass_strict_rules_and_can_be_renewed(tmp_path):
    shell(commands("## Make the app and certificates, once"), tmp_path)
    files = (tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.crt")
    shake_hands(*files, "coordinator.example.org")
    authority, before = files[2].read_bytes(), files[0].read_bytes()
    shell(commands("### Renewing the server's certificate"), tmp_path)
    assert files[0].read_bytes() != before
    assert files[2].read_bytes() == authority  # the sites need nothing new
    shake_hands(*files, "coordinator.example.org")
    shell(commands("### Renewing the authority"), tmp_path)
    both = files[2].read_bytes()
    assert authority in both  # sites that have both believe the old and the new
    shake_hands(*files, "coordinator.example.org")
    files[2].write_bytes(authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(*files, "coordinator.example.org")
    for key in ("ca.key", "server.key"):
        assert (tmp_path / key).stat().st_mode & 0o077 == 0
