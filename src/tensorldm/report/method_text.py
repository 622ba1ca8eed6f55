"""A paragraph for the methods section of a paper, made of what was really done; nothing in it is boilerplate."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tensorldm import __version__
from tensorldm.dti.logarithm import EIGENVALUE_FLOOR_MM2_PER_S
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.summary import WHITE_MATTER_FA

CLOSED_FORMS: Final = {
    "minimum-norm": "the least anisotropic tensor that explains the measured signals (minimum norm)",
    "ade": "a log-linear estimate of the tensor's diagonal from the actual directions, its off-diagonals set to zero",
    "ade-literal": "a log-linear estimate of the tensor's diagonal with each direction taken for its axis",
}

MEASURING_DIRECTIONS: Final = 6
"""As many as a tensor has components: fewer leave some of it unmeasured."""
NOTHING_ADDED: Final = 0.005
"""A share of unmeasured anisotropy that is written as 0.00: the method adds nothing to the data."""


def method_text(result: Reconstruction, notes: Mapping[str, Any]) -> str:
    """Sentences on input, method, validity and doubt; ``notes`` is the tensor's sidecar."""
    sentences = [
        _input_sentence(result),
        _method_sentence(notes),
        _grid_sentence(result, notes),
        _validity_sentence(result, notes),
        _doubt_sentence(result, notes),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def method_name(notes: Mapping[str, Any]) -> str:
    """The method as a reader would call it."""
    return str(notes.get("Method", "unknown method"))


def _input_sentence(result: Reconstruction) -> str:
    weighted = [b for b in result.bvals if b > B0_MAX_S_PER_MM2]
    num_b0 = len(result.bvals) - len(weighted)
    b = f"{np.mean(weighted):.0f}"
    tilt = ""
    if len(weighted) == 3:
        first, second, third = (f"{angle:.0f}°" for angle in result.angles_degrees)
        tilt = f", their directions {first}, {second} and {third} from the image axes"
    return (
        f"Diffusion tensors were reconstructed with TensorLDM {__version__} [1, 2] from "
        f"{_count(num_b0, 'b = 0 volume')} and {_count(len(weighted), 'diffusion-weighted volume')} "
        f"(b = {b} s/mm²{tilt})."
    )


def _method_sentence(notes: Mapping[str, Any]) -> str:
    method = method_name(notes)
    if "Model" not in notes:
        words = CLOSED_FORMS.get(method, f"the closed form '{method}'")
        return f"The tensor is {words}; no learned model was used."
    model = notes["Model"]
    used = f"The trained model '{model['Title']}' (weights SHA-256 {str(model['WeightsSHA256'])[:12]}…) was used."
    if "Sampler" not in notes:
        return f"{used} It gives one tensor and draws nothing."
    samples = int(notes["Samples"])
    drawn = "A single sample was drawn" if samples == 1 else f"{samples} samples were drawn and averaged"
    return f"{used} {drawn}, with the {notes['Sampler']} sampler in {notes['Steps']} steps (seed {notes['Seed']})."


def _grid_sentence(result: Reconstruction, notes: Mapping[str, Any]) -> str:
    sides = " × ".join(f"{side:.3g}" for side in result.space.voxel_size)
    brain = str(notes.get("Brain", ""))
    mask = "found in the b = 0 image" if brain.startswith("found") else "given"
    own = "the scan's own grid" if notes.get("Grid") != "2mm" else "the model's grid"
    return f"Results are on {own} ({sides} mm), inside a brain mask that was {mask}."


def _validity_sentence(result: Reconstruction, notes: Mapping[str, Any]) -> str:
    share = f"{result.spd_touched_share:.2%}"
    if notes.get("SPD") == "raw":
        return f"Tensors were kept as the method gives them; {share} of brain voxels were not positive definite."
    return (
        f"Eigenvalues below {EIGENVALUE_FLOOR_MM2_PER_S:g} mm²/s were raised to that value ({share} of brain voxels)."
    )


def _doubt_sentence(result: Reconstruction, notes: Mapping[str, Any]) -> str:
    """How much was not measured: whoever uses the directions should read it in the paper too."""
    white = white_matter(result)
    if not white.any():
        return ""
    if num_weighted(result) >= MEASURING_DIRECTIONS:
        return ""
    share = float(np.median(result.extra["prior_share"][white]))
    if share < NOTHING_ADDED:
        return (
            "Nothing was added to the measured signals: FA and directions lack what the tensor's unmeasured components "
            "would contribute."
        )
    words = (
        f"Where FA exceeded {WHITE_MATTER_FA:g}, a median share of {share:.2f} of the anisotropy lay in patterns that "
        "the measured directions cannot see."
    )
    if "v1_cone" in result.extra:
        cone = float(np.median(result.extra["v1_cone"][white]))
        source = str(notes.get("Intervals", {}).get("source", "uncalibrated"))
        calibrated = "not calibrated" if source == "uncalibrated" else f"calibrated on {source}"
        words += (
            f" The median half angle of the 95 % cone of the principal direction was {cone:.0f}° there ({calibrated})."
        )
    return words


def num_weighted(result: Reconstruction) -> int:
    """How many diffusion-weighted volumes the tensor was made from."""
    return sum(b > B0_MAX_S_PER_MM2 for b in result.bvals)


def white_matter(result: Reconstruction) -> np.ndarray:
    """Voxels that are anisotropic enough for a direction to mean something."""
    return np.asarray(result.mask & (result.fa > WHITE_MATTER_FA))


def _count(number: int, what: str) -> str:
    words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    return f"{words.get(number, str(number))} {what}{'s' * (number != 1)}"
