"""The operator's kit: files that parse and verify with their own tools, and a doctor that finds what is wrong."""

from __future__ import annotations

import datetime
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import threading

import pytest

pytest.importorskip("flwr", reason="the federation needs the extra [flower]")


from ownstep.cli import main
from ownstep.cli.doctor import examine
from ownstep.engines.federation import init
from ownstep.engines.federation.loopback import keys

from .test_certificates import shake_hands


@pytest.fixture
def app(tmp_path):
    init(tmp_path / "hospitals", sites=3)
    return tmp_path / "hospitals"


def test_compose_and_container_files(app):
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((app / "deploy/compose.yaml").read_text())["services"]
    assert services["proxy"]["ports"] == ["443:443"]
    link = services["superlink"]
    assert "ports" not in link  # only the proxy is reached from outside
    assert link["read_only"]
    assert f"state:{link['working_dir']}" in link["volumes"]  # histories are written where there is room to write
    for service in services.values():  # the authority's own key goes into no container
        mounted = [volume.split(":")[0] for volume in service["volumes"]]
        assert not {"./keys", "./keys/ca.key", ".", ".."} & set(mounted)
    text = (app / "deploy/Containerfile").read_text()
    assert re.findall("^COPY .*$", text, re.M) == [  # neither keys nor databases that lie beside them
        "COPY --chown=ownstep pyproject.toml /app/", "COPY --chown=ownstep hospitals /app/hospitals",
    ]  # fmt: skip
    assert f"install -d -o ownstep -m 700 {link['working_dir']}" in text
    assert "\nUSER ownstep\n" in text
    assert "FROM python:3.12-slim" in text


