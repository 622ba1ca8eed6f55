"""The server over real sockets: what it answers, what it refuses, and that nothing of a job outlives it."""

import http.client
import json
import multiprocessing
import threading
import time
import zipfile
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tensorldm.viewer.access import LOOPBACK
from tensorldm.viewer.scene import Scene, find_scene
from tensorldm.viewer.server import serving
from tensorldm.viewer.workbench import Means

METHOD = Means(method="minimum-norm", device="cpu")


class Client:
    """A browser's manners: same origin unless told otherwise."""

    def __init__(self, access):
        self.access = access

    def ask(self, method, path, *, body=None, token=None, headers=None):
        own = {"Origin": f"http://{LOOPBACK}:{self.access.port}"} if method == "POST" else {}
        connection = http.client.HTTPConnection(LOOPBACK, self.access.port, timeout=20)
        try:
            given = self.access.token if token is None else token
            connection.request(method, f"/{given}/{path}", body=body, headers={**own, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read(), dict(response.getheaders())
        finally:
            connection.close()

    def json(self, method, path, **options):
        status, content, _ = self.ask(method, path, **options)
        return status, json.loads(content)


@contextmanager
def run_server(scene, means=METHOD):
    with serving(scene, means) as (server, access):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield Client(access)
        finally:
            server.shutdown()
            thread.join(5)


@pytest.fixture
def client(tmp_path, make_result, tensors):
    make_result(tmp_path / "scene" / "model", tensors())
    (tmp_path / "scene" / "model" / "bundle.tck").write_bytes(b"mrtrix tracks")
    with run_server(find_scene([tmp_path / "scene"])) as running:
        yield running


def test_the_page_comes_with_its_policy(client):
    status, content, headers = client.ask("GET", "")
    assert status == 200
    assert b"<title>TensorLDM" in content
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["", "api/scene", "api/volume/r0/fa.nii", "js/main.js", "api/job/result.zip"])
@pytest.mark.parametrize("token", ["", "wrong", "x" * 32])
def test_without_the_token_nothing_is_answered(client, path, token):
    status, content, _ = client.ask("GET", path, token=token)
    assert status == 403
    assert client.access.token.encode() not in content


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "api/scene"), ("POST", "api/job/discard")])
def test_other_pages_are_refused_even_with_the_token(client, method, path, headers):
    assert client.ask(method, path, headers=headers)[0] == 403


def test_a_change_without_an_origin_is_refused(client):
    connection = http.client.HTTPConnection(LOOPBACK, client.access.port, timeout=10)
    connection.request("POST", f"/{client.access.token}/api/job/discard")
    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.parametrize(
    "path",
    ["../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "js/../../library.py", "api/volume/..%2f..%2fx/fa.nii",
     "api/volume/r0/../../tensor.nii", "api/tracts/../../secret", "api/volume/r9/fa.nii", "api/nothing"],
)  # fmt: skip
def test_paths_that_are_not_in_the_table_lead_nowhere(client, path):
    assert client.ask("GET", path)[0] == 404


def test_maps_and_tracts_are_sent_by_key(client):
    status, content, _ = client.ask("GET", "api/volume/r0/fa.nii")
    assert status == 200
    assert nibabel.Nifti1Image.from_bytes(content).shape == (5, 6, 7)
    assert client.ask("GET", "api/tracts/t0.tck")[1] == b"mrtrix tracks"


@pytest.mark.parametrize("query", ["", "x=1&y=2", "x=nan&y=0&z=0", "x=inf&y=0&z=0", "x=a&y=b&z=c"])
def test_a_point_needs_three_numbers(client, query):
    status, answer = client.json("GET", f"api/at?keys=r0&{query}")
    assert status == 422
    assert "three numbers" in answer["error"]


def test_a_request_for_too_much_is_refused(client):
    assert client.ask("GET", "api/at?" + "&".join(f"a{n}=1" for n in range(50)))[0] == 400


def test_a_damaged_file_is_told_in_a_sentence(tmp_path, make_result, tensors):
    tensor = make_result(tmp_path, tensors())
    with run_server(find_scene([tmp_path])) as client:
        tensor.write_bytes(tensor.read_bytes()[:1000])
        status, answer = client.json("GET", "api/volume/r0/fa.nii")
    assert status == 422
    assert "tensor.nii.gz" in answer["error"]


def test_an_upload_over_the_limit_is_refused_by_what_it_announces(client):
    connection = http.client.HTTPConnection(LOOPBACK, client.access.port, timeout=10)
    connection.putrequest("POST", f"/{client.access.token}/api/job/files/bval")
    connection.putheader("Origin", f"http://{LOOPBACK}:{client.access.port}")
    connection.putheader("Content-Length", str(2**40))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 422
    assert b"limit" in response.read()
    connection.close()


@pytest.mark.parametrize("headers", [{"Content-Length": "-5"}, {"Content-Length": "many"}])
def test_a_length_that_is_no_number_is_refused(client, headers):
    assert client.ask("POST", "api/job/files/bval", headers=headers)[0] == 400


def test_only_files_of_a_scan_are_taken(client):
    assert client.ask("POST", "api/job/files/script", body=b"x")[0] == 404


