"""A small head as a reconstruction with everything a report can show, and a reader of pages."""

import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tensorldm.imaging.volume import Space
from tensorldm.reconstruct.result import Reconstruction

SHAPE = (14, 16, 12)
AFFINE = np.array([[2.0, 0, 0, -13], [0, 2, 0, -15], [0, 0, 3, -9], [0, 0, 0, 1]])
SAMPLED = ("fa_low", "fa_high", "md_low", "md_high", "v1_cone", "prior_sd")
VOID = {"meta", "img", "input", "br"}
TABLE = ["0 0 0 0", "0.98 0.1 0.17 1000", "0.6 0.6 0.53 1000", "-0.05 -0.99 0.1 1000", "0.1 -0.12 0.985 1000"]


def make_result() -> Reconstruction:
    """An ellipsoid with a left-right bundle in a round of grey matter."""
    places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"), axis=-1)
    mask = (places**2).sum(axis=-1) < 0.9
    tensor = np.zeros((*SHAPE, 6), dtype=np.float32)
    tensor[..., :3] = 0.8e-3
    bundle = (np.abs(places[..., 1]) < 0.3) & (np.abs(places[..., 2]) < 0.4)
    tensor[bundle] = np.float32([1.15e-3, 0.55e-3, 0.55e-3, 0.05e-3, 0, 0])
    tensor[~mask] = 0
    noise = np.random.default_rng(1).uniform(size=(8, *SHAPE)).astype(np.float32) * mask
    extra = {
        "prior_share": noise[0],
        "spd_touched": (noise[1] > 0.95).astype(np.float32),
        "consistency": 2 * noise[2],
        "fa_low": 0.2 * noise[3],
        "fa_high": 0.2 + 0.4 * noise[3],
        "md_low": 0.6e-3 * mask.astype(np.float32),
        "md_high": (0.7e-3 + 0.2e-3 * noise[4]) * mask.astype(np.float32),
        "v1_cone": 90 * noise[5],
        "prior_sd": 0.3e-3 * noise[6],
    }
    return Reconstruction(
        tensor=tensor,
        space=Space(SHAPE, AFFINE),
        mask=mask,
        s0=(500 + 100 * noise[7]) * mask.astype(np.float32),
        extra=extra,
        volumes=(0, 1, 3, 4),
        bvals=(0.0, 1000.0, 1000.0, 1000.0),
        angles_degrees=(11.4, 6.5, 8.9),
        spd_touched_share=0.0123,
        warnings=("The head was <b>tilted</b> & moved.",),
        notes={"Method": "tensorldm"},
    )


def make_notes() -> dict:
    """A sidecar as a model's tensor has it."""
    return {
        "Method": "tensorldm",
        "Model": {"Title": "TensorLDM", "WeightsSHA256": "ab" * 32, "MadeBy": "tensorldm 0.1.0", "Stages": []},
        "Samples": 4,
        "Sampler": "dpm++2m",
        "Steps": 25,
        "Seed": 7,
        "Device": "cpu",
        "Intervals": {"Level": 0.95, "fa": 1.2, "md": 1.1, "v1": 1.5, "source": "40 virtual heads"},
        "Mean": "arithmetic",
        "SPD": "project",
        "Grid": "native",
        "NoiseSigma": 12.5,
        "NoiseEstimator": "high-pass",
        "Subject": "sub-07",
        "Inputs": {"dwi.nii.gz": "cd" * 32},
        "GradientTable": TABLE,
        "Brain": "found in the b=0 image",
        "Versions": {"tensorldm": "0.1.0", "torch": "2.8"},
        "TensorConvention": "mrtrix",
        "TensorFrame": "scanner",
    }


def as_closed_form(result: Reconstruction, notes: dict) -> tuple[Reconstruction, dict]:
    """The same by a formula: one result, no samples."""
    kept = {name: image for name, image in result.extra.items() if name not in SAMPLED}
    dropped = ("Model", "Samples", "Sampler", "Steps", "Seed", "Device", "Intervals")
    fewer = {key: value for key, value in notes.items() if key not in dropped}
    return replace(result, extra=kept), {**fewer, "Method": "minimum-norm"}


@pytest.fixture
def result() -> Reconstruction:
    return make_result()


@pytest.fixture
def notes() -> dict:
    return make_notes()


@dataclass
class Page(HTMLParser):
    """A page as its reader meets it: text by element, attributes, and whether every element is closed."""

    text: str = ""
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    images: list[dict] = field(default_factory=list)
    elements: list[tuple[str, dict]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, document: str) -> "Page":
        page = cls()
        HTMLParser.__init__(page)
        page.feed(document)
        page.close()
        assert not page.open, f"never closed: {page.open}"
        return page

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        self.images += [found] if tag == "img" else []
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> in the wrong place"

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data

    def classes(self, tag: str, kind: str) -> list[dict]:
        return [found for name, found in self.elements if name == tag and kind in (found.get("class") or "").split()]


@pytest.fixture(scope="session")
def read_page():
    return Page.of


def outside_addresses(document: str) -> list[str]:
    """Everything that a browser would have to fetch."""
    return re.findall(
        r"(?:src|href|url|action)\s*[=(]\s*[\"']?((?:https?:)?//[^\"') ]+|[^\"'#) ]+\.(?:css|js|png))", document
    )


@pytest.fixture
def fetched():
    return outside_addresses
