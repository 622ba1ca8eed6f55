"""The paragraph for a paper: what was done, and nothing that was not; the citation is the repository's."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from tensorldm.report.citation import references
from tensorldm.report.method_text import method_text

REPOSITORY = Path(__file__).parents[3]
as_closed_form = runpy.run_path(str(Path(__file__).parent / "conftest.py"))["as_closed_form"]


def test_of_a_model_it_tells_input_sampling_validity_and_doubt(result, notes):
    text = method_text(result, notes)
    for words in (
        "one b = 0 volume and three diffusion-weighted volumes (b = 1000 s/mm²",
        "11°, 6° and 9° from the image axes",
        "4 samples were drawn and averaged, with the dpm++2m sampler in 25 steps (seed 7)",
        "weights SHA-256 abababababab",
        "(1.23% of brain voxels)",
        "calibrated on 40 virtual heads",
        "the scan's own grid (2 × 2 × 3 mm)",
    ):
        assert words in text


def test_of_a_formula_it_says_that_no_model_was_used_and_promises_no_cone(result, notes):
    text = method_text(*as_closed_form(result, notes))
    assert "no learned model was used" in text
    assert "minimum norm" in text
    assert "sample" not in text
    assert "cone" not in text


def test_one_sample_and_raw_tensors_are_told_as_they_are(result, notes):
    text = method_text(result, {**notes, "Samples": 1, "SPD": "raw", "Grid": "2mm", "Brain": "mask brain.nii.gz"})
    assert "A single sample was drawn" in text
    assert "Tensors were kept as the method gives them; 1.23% of brain voxels were not positive definite." in text
    assert "the model's grid" in text
    assert "a brain mask that was given" in text


def test_a_method_that_adds_nothing_to_three_directions_is_said_to_lack_what_they_do_not_see(result, notes):
    nothing = replace(result, extra={**result.extra, "prior_share": np.zeros_like(result.extra["prior_share"])})
    assert "FA and directions lack what the tensor's unmeasured components would contribute" in method_text(
        nothing, notes
    )
    many = replace(nothing, volumes=tuple(range(13)), bvals=(0.0, *[1000.0] * 12))
    assert "lack" not in method_text(many, notes)


def test_many_directions_are_counted_and_their_angles_left_out(result, notes):
    many = replace(result, volumes=tuple(range(14)), bvals=(0.0, 5.0, *[1000.0] * 12))
    text = method_text(many, notes)
    assert "two b = 0 volumes and 12 diffusion-weighted volumes (b = 1000 s/mm²)" in text


def test_the_references_are_those_of_the_citation_file():
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    paper, software = references()
    assert cited["preferred-citation"]["title"] in paper
    for author in cited["preferred-citation"]["authors"]:
        assert f"{author['given-names']} {author['family-names']}" in paper
    assert (
        software == f"{cited['authors'][0]['name']}. {cited['title']}, version {cited['version']}. {cited['license']}."
    )