def test_the_proxy_passes_nothing_but_the_sites_part(app):
    text = (app / "deploy/proxy.conf").read_text()
    assert text.count("{") == text.count("}")
    assert text.count("proxy_pass") == 1
    assert "location /v1/fleet/ {\n      proxy_pass" in text
    assert "location / {\n      return 403;" in text


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx here to check its configuration")
def test_nginx_takes_the_proxys_configuration(app, tmp_path):
    keys.server(tmp_path, keys.authority(tmp_path))
    text = (app / "deploy/proxy.conf").read_text()
    here = text.replace("/keys/", f"{tmp_path}/").replace("https://superlink:", "https://127.0.0.1:")
    conf = tmp_path / "proxy.conf"

    def check(text):
        conf.write_text(text)
        command = ["nginx", "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(conf)]
        paths = f"pid {tmp_path}/pid; error_log stderr;"
        return subprocess.run([*command, "-g", paths], capture_output=True, text=True, timeout=60)

    done = check(here)
    assert done.returncode == 0, done.stderr
    assert check(here.replace("proxy_ssl_verify", "proxy_ssl_verfy")).returncode != 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", ["superlink", "supernode"])
def test_units_verify(app, unit, tmp_path):
    copy = tmp_path / f"hospitals-{unit}.service"
    copy.write_text((app / f"deploy/{unit}.service").read_text())
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not ours
    assert "Restart=" in copy.read_text()
    if unit == "superlink":  # the rest of the disk is read only, and histories are written where it is started
        assert "\nWorkingDirectory=/var/lib/hospitals\n" in copy.read_text()
        assert "\nStateDirectory=hospitals\n" in copy.read_text()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_certificates_are_made_kept_and_renewed(app):
    script = app / "deploy/certificates.sh"
    assert os.access(script, os.X_OK)

    def run():
        command = [script, "coordinator.example.org"]
        return subprocess.run(command, cwd=app, capture_output=True, text=True, check=True)

    assert "new certificate" in run().stdout
    files = [app / "deploy/keys" / name for name in ("server.pem", "server.key", "ca.crt")]
    made = files[0].read_bytes()
    assert "new certificate" not in run().stdout
    assert files[0].read_bytes() == made
    assert files[1].stat().st_mode & 0o077 == 0
    shake_hands(*files, "coordinator.example.org")
    script.write_text(script.read_text().replace("-checkend 2592000", "-checkend 99999999"))  # as if it ended soon
    assert "new certificate" in run().stdout
    assert files[0].read_bytes() != made
    shake_hands(*files, "coordinator.example.org")


@pytest.fixture
def coordinator(tmp_path):
    """A server with a certificate of a throw-away authority, whose clock can be wrong."""
    keys.server(tmp_path, keys.authority(tmp_path))

    class Handler(http.server.BaseHTTPRequestHandler):
        late = 0

        def do_GET(self):
            self.send_error(403)

        def date_time_string(self, timestamp=None):
            return super().date_time_string(datetime.datetime.now().timestamp() - type(self).late)

        def log_message(self, *_):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{httpd.server_address[1]}", Handler
    httpd.shutdown()
    httpd.server_close()


SITE = """
import numpy as np
from ownstep import BinaryLogistic
from ownstep.engines.federation import Site

def open_site(context):
    return Site("basel", BinaryLogistic(np.eye(4), [0, 1, 0, 1]))
"""


def test_a_site_that_is_well(tmp_path, coordinator, capsys):
    private, _ = keys.node_key(tmp_path, "site-1")
    (tmp_path / "site.py").write_text(SITE)
    options = ["--superlink", coordinator[0], "--ca", str(tmp_path / "ca.crt"), "--key", str(private)]
    with pytest.raises(SystemExit) as ended:
        main(["federate", "doctor", *options, "--site-file", str(tmp_path / "site.py"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0, told
    assert [c["name"] for c in told] == ["versions", "key", "certificate authority", "coordinator and clock", "data"]
    assert "site 'basel', 4 samples, 4 coordinates" in told[-1]["told"]


def test_what_is_wrong_is_found(tmp_path, coordinator, capsys):
    address, handler = coordinator
    private, public = keys.node_key(tmp_path, "site-1")
    (tmp_path / "other").mkdir()
    keys.authority(tmp_path / "other")
    (tmp_path / "site.py").write_text("def open_site(context):\n    return open('/nowhere/patients.csv')\n")

    def only(**what):
        (check,) = [c for c in examine(**what) if not c.well]
        return check.told

    private.chmod(0o644)
    assert "chmod 600" in only(key=private)
    assert "is no OpenSSH key" in only(key=public)
    assert "cannot be read" in only(key=tmp_path / "nothing")
    assert "is no certificate" in only(ca=private)
    assert "does not vouch" in only(superlink=address, ca=tmp_path / "other/ca.crt")
    assert "cannot be reached" in only(superlink="127.0.0.1:9", ca=tmp_path / "ca.crt")
    assert "must be HOST:PORT" in only(superlink="nowhere")
    assert "/nowhere/patients.csv" in only(site_file=tmp_path / "site.py")
    handler.late = 300
    assert "s off the coordinator's" in only(superlink=address, ca=tmp_path / "ca.crt")
    with pytest.raises(SystemExit) as ended:
        main(["federate", "doctor", "--superlink", "nowhere"])
    assert ended.value.code == 1
    assert "FAIL coordinator" in capsys.readouterr().out


def test_the_generated_site_is_told_what_to_change(app, tmp_path):
    (found,) = [c.told for c in examine(site_file=app / "hospitals" / "site.py") if not c.well]
    assert found.startswith("open_site asks for the node's setting 'partition-id', which is not set.")
    assert "ownstep.load(" in found
    (tmp_path / "other.py").write_text("def open_site(context):\n    return {}['age']\n")
    (found,) = [c.told for c in examine(site_file=tmp_path / "other.py") if not c.well]
    assert found == "KeyError: 'age'"


def test_a_missing_authority_is_named_before_the_coordinator_is_tried(tmp_path):
    checks = {check.name: check for check in examine(superlink="localhost:1", ca=tmp_path / "ca.crt")}
    reached = checks["coordinator and clock"]
    assert not reached.well
    assert "ca.crt" in reached.told
