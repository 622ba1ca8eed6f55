"""What a reconstruction was made from and with: the facts of its sidecar as a list for the eye."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorldm.imaging.frames import directions_to_frame
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.volume import Space
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.report.html import Child, Markup, joined, table, tag
from tensorldm.report.sphere import AXIS_KINDS, Used, sphere


def run_details(result: Reconstruction, notes: Mapping[str, Any]) -> Markup:
    """Names and values."""
    return tag("dl", [joined([tag("dt", name), tag("dd", value)]) for name, value in _facts(result, notes)])


def _facts(result: Reconstruction, notes: Mapping[str, Any]) -> Iterator[tuple[str, Child]]:
    yield "Method", str(notes.get("Method", "–"))
    model = notes.get("Model")
    if isinstance(model, Mapping):
        yield "Model", f"{model.get('Title', '–')}, made by {model.get('MadeBy', '–')}"
        yield "Weights, SHA-256", tag("span", str(model.get("WeightsSHA256", "–")), class_="hash")
    for name, key in (("Samples", "Samples"), ("Sampler", "Sampler"), ("Steps", "Steps"), ("Seed", "Seed")):
        if key in notes:
            yield name, str(notes[key])
    if "Device" in notes:
        yield "Device", str(notes["Device"])
    intervals = notes.get("Intervals")
    if isinstance(intervals, Mapping):
        factors = ", ".join(_factor(intervals, key) for key in ("fa", "md", "v1") if key in intervals)
        yield "Intervals", f"{float(intervals.get('Level', 0.95)):.0%}; {intervals.get('source', '–')} ({factors})"
    sides = " × ".join(f"{side:.3g}" for side in result.space.voxel_size)
    yield "Grid", f"{' × '.join(map(str, result.space.shape))} voxels of {sides} mm ({notes.get('Grid', 'native')})"
    yield "Brain", f"{int(result.mask.sum())} voxels, {brain_litres(result):.2f} l; {notes.get('Brain', '–')}"
    yield "Validity", f"{notes.get('SPD', '–')}; {result.spd_touched_share:.2%} not positive definite before"
    if "NoiseSigma" in notes:
        yield (
            "Noise",
            f"σ = {float(notes['NoiseSigma']):.3g} in the scanner's units ({notes.get('NoiseEstimator', '–')})",
        )
    yield "Tensor file", f"convention {notes.get('TensorConvention', '–')}, {notes.get('TensorFrame', '–')} axes, mm²/s"
    for name, digest in dict(notes.get("Inputs", {})).items():
        yield f"Input {name}", tag("span", f"SHA-256 {digest}", class_="hash")
    yield "Versions", ", ".join(f"{name} {version}" for name, version in dict(notes.get("Versions", {})).items())


def _factor(intervals: Mapping[str, Any], key: str) -> str:
    """A quantity's factor; where it follows the tissue that a voxel looks like, each one's."""
    by_tissue = intervals.get(f"{key}_by_tissue")
    if by_tissue is None:
        return f"{key} × {intervals[key]:.3g}"
    return f"{key} × {' / '.join(f'{factor:.3g}' for factor in by_tissue)} in csf / grey / white"


def brain_litres(result: Reconstruction) -> float:
    """Volume of the brain mask."""
    return float(result.mask.sum() * abs(np.linalg.det(result.affine[:3, :3])) * 1e-6)


def directions(result: Reconstruction, notes: Mapping[str, Any]) -> Markup:
    """The sphere, and the volumes that were used."""
    table_ = gradient_table(notes, result.space)
    used = _used(result, table_)
    weighted = [int(index) for index in np.flatnonzero(~table_.is_b0)]
    drawn = sphere(table_.directions[weighted], used, volumes=weighted)
    words = (
        f"{len(weighted)} weighted and {int(table_.is_b0.sum())} b = 0 volumes in the series; numbers count from 0. "
        "Filled: used for this tensor. A direction and its negative measure the same and are shown once, on the side "
        "that faces you. Axes are those of the image: x to the subject's right, y to the front, z to the top."
    )
    return tag(
        "div", drawn, tag("div", tag("p", words, class_="note-text"), _used_table(result, table_, used)), class_="side"
    )


def gradient_table(notes: Mapping[str, Any], space: Space) -> GradientTable:
    """The series' gradients in RAS image axes, as the sidecar keeps them in scanner axes."""
    rows = np.array([[float(part) for part in str(line).split()] for line in notes["GradientTable"]])
    turned = directions_to_frame(rows[:, :3], space, source="scanner", target="image") @ to_ras(space).turn.T
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    # Six digits: unit length again to the last one.
    unit = np.divide(turned, lengths, out=np.zeros_like(turned), where=lengths > 0)
    return GradientTable(rows[:, 3], unit)


def _used(result: Reconstruction, gradients: GradientTable) -> list[Used]:
    """The weighted volumes that were used; three of them stand for x, y and z in this order."""
    weighted = [volume for volume in result.volumes if not gradients.is_b0[volume]]
    if len(weighted) == 3:
        return [Used(volume, axis) for axis, volume in enumerate(weighted)]
    return [Used(volume, None) for volume in weighted]


def _used_table(result: Reconstruction, gradients: GradientTable, used: list[Used]) -> Markup:
    b0 = [volume for volume in result.volumes if gradients.is_b0[volume]]
    lines: list[list[Child]] = [[str(volume), "–", f"{gradients.bvals[volume]:.0f}", "–", "–"] for volume in b0]
    for each in used:
        rounded = np.round(gradients.directions[each.volume], 2) + 0.0  # no minus before a zero
        vector = ", ".join(f"{part:.2f}".replace("-", "−") for part in rounded)
        axis: Child = "–"
        angle = "–"
        if each.axis is not None:
            axis = tag("span", f"● {'xyz'[each.axis]}", class_=f"mark {AXIS_KINDS[each.axis]}")
            angle = f"{result.angles_degrees[each.axis]:.1f}°"
        lines.append([str(each.volume), axis, f"{gradients.bvals[each.volume]:.0f}", angle, vector])
    header = ("volume", "nearest axis", "b, s/mm²", "angle to it", "direction x, y, z")
    return table(header, lines, caption="Volumes used")
