"""The main job in the page: a scan in, checks and progress, a result to look at and to take away; strangers outside."""

import io
import runpy
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tensorldm.demo import run_demo
from tensorldm.reconstruct.settings import Settings
from tensorldm.viewer.scene import Scene
from tensorldm.viewer.server import serving
from tensorldm.viewer.workbench import Means

NOTHING = Scene((), (), ())
MINUTE = 60_000
_models = runpy.run_path(str(Path(__file__).parents[1] / "e2e" / "reconstruct" / "conftest.py"))


@pytest.fixture(scope="module")
def scan(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    run_demo(out, seed=0, voxel_size=6.0, tell=lambda _: None)
    # The middle of the brain is enough, and a model works at 2 mm whatever the scan's voxels are.
    mask = nibabel.load(out / "scan" / "mask.nii.gz")
    middle = np.zeros(mask.shape, dtype=np.uint8)
    middle[11:21, 13:24, 12:21] = np.asarray(mask.dataobj)[11:21, 13:24, 12:21]
    nibabel.save(nibabel.Nifti1Image(middle, mask.affine), out / "scan" / "mask.nii.gz")
    return out / "scan"


@pytest.fixture(scope="module")
def smoke_model(tmp_path_factory) -> Path:
    return _models["untrained"](tmp_path_factory.mktemp("model") / "bundle", [])


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(5)


@pytest.fixture
def access(smoke_model, tmp_path, monkeypatch):
    """An empty page whose temporary files lie where the test can see them."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    means = Means(model=smoke_model, device="cpu", settings=Settings(samples=2, steps=2))
    with serving(NOTHING, means) as (server, access), running(server):
        yield access
    assert list((tmp_path / "temporary").iterdir()) == []


def files(scan, *names):
    return [str(scan / name) for name in names]


WHOLE = ("dwi.nii.gz", "dwi.bval", "dwi.bvec", "mask.nii.gz", "dwi.json")


def test_a_scan_is_reconstructed_in_the_page_and_taken_away_as_a_zip(page, access, scan, tmp_path, look):
    page.goto(access.address)
    page.click("#open-job-empty")
    page.set_input_files("#files", files(scan, *WHOLE))
    page.wait_for_selector("#start:enabled")
    assert "minimum-norm" not in page.inner_text("#facts")
    assert "volumes 0, 1, 2, 3" in page.inner_text("#facts")
    assert "coarse" in page.inner_text("#job-warnings")
    page.screenshot(path=str(look / "job-checked.png"))
    page.click("#start")
    page.wait_for_selector("#parts li:nth-child(2)", timeout=MINUTE)
    assert page.locator("#cancel").is_visible()
    page.wait_for_selector("#download:not([hidden])", timeout=MINUTE)
    page.screenshot(path=str(look / "job-done.png"))
    assert "white matter" in page.inner_text("#outcome")
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "result.zip")
    with zipfile.ZipFile(tmp_path / "result.zip") as archive:
        assert archive.testzip() is None
        assert {"tensorldm/tensor.nii.gz", "tensorldm/v1_cone.nii.gz"} <= set(archive.namelist())
    page.click("#close-job")
    page.wait_for_selector("body:not([data-busy]) #numbers tbody td")
    assert canvas(page).std() > 5
    assert {"v1_cone", "fa_width"} <= set(page.locator("#overlay option").evaluate_all("all => all.map(o => o.value)"))
    page.click("#open-job")
    page.click("#discard")
    page.wait_for_selector("#empty:not([hidden])")
    assert not [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()]


def canvas(page):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(page.locator("#stage-left canvas").screenshot())).convert("L"))


def test_wrong_files_give_a_readable_message(page, access, scan, tmp_path, watch):
    watch.expected.append("422")
    (tmp_path / "holiday.jpg").write_bytes(b"jpg")
    (tmp_path / "text.nii.gz").write_text("this is no image")
    page.goto(access.address)
    page.click("#open-job-empty")
    for given, expected in (
        ([str(tmp_path / "holiday.jpg")], "holiday.jpg: not a file of a scan"),
        (files(scan, "dwi.nii.gz", "dwi.bval"), "directions (.bvec)"),
        ([str(tmp_path / "text.nii.gz"), *files(scan, "dwi.bval", "dwi.bvec")], "text.nii.gz"),
    ):
        page.set_input_files("#files", given)
        page.wait_for_function(
            "part => document.getElementById('job-message').textContent.includes(part)", arg=expected
        )
        assert page.locator("#start").is_disabled()
        assert "tensorldm-view" not in page.inner_text("#job-message")


def test_a_job_can_be_cancelled_and_its_files_stay_for_another_try(page, access, scan):
    page.goto(access.address)
    page.click("#open-job-empty")
    page.set_input_files("#files", files(scan, *WHOLE))
    page.click("#start:enabled")
    page.click("#cancel")
    page.wait_for_function("() => document.getElementById('job-message').textContent.startsWith('Cancelled')")
    assert page.locator("#start").is_enabled()
    assert page.locator("#received li").count() == 4


class _Foreign(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>another page</title>")

    def log_message(self, *_):
        pass


def test_other_pages_and_guessed_addresses_are_refused(page, access, watch):
    watch.expected += ["403", "CORS", "ERR_FAILED", "NotSameOrigin"]
    assert page.goto(f"http://127.0.0.1:{access.port}/").status == 403
    assert page.goto(access.address.replace(access.token, "x" * len(access.token))).status == 403
    own = {"Origin": f"http://127.0.0.1:{access.port}"}
    assert page.request.post(f"{access.address}api/job/files/bval", data=b"0 1000", headers=own).ok
    with ThreadingHTTPServer(("127.0.0.1", 0), _Foreign) as foreign, running(foreign):
        page.goto(f"http://127.0.0.1:{foreign.server_address[1]}/")
        # With the token, which no other page can know: to read, to act, and to act without asking for the answer.
        for path, options in (
            ("scene", "{}"),
            ("job/discard", "{method: 'POST'}"),
            ("job/discard", "{method: 'POST', mode: 'no-cors'}"),
        ):
            outcome = page.evaluate(
                f"url => fetch(url, {options}).then(r => r.status, () => 'blocked')", f"{access.address}api/{path}"
            )
            assert outcome in ("blocked", 0, 403)
    assert page.request.get(f"{access.address}api/job").json()["files"].keys() == {"bval"}
