"""How real virtual subjects look: FA and MD by tissue, negative eigenvalues, and colour FA beside a real scan.

    python benchmarks/cohort_realism.py --real REAL/philips_elition --templates TEMPLATES --subjects 4

Rewrites the table in docs/cohort.md and docs/figures/cohort-realism.png. The same rule sorts voxels into tissues in
all rows, from the fitted tensors alone, so that the rows can be compared.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch

from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.settings import CohortSettings, ProtocolSettings
from tensorldm.cohort.stream import VirtualStream
from tensorldm.cohort.templates import TemplateSource
from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import colour_fa, fractional_anisotropy, mean_diffusivity
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.mask import find_brain, mean_b0
from tensorldm.imaging.nifti import read_volume
from tensorldm.metrics.tensors import spd_violation_rate

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
TABLE = ("<!-- table: benchmarks/cohort_realism.py -->", "<!-- end of table -->")
CUT = (0.53, 0.5, 0.62)
"""Where the pictures cut, as shares of the brain's extent."""
HEADER = (
    "",
    "heads",
    "brain, ml",
    "white",
    "grey",
    "csf",
    "FA white",
    "MD white",
    "FA grey",
    "MD grey",
    "MD csf",
    "λ < 0",
)
PICTURED = ("procedural/train/0000", "niimath_tensor")
"""Pictures of our own heads, and of a scan whose licence allows it."""
CSF_MD, WHITE_FA, GREY_FA = 1.8e-3, 0.3, 0.2


@dataclass(frozen=True)
class Head:
    name: str
    components: torch.Tensor
    mask: torch.Tensor

    @property
    def packed(self) -> torch.Tensor:
        return self.components[:, self.mask].T


def real_head(folder: Path) -> Head:
    series, gradients = read_volume(folder / "dwi.nii.gz"), read_gradients(folder / "dwi.nii.gz")
    grid = working_grid(series.space)
    mask = torch.from_numpy(grid.forward_mask(find_brain(mean_b0(series, gradients))))
    moved, table = grid.forward(series), grid.forward_gradients(gradients)
    packed, _ = fit_ols(
        torch.from_numpy(moved.data)[mask], torch.from_numpy(table.bvals), torch.from_numpy(table.directions)
    )
    components = torch.zeros(6, *mask.shape)
    components[:, mask] = packed.T
    return Head(f"real: {folder.name}", components, mask)


def virtual_heads(
    name: str, source: AnatomySource, heads: Sequence[str], *, protocol: ProtocolSettings, clean: bool = False
) -> list[Head]:
    found = []
    for position, head in enumerate(heads):
        stream = VirtualStream([source.load(head)], CohortSettings(protocol=protocol))
        batch = stream.batch(seed=0, position=position, size=1)
        found.append(Head(f"{name} ({head})", (batch.clean if clean else batch.components)[0], batch.mask[0]))
    return found


def row(name: str, heads: Sequence[Head]) -> str:
    packed = torch.cat([head.packed for head in heads])
    fa, md = fractional_anisotropy(packed), 1000 * mean_diffusivity(packed)
    csf = md > 1000 * CSF_MD
    white, grey = (fa > WHITE_FA) & ~csf, (fa < GREY_FA) & ~csf
    cells = [name, str(len(heads)), f"{len(packed) / len(heads) * 0.008:.0f}"]
    cells += [f"{100 * float(tissue.float().mean()):.0f} %" for tissue in (white, grey, csf)]
    cells += [_spread(fa[white]), _spread(md[white]), _spread(fa[grey]), _spread(md[grey]), _spread(md[csf])]
    rate = spd_violation_rate(packed, torch.ones(len(packed), dtype=torch.bool))
    return "| " + " | ".join([*cells, f"{float(rate):.2f} %"]) + " |"


def _spread(values: torch.Tensor) -> str:
    low, middle, high = np.percentile(values.numpy(), [10, 50, 90])
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def picture(heads: Sequence[Head], path: Path) -> None:
    figure, axes = plt.subplots(len(heads), 3, figsize=(7.2, 2.5 * len(heads)), facecolor="black")
    for line, head in zip(axes, heads, strict=True):
        colours = colour_fa(head.components.movedim(0, -1)).clamp(0, 1) * head.mask[..., None]
        inside = torch.nonzero(head.mask)
        low, high = inside.min(dim=0).values, inside.max(dim=0).values
        x, y, z = (low + (high - low) * torch.tensor(CUT)).long().tolist()
        box = colours[low[0] : high[0] + 1, low[1] : high[1] + 1, low[2] : high[2] + 1]
        planes = (box[:, :, z - low[2]], box[:, y - low[1]], box[x - low[0]])
        for panel, plane in zip(line, planes, strict=True):
            panel.imshow(plane.transpose(0, 1).numpy() ** 0.8, origin="lower", interpolation="nearest")
            panel.axis("off")
        line[0].set_title(head.name, color="white", fontsize=8, loc="left")
    figure.tight_layout(pad=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100, facecolor="black")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True, help="folder with dwi.nii.gz, dwi.bval, dwi.bvec")
    parser.add_argument("--templates", type=Path, help="folder of real anatomies; left out, procedural heads alone")
    parser.add_argument("--subjects", type=int, default=4)
    parser.add_argument("--docs", type=Path, default=DOCS)
    arguments = parser.parse_args()
    procedural = ProceduralSource("train", bundles=())
    sources: list[tuple[str, AnatomySource, Sequence[str]]] = [
        ("procedural", procedural, procedural.names[: arguments.subjects])
    ]
    if arguments.templates:
        templates = TemplateSource(arguments.templates, split="train")
        sources.append(("templates", templates, templates.names))
    full, short = ProtocolSettings(), ProtocolSettings(b0s=(1, 1), directions=(16, 16))
    real = real_head(arguments.real)
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER), row(real.name, [real])]
    shown = [real]
    for name, source, names in sources:
        as_real = virtual_heads(f"{name}, 1 + 16", source, names, protocol=short)
        as_hcp = virtual_heads(f"{name}, 18 + 90", source, names, protocol=full)
        clean = virtual_heads(f"{name}, 18 + 90, no noise", source, names, protocol=full, clean=True)
        lines += [row(group[0].name.partition(" (")[0], group) for group in (as_real, as_hcp, clean)]
        shown += [head for head in as_real if any(allowed in head.name for allowed in PICTURED)]
    print("\n".join(lines))
    picture(shown, arguments.docs / "figures" / "cohort-realism.png")
    page = arguments.docs / "cohort.md"
    if page.exists():
        before, _, rest = page.read_text().partition(TABLE[0])
        page.write_text(before + "\n".join([TABLE[0], "", *lines, "", TABLE[1]]) + rest.partition(TABLE[1])[2])


if __name__ == "__main__":
    main()
