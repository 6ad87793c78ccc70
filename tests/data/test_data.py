"""Fetching, against a server on this machine that breaks off, lies, and knows ranges."""

from __future__ import annotations

import bz2
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from ownstep import data
from ownstep.data import fetch
from ownstep.data.sources import SOURCES, Remote, Source
from ownstep.problems import logistic_regression
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import needs

CONTENT = np.random.default_rng(0).bytes(700_000)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server():
    """Serves ``files``; breaks the next answer off after ``cut`` bytes; remembers the ranges asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = shelf.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = int(self.headers.get("Range", "bytes=0-").split("=")[1].rstrip("-"))
            shelf.starts.append(start)
            start = start if shelf.resumes else 0
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            cut, shelf.cut = shelf.cut, None
            self.wfile.write(body[start:cut])

        def log_message(self, *_):
            pass

    class Shelf:
        files, starts, cut, resumes = {}, [], None, True

    shelf = Shelf()
    shelf.files, shelf.starts = {}, []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    shelf.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    yield shelf
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture(autouse=True)
def own_cache(request, tmp_path, monkeypatch):
    if "real_data" in request.keywords:
        return
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OWNSTEP_DATA", raising=False)


def source(*files: Remote) -> Source:
    return Source("toy", "a toy", files, "nobody")


def test_a_file_is_fetched_verified_and_kept(server):
    server.files["/toy.bin"] = CONTENT
    toy = source(Remote("toy/toy.bin", sha(CONTENT), (f"{server.url}/toy.bin",)))
    assert fetch.read(toy, toy.files[0]) == CONTENT
    assert fetch.read(toy, toy.files[0]) == CONTENT
    assert server.starts == [0]  # the second time it came from the cache
    left = [p for p in fetch.cache_folder().rglob("*") if p.is_file()]
    assert left == [fetch.cache_folder() / "toy/toy.bin"]


def test_a_broken_download_goes_on_where_it_stopped(server):
    server.files["/toy.bin"], server.cut = CONTENT, 300_000
    toy = source(Remote("toy/toy.bin", sha(CONTENT), (f"{server.url}/toy.bin",)))
    with pytest.raises(OwnstepError, match="could not be fetched"):
        fetch.fetch(toy)
    assert not (fetch.cache_folder() / "toy/toy.bin").exists()
    assert fetch.read(toy, toy.files[0]) == CONTENT
    assert server.starts[0] == 0
    assert 0 < server.starts[1] <= 300_000


def test_a_server_that_begins_again_is_not_appended_to(server):
    server.files["/toy.bin"], server.cut, server.resumes = CONTENT, 300_000, False
    toy = source(Remote("toy/toy.bin", sha(CONTENT), (f"{server.url}/toy.bin",)))
    with pytest.raises(OwnstepError, match="could not be fetched"):
        fetch.fetch(toy)
    assert fetch.read(toy, toy.files[0]) == CONTENT
    assert server.starts[1] > 0  # it was asked for the rest, and sent everything


def test_the_second_address_is_tried_when_the_first_fails(server):
    server.files["/mirror/toy.bin"] = CONTENT
    urls = (f"{server.url}/gone/toy.bin", f"{server.url}/mirror/toy.bin")
    toy = source(Remote("toy/toy.bin", sha(CONTENT), urls))
    assert fetch.read(toy, toy.files[0]) == CONTENT


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_come_out_of_an_archive_fetched_once(server, kind):
    parts = {"in/a.txt": b"first", "in/b.txt": b"second"}
    box = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(box, "w") as archive:
            for name, body in parts.items():
                archive.writestr(name, body)
    else:
        with tarfile.open(fileobj=box, mode="w:gz") as archive:
            for name, body in parts.items():
                info = tarfile.TarInfo(name)
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))
    server.files["/box"] = box.getvalue()
    toy = source(*(Remote(f"toy/{n[3:]}", sha(b), (f"{server.url}/box",), n) for n, b in parts.items()))
    assert [p.read_bytes() for p in fetch.fetch(toy)] == [b"first", b"second"]
    assert server.starts == [0]


def test_an_archive_that_is_none_is_an_error(server):
    server.files["/box"] = b"<html>sorry</html>"
    toy = source(Remote("toy/a.txt", sha(b""), (f"{server.url}/box",), "in/a.txt"))
    with pytest.raises(OwnstepError, match="not the archive it should be"):
        fetch.fetch(toy)
    assert not (fetch.cache_folder() / "toy/a.txt").exists()


def test_a_damaged_file_is_refused_by_hash(server, tmp_path, monkeypatch):
    server.files["/toy.bin"] = CONTENT[:-1] + b"x"
    toy = source(Remote("toy/toy.bin", sha(CONTENT), (f"{server.url}/toy.bin",)))
    with pytest.raises(OwnstepError, match=r"toy.bin' is damaged: its sha256 is .* its authors' is"):
        fetch.read(toy, toy.files[0])
    assert not (fetch.cache_folder() / "toy/toy.bin").exists()  # so that the next try fetches it again
    server.files["/toy.bin"] = CONTENT
    assert fetch.fetch(toy)[0].read_bytes() == CONTENT
    assert fetch.fetch(toy, force=True)[0].read_bytes() == CONTENT
    mine = tmp_path / "mine/toy/toy.bin"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(CONTENT[:1000])
    monkeypatch.setenv("OWNSTEP_DATA", str(tmp_path / "mine"))
    with pytest.raises(OwnstepError, match="mine/toy/toy.bin' is damaged"):
        fetch.read(toy, toy.files[0])


def test_bz2_is_verified_by_its_content_and_a_cut_one_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("OWNSTEP_DATA", str(tmp_path))
    toy = source(Remote("toy.bz2", sha(CONTENT), ("http://127.0.0.1:9/toy.bz2",)))
    packed = bz2.compress(CONTENT, 1)
    (tmp_path / "toy.bz2").write_bytes(packed)
    assert fetch.read(toy, toy.files[0]) == CONTENT
    (tmp_path / "toy.bz2").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(OwnstepError, match=r"toy.bz2' (is damaged|cannot be read)"):
        fetch.read(toy, toy.files[0])


def test_without_network_the_error_says_what_where_from_and_where_to(monkeypatch):
    toy = source(Remote("toy/toy.bin", sha(CONTENT), ("http://127.0.0.1:9/toy.bin",)))
    with pytest.raises(OwnstepError) as caught:
        fetch.read(toy, toy.files[0])
    text = str(caught.value)
    for part in (
        "toy is not here",
        "missing:  toy/toy.bin",
        "http://127.0.0.1:9/toy.bin",
        "OWNSTEP_DATA=DIR",
        "looked:",
    ):
        assert part in text


def test_an_unwritable_cache_is_an_error_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    toy = source(Remote("toy/toy.bin", sha(CONTENT), ("http://127.0.0.1:9/toy.bin",)))
    with pytest.raises(OwnstepError, match="cannot write to the cache"):
        fetch.read(toy, toy.files[0])


def test_bundled_datasets():
    digits = data.load("digits")
    rows, labels = digits.table()
    assert rows.shape == (1797, 64)
    assert rows.max() == 1
    assert len(np.unique(labels)) == 10
    rows, labels = data.load("breast_cancer").table()
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.std(axis=0), 1)
    assert set(data.names()) == {
        "w8a", "mnist", "cifar10", "sst2", "sst2_words", "heart_disease", "digits", "breast_cancer",
    }  # fmt: skip


def test_unknown_names_are_met_with_the_nearest():
    with pytest.raises(InvalidInput, match="unknown dataset 'cifar-10'. Did you mean 'cifar10'"):
        data.load("cifar-10")


def test_every_source_is_described_and_addressed():
    for name, listed in SOURCES.items():
        assert listed.name == name
        for remote in listed.files:
            assert len(remote.sha256) == 64
            assert all(url.startswith(("https://", "http://")) for url in remote.urls)


@pytest.mark.slow
@pytest.mark.real_data
@needs("w8a")
def test_w8a_as_its_authors_describe_it():
    loaded = data.load("w8a")
    assert loaded.rows.shape == (49749, 300)
    assert loaded.rows.nnz == 579586
    assert (loaded.labels > 0).sum() == 1479
    assert loaded.test_rows.shape == (14951, 300)
    assert set(np.unique(loaded.rows.data)) == {1.0}


@pytest.mark.slow
@pytest.mark.real_data
@needs("mnist")
def test_mnist_as_its_authors_describe_it():
    loaded = data.load("mnist")
    assert loaded.rows.shape == (60000, 28, 28)
    assert np.bincount(loaded.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(loaded.test_labels).sum() == 10000
    rows, _ = loaded.table()
    assert rows.shape == (60000, 784)
    assert (rows.min(), rows.max()) == (0, 1)


@pytest.mark.slow
@pytest.mark.real_data
@needs("cifar10")
def test_cifar10_as_its_authors_describe_it():
    loaded = data.load("cifar10")
    assert loaded.rows.shape == (50000, 3, 32, 32)
    assert (np.bincount(loaded.labels) == 5000).all()
    assert (np.bincount(loaded.test_labels) == 1000).all()
    means = loaded.rows.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=1e-7)


@pytest.mark.slow
@pytest.mark.real_data
@needs("sst2")
def test_sst2_as_its_authors_describe_it():
    loaded = data.load("sst2")
    assert len(loaded.rows) == 67349
    assert loaded.labels.sum() == 37569
    assert len(loaded.test_rows) == 872
    assert loaded.test_labels.sum() == 444
    with pytest.raises(InvalidInput, match="sst2 is text"):
        loaded.table()


def test_a_model_without_data_is_refused_in_a_sentence():
    with pytest.raises(InvalidInput, match="^labels must be a list with one label per row, got None$"):
        logistic_regression(np.eye(3), None)
    with pytest.raises(InvalidInput, match="^the table is empty: logistic regression needs rows, each with a label"):
        logistic_regression(np.zeros((0, 3)), [])
    with pytest.raises(InvalidInput, match=r"one label per row, got an array of shape \(3, 1\)"):
        logistic_regression(np.eye(3), [[0], [1], [0]])
