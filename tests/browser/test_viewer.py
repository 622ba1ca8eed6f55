"""The viewer in a real browser: pixels, not promises."""

import io
import json
import re
import threading
import zipfile
from contextlib import contextmanager

import nibabel
import numpy as np
import pytest

from tensorldm.demo import run_demo
from tensorldm.viewer.scene import find_scene
from tensorldm.viewer.server import serving
from tensorldm.viewer.workbench import Means

READY = "body:not([data-busy]) #numbers tbody td"
CANVAS = "#stage-left canvas"


@contextmanager
def served(folder):
    with serving(find_scene([folder]), Means(method="minimum-norm", device="cpu")) as (server, access):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield access
        finally:
            server.shutdown()
            thread.join(5)


def write_tracks(path, *lines):
    """MRtrix's own format, by hand: streamlines end with NaN, the file with infinity."""
    points = [np.vstack([np.asarray(line, dtype="<f4"), np.full((1, 3), np.nan, "<f4")]) for line in lines]
    data = np.vstack([*points, np.full((1, 3), np.inf, "<f4")]).astype("<f4")
    head = f"mrtrix tracks\ndatatype: Float32LE\ncount: {len(lines)}\nfile: . 128\nEND\n".encode()
    path.write_bytes(head.ljust(128, b"\0") + data.tobytes())


def write_trx(path, *lines):
    """The same lines as a TRX archive, by its format's description: positions, offsets and a header, stored."""
    points = np.vstack(lines).astype("<f4")
    offsets = np.cumsum([0, *(len(line) for line in lines)]).astype("<u4")
    header = {
        "DIMENSIONS": [32, 37, 32],
        "VOXEL_TO_RASMM": np.eye(4).tolist(),
        "NB_VERTICES": len(points),
        "NB_STREAMLINES": len(lines),
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        archive.writestr("positions.3.float32", points.tobytes())
        archive.writestr("offsets.uint32", offsets.tobytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    run_demo(out, seed=0, voxel_size=6.0, tell=lambda _: None)
    steps = np.linspace(-60, 60, 40)
    arches = [np.column_stack([steps, np.full(40, y), 30 - steps**2 / 90]) for y in np.linspace(-25, 25, 60)]
    write_tracks(out / "reference" / "arches.tck", *arches)
    write_trx(out / "reference" / "vaults.trx", *arches)
    return out


@pytest.fixture(scope="module")
def access(folder):
    with served(folder) as running:
        yield running


@pytest.fixture
def viewer(shared_page, access):
    """The page as it is after opening; loaded once, set back by its own controls."""
    if shared_page.url != access.address:
        shared_page.goto(access.address)
        shared_page.wait_for_selector(READY)
    shared_page.set_viewport_size({"width": 1280, "height": 720})
    shared_page.click('[data-view="axial"]')
    for box in shared_page.locator("[data-tract]:checked, #lines:checked, #radiological:checked").all():
        box.uncheck()
    shared_page.select_option("#right", "")
    shared_page.select_option("#left", label="minimum-norm")
    shared_page.select_option("#map", "fa")
    shared_page.select_option("#overlay", "")
    shared_page.locator("#opacity").evaluate("each => { each.value = 60; }")
    settle(shared_page)
    return shared_page


def settle(page):
    """Until what was asked for is drawn."""
    page.wait_for_timeout(60)
    page.wait_for_selector(READY)
    page.wait_for_timeout(120)


def pixels(page, selector=CANVAS):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(page.locator(selector).screenshot())).convert("RGB")).astype(int)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
        settle(page)


def differ(a, b):
    """Share of pixels that changed."""
    return float((np.abs(a - b).max(axis=-1) > 24).mean())


def is_grey(image):
    return np.abs(image - image.mean(axis=-1, keepdims=True)).max(axis=-1) < 12