@pytest.fixture(scope="module")
def scan(tmp_path_factory) -> Path:
    """b=0 and three directions of a round head with fibres along its axes."""
    folder = tmp_path_factory.mktemp("scan")
    rng = np.random.default_rng(0)
    centred = np.indices((20, 20, 20)) - 9.5
    head = (centred**2).sum(axis=0) < 64
    values = rng.permuted(np.broadcast_to([1.6e-3, 0.4e-3, 0.3e-3], (20, 20, 20, 3)), axis=-1)
    signal = 1000 * np.concatenate([np.ones((20, 20, 20, 1)), np.exp(-1000 * values)], axis=-1) * head[..., None]
    noisy = np.abs(signal + rng.normal(scale=8, size=signal.shape)).astype(np.float32)
    affine = np.diag([-6.0, 6, 6, 1])
    nibabel.save(nibabel.Nifti1Image(noisy, affine), folder / "dwi.nii.gz")
    nibabel.save(nibabel.Nifti1Image(head.astype(np.uint8), affine), folder / "mask.nii.gz")
    (folder / "dwi.bval").write_text("0 1000 1000 1000\n")
    (folder / "dwi.bvec").write_text("0 1 0 0\n0 0 1 0\n0 0 0 1\n")
    return folder


FILES = {"image": "dwi.nii.gz", "bval": "dwi.bval", "bvec": "dwi.bvec", "mask": "mask.nii.gz"}


def send(client, scan, kinds=tuple(FILES)):
    for kind in kinds:
        content = (scan / FILES[kind]).read_bytes()
        status, _ = client.json(
            "POST", f"api/job/files/{kind}", body=content, headers={"X-File-Name": f"my%20{FILES[kind]}"}
        )
        assert status == 200


def wait_for(client, *states, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _, status = client.json("GET", "api/job")
        if status["state"] in states:
            return status
        time.sleep(0.1)
    raise AssertionError(status)


def test_a_scan_goes_through_the_page_and_leaves_nothing_behind(scan, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with run_server(Scene((), (), ())) as client:
        send(client, scan)
        _, checked = client.json("POST", "api/job/check")
        assert checked["volumes"] == [0, 1, 2, 3]
        assert any("coarse" in word for word in checked["warnings"])
        assert client.ask("GET", "api/job/result.zip")[0] == 404
        assert client.json("POST", "api/job/start")[0] == 200
        status, busy = client.json("POST", "api/job/start")
        assert status == 409
        assert "running" in busy["error"]
        assert client.ask("POST", "api/job/files/bval", body=b"0")[0] == 409
        done = wait_for(client, "done", "failed")
        assert done["state"] == "done", done["message"]
        assert done["lines"]
        _, scene = client.json("GET", "api/scene")
        assert [each["subject"] for each in scene["shown"]] == ["my dwi.nii.gz"]
        content = client.ask("GET", "api/job/result.zip")[1]
        with zipfile.ZipFile(BytesIO(content)) as archive:
            assert archive.testzip() is None
            assert "tensorldm/tensor.nii.gz" in archive.namelist()
            assert "tensorldm/fa.nii.gz" in archive.namelist()
            assert not [name for name in archive.namelist() if "/." in name]
        assert client.json("POST", "api/job/cancel")[1]["state"] == "done"
        assert client.ask("GET", "api/job/result.zip")[1] == content
        client.json("POST", "api/job/discard")
        assert client.json("GET", "api/scene")[1]["shown"] == []
        assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o700]
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert list(tmp_path.iterdir()) == []


def test_a_running_job_is_cancelled_and_dies_with_the_server(scan, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(multiprocessing.active_children())
    with run_server(Scene((), (), ())) as client:
        send(client, scan)
        client.json("POST", "api/job/start")
        assert client.json("POST", "api/job/cancel")[1]["state"] == "cancelled"
        assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == set(FILES.values())
        assert set(multiprocessing.active_children()) == before
        client.json("POST", "api/job/start")
        assert len(set(multiprocessing.active_children()) - before) == 1
    assert set(multiprocessing.active_children()) == before
    assert list(tmp_path.iterdir()) == []


def test_missing_and_wrong_files_are_told_in_the_users_words(scan, tmp_path):
    with run_server(Scene((), (), ())) as client:
        send(client, scan, ("image", "bval"))
        status, answer = client.json("POST", "api/job/check")
        assert status == 422
        assert "directions (.bvec)" in answer["error"]
        client.json(
            "POST", "api/job/files/bvec", body=b"these are no directions", headers={"X-File-Name": "notes.bvec"}
        )
        status, answer = client.json("POST", "api/job/check")
        assert status == 422
        assert answer["error"].startswith("notes.bvec")
        send(client, scan, ("bvec",))
        client.json(
            "POST", "api/job/files/image", body=b"\x1f\x8b but no image", headers={"X-File-Name": "photo.nii.gz"}
        )
        status, answer = client.json("POST", "api/job/check")
        assert status == 422
        assert answer["error"].startswith("photo.nii.gz")
        assert "tensorldm-view" not in answer["error"]


def test_what_the_guard_refuses_can_be_forced_from_the_page(scan):
    with run_server(Scene((), (), ())) as client:
        send(client, scan)
        client.json("POST", "api/job/files/bval", body=b"0 3000 3000 3000")
        status, answer = client.json("POST", "api/job/check")
        assert status == 422
        assert "Go on all the same" in answer["error"]
        assert client.json("POST", "api/job/check?force=1")[0] == 200