def test_the_page_draws_a_brain_on_three_planes_and_in_3d(viewer, look):
    viewer.click('[data-view="planes"]')
    settle(viewer)
    image = pixels(viewer)
    viewer.screenshot(path=str(look / "viewer-1280.png"))
    height, width = image.shape[:2]
    tiles = [image[y : y + height // 2, x : x + width // 2] for y in (0, height // 2) for x in (0, width // 2)]
    for tile in tiles:
        assert (tile.max(axis=-1) > 60).mean() > 0.01
        assert tile.std() > 5
        yellow = (tile[..., 0] > 150) & (tile[..., 2] < 110) & (tile[..., 0] > tile[..., 2] + 80)
        assert yellow.mean() > 5e-4


def test_switching_maps_changes_the_picture_and_only_colour_fa_is_coloured(viewer):
    fa = pixels(viewer)
    press(viewer, "2")
    md = pixels(viewer)
    press(viewer, "3")
    colour = pixels(viewer)
    assert differ(fa, md) > 0.05
    assert differ(md, colour) > 0.05
    crosshair = 0.01
    assert (~is_grey(colour)).mean() > (~is_grey(fa)).mean() + 5 * crosshair


def test_maps_of_every_kind_can_be_shown(viewer):
    listed = set(viewer.locator("#map option").evaluate_all("all => all.map(each => each.value)"))
    assert {"fa", "md", "ad", "rd", "dxx", "dxz", "dyz", "colour_fa", "spd_touched", "md_error"} <= listed
    for name in ("s0", "dxx", "dxy", "prior_share", "consistency", "v1_angle", "fa_error"):
        viewer.select_option("#map", name)
        settle(viewer)
        assert pixels(viewer).std() > 3, name
    assert viewer.locator("#message").is_hidden()


def test_an_overlay_lies_over_the_map_as_thickly_as_wanted(viewer):
    plain = pixels(viewer)
    viewer.select_option("#overlay", "prior_share")
    settle(viewer)
    covered = pixels(viewer)
    viewer.locator("#opacity").fill("10")
    settle(viewer)
    thin = pixels(viewer)
    assert differ(plain, covered) > 0.05
    assert np.abs(plain - thin).mean() < 0.5 * np.abs(plain - covered).mean()


def test_tractograms_of_both_formats_are_drawn_in_3d_where_they_lie(viewer, look):
    viewer.select_option("#left", label="ols-90 (reference)")
    viewer.click('[data-view="render"]')
    settle(viewer)
    before = pixels(viewer)
    viewer.locator("[data-tract]").first.check()
    settle(viewer)
    after = pixels(viewer)
    viewer.screenshot(path=str(look / "viewer-tracts.png"))
    changed = np.abs(after - before).max(axis=-1) > 40
    assert changed.mean() > 0.005
    # Arches from left to right: red at the top of each.
    added = after[changed]
    assert (added[:, 0] > added[:, 1] + 40).mean() > 0.2
    viewer.locator("[data-tract]").first.uncheck()
    settle(viewer)
    assert differ(before, pixels(viewer)) < 0.002
    viewer.locator("[data-tract]").last.check()
    settle(viewer)
    assert differ(after, pixels(viewer)) < 0.002
    press(viewer, "t")
    assert differ(before, pixels(viewer)) < 0.002


def test_two_reconstructions_stand_side_by_side_and_move_together(viewer, look):
    viewer.set_viewport_size({"width": 1920, "height": 1080})
    viewer.select_option("#right", label="ols-90 (reference)")
    settle(viewer)
    press(viewer, "3")
    left, right = pixels(viewer), pixels(viewer, "#stage-right canvas")
    viewer.screenshot(path=str(look / "viewer-1920.png"))
    assert differ(left, right) > 0.01
    head = viewer.locator("#numbers thead th").all_inner_texts()
    assert head[1:] == ["minimum-norm", "ols-90 (reference)"]
    press(viewer, "PageUp", "PageUp")
    assert differ(left, pixels(viewer)) > 0.02
    assert differ(right, pixels(viewer, "#stage-right canvas")) > 0.02
    left, where = pixels(viewer), viewer.inner_text("#where")
    viewer.locator("#stage-right canvas").hover()
    for _ in range(3):
        viewer.mouse.wheel(0, 100)
    settle(viewer)
    assert viewer.inner_text("#where") != where
    assert differ(left, pixels(viewer)) > 0.02


def numbers(page):
    rows = page.locator("#numbers tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return {name: values for name, *values in rows}


def test_the_numbers_at_the_crosshair_are_those_of_the_file(viewer, folder):
    press(viewer, "ArrowRight", "ArrowRight", "ArrowUp", "PageUp")
    world = [float(x) for x in re.findall(r"-?\d+", viewer.inner_text("#where"))]
    tensor = nibabel.load(folder / "minimum-norm" / "tensor.nii.gz")
    i, j, k = np.rint(np.linalg.solve(tensor.affine, [*world, 1.0]))[:3].astype(int)
    xx, yy, zz, xy, xz, yz = np.asarray(tensor.dataobj, dtype=float)[i, j, k] * 1e3
    values = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])[::-1]
    shown = numbers(viewer)
    assert float(shown["Dxx"][0]) == pytest.approx(xx, abs=1e-3)
    assert float(shown["Dyz"][0]) == pytest.approx(yz, abs=1e-3)
    assert [float(shown[f"λ{n}"][0]) for n in (1, 2, 3)] == pytest.approx(values, abs=1e-3)
    assert float(shown["MD"][0]) == pytest.approx(values.mean(), abs=1e-3)
    assert re.fullmatch(r"\d+\.\d°", shown["v1 to reference"][0])


def test_a_click_moves_the_crosshair(viewer):
    before = viewer.inner_text("#where")
    box = viewer.locator(CANVAS).bounding_box()
    viewer.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
    settle(viewer)
    assert viewer.inner_text("#where") != before


def test_the_ellipsoid_is_drawn_and_turns(viewer):
    canvas = "#ellipsoids figure:first-child canvas"
    before = pixels(viewer, canvas)
    assert before.std() > 10
    box = viewer.locator(canvas).bounding_box()
    viewer.mouse.move(box["x"] + 40, box["y"] + 40)
    viewer.mouse.down()
    viewer.mouse.move(box["x"] + 90, box["y"] + 20, steps=4)
    viewer.mouse.up()
    assert differ(before, pixels(viewer, canvas)) > 0.01


def test_everything_can_be_reached_by_keyboard_and_the_help_lists_it(viewer):
    press(viewer, "?")
    assert viewer.locator("#help").is_visible()
    viewer.keyboard.press("Escape")
    press(viewer, "d")
    assert viewer.evaluate("document.documentElement.dataset.theme") in ("dark", "light")
    press(viewer, "b")
    assert viewer.locator("#stage-right").is_visible()
    press(viewer, "n")
    assert viewer.locator("#job").is_visible()
    viewer.keyboard.press("Escape")


def luminance(rgb):
    return sum(weight * (value / 255) ** 2.2 for weight, value in zip((0.2126, 0.7152, 0.0722), rgb, strict=False))


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_text_is_readable_in_both_themes_and_nothing_is_cut_off(viewer, look, scheme):
    viewer.emulate_media(color_scheme=scheme)
    viewer.evaluate("delete document.documentElement.dataset.theme")
    viewer.screenshot(path=str(look / f"viewer-{scheme}.png"))
    text, back = (
        luminance(
            [
                int(part)
                for part in re.findall(r"\d+", viewer.locator("aside").evaluate(f"e => getComputedStyle(e).{name}"))
            ]
        )
        for name in ("color", "backgroundColor")
    )
    assert (max(text, back) + 0.05) / (min(text, back) + 0.05) > 7
    assert (back > text) == (scheme == "light")
    assert viewer.evaluate("document.documentElement.scrollWidth <= innerWidth")


def write_fibre(folder, direction, affine):
    """One fibre everywhere, told in scanner axes, on a grid of this affine."""
    v = np.asarray(direction) / np.linalg.norm(direction)
    full = 0.2e-3 * np.eye(3) + 1.5e-3 * np.outer(v, v)
    six = np.broadcast_to(full[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].astype(np.float32), (8, 8, 8, 6))
    folder.mkdir()
    nibabel.save(nibabel.Nifti1Image(np.ascontiguousarray(six), affine), folder / "tensor.nii.gz")
    (folder / "tensor.json").write_text(json.dumps({"TensorConvention": "mrtrix", "Method": folder.name}))


def orientation_of(image):
    """Angle of the lines in a picture, in degrees from its right, counter-clockwise, from its gradients."""
    grey = image.mean(axis=-1)
    down, right = np.gradient(grey)
    up = -down
    across = np.degrees(np.arctan2(2 * (right * up).sum(), (right**2 - up**2).sum())) / 2
    return (across + 90) % 180


STORED = {
    "RAS": np.diag([4.0, 4.0, 4.0, 1.0]),
    "LAS, thick slices along A": np.diag([-4.0, 8.0, 4.0, 1.0]),
    "stored as S R A": np.array([[0, 4.0, 0, 0], [0, 0, 4.0, 0], [4.0, 0, 0, 0], [0, 0, 0, 1.0]]),
}


def test_lines_run_as_the_fibres_do_however_the_scan_is_stored(page, tmp_path):
    """30° from right towards front, seen from above with right on the right; mirrored in radiological order."""
    for name, affine in STORED.items():
        write_fibre(tmp_path / name, (np.cos(np.radians(30)), np.sin(np.radians(30)), 0), affine)
    with served(tmp_path) as access:
        page.goto(access.address)
        page.wait_for_selector(READY)
        press(page, "v", "l")
        for name in STORED:
            page.select_option("#left", label=name)
            settle(page)
            lines = pixels(page)
            assert orientation_of(corner(lines)) == pytest.approx(30, abs=4), name
            # The colour is that of the direction: more red than green, no blue.
            coloured = lines[~is_grey(lines) & (lines[..., 2] < 40) & (lines[..., 0] > 150)]
            assert len(coloured) > 500
            assert coloured[:, 0].mean() > coloured[:, 1].mean() > 60
        press(page, "r")
        assert orientation_of(corner(pixels(page))) == pytest.approx(150, abs=4)


def corner(image):
    """A part of the slice without crosshair and letters."""
    height, width = image.shape[:2]
    return image[int(height * 0.2) : int(height * 0.42), int(width * 0.42) : int(width * 0.48)]
