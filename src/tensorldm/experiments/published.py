"""The paper's own figures: 195 test subjects of HCP Young Adult, mean and standard deviation.

They stand beside ours in every table, as figures of another dataset: neither the subjects nor the mask, nor the ranges
of PSNR and SSIM, which the paper does not state, are ours.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tensorldm.evaluation.measures import (
    COMPONENT_NAMES,
    LEM,
    MAP_NAMES,
    NMSE,
    OFF_DIAGONAL_LEM,
    PSNR,
    SPD_VIOLATIONS,
    SSIM,
    TENSOR,
)

Key = tuple[str, str, str]
HEADING: Final = "paper¹"
FOOTNOTE: Final = (
    "¹ The paper's figure on another dataset (195 HCP Young Adult subjects, its own mask and ranges): for orientation, "
    "not a comparison"
)


class Published(NamedTuple):
    """A figure of the paper."""

    mean: float
    spread: float


_MAPS = """
ADE       0.02 0.00 28.97 0.66 0.97 0.01 0.02 0.00 28.74 0.85 0.96 0.01 0.37 0.03 16.26 0.47 0.75 0.02 1.07 0.03 19.94 0.52 0.60 0.03
CycleGAN  0.13 0.01 19.85 0.54 0.80 0.02 0.16 0.01 20.06 0.80 0.80 0.02 0.50 0.04 14.93 0.48 0.62 0.03 1.08 0.10 19.93 0.75 0.60 0.03
Pix2Pix   0.04 0.00 24.98 0.56 0.93 0.01 0.05 0.01 25.08 0.82 0.93 0.01 0.29 0.02 17.25 0.49 0.76 0.02 0.79 0.06 21.28 0.69 0.71 0.02
ResViT    0.03 0.00 25.69 0.57 0.94 0.01 0.04 0.00 25.76 0.80 0.94 0.01 0.28 0.02 17.51 0.44 0.76 0.02 0.75 0.04 21.49 0.64 0.72 0.02
SuperDTI  0.04 0.01 25.53 0.67 0.94 0.01 0.05 0.01 25.38 0.88 0.94 0.01 0.22 0.02 18.54 0.47 0.81 0.02 0.75 0.04 21.50 0.55 0.69 0.02
Diff-DTI  0.01 0.00 32.66 0.63 0.97 0.00 0.01 0.00 32.76 0.80 0.97 0.00 0.08 0.01 22.71 0.38 0.93 0.00 0.33 0.02 24.60 0.56 0.89 0.01
LDM       0.13 0.01 20.02 0.63 0.81 0.02 0.15 0.01 20.19 0.84 0.82 0.02 0.37 0.02 16.28 0.45 0.67 0.03 0.78 0.03 21.36 0.64 0.68 0.03
TensorLDM 0.01 0.00 32.86 0.82 0.99 0.00 0.01 0.00 33.15 0.96 0.99 0.00 0.08 0.01 23.07 0.44 0.94 0.00 0.33 0.02 25.03 0.60 0.90 0.01
"""  # noqa: E501  a line of the paper is a line here
"""NMSE, PSNR, SSIM of MD, RD, FA and colour FA, each a mean and its standard deviation."""
_COMPONENTS = """
ADE       29.71 0.41 0.92 0.01 30.22 0.74 0.93 0.01 29.84 0.56 0.92 0.01 24.03 1.21 0.64 0.04 23.39 1.52 0.64 0.04 23.43 1.50 0.63 0.04 0.65 0.03
CycleGAN  25.25 0.36 0.81 0.02 25.20 0.46 0.82 0.02 25.22 0.48 0.81 0.01 21.41 1.23 0.60 0.04 21.25 1.56 0.60 0.04 22.80 1.72 0.65 0.05 1.00 0.09
Pix2Pix   29.92 0.38 0.93 0.01 30.02 0.49 0.93 0.01 30.05 0.48 0.93 0.01 24.87 1.27 0.70 0.04 24.30 1.65 0.69 0.04 26.19 1.64 0.77 0.03 0.66 0.05
ResViT    30.85 0.38 0.94 0.01 30.93 0.48 0.94 0.01 30.97 0.49 0.94 0.01 25.94 1.24 0.73 0.03 25.61 1.55 0.73 0.03 27.26 1.59 0.79 0.03 0.57 0.03
SuperDTI  30.49 0.43 0.94 0.01 30.46 0.62 0.94 0.01 30.56 0.52 0.94 0.01 20.84 1.23 0.61 0.04 20.36 1.55 0.61 0.04 19.75 1.54 0.58 0.04 0.71 0.05
Diff-DTI  35.86 0.46 0.98 0.00 36.27 0.60 0.98 0.00 36.16 0.52 0.98 0.00 21.22 1.24 0.65 0.03 20.64 1.55 0.65 0.03 19.75 1.52 0.61 0.04 0.49 0.02
LDM       26.32 0.50 0.85 0.01 26.13 0.52 0.85 0.01 26.24 0.56 0.85 0.01 26.18 1.23 0.76 0.03 25.66 1.52 0.75 0.03 25.53 1.51 0.75 0.04 0.70 0.03
TensorLDM 36.45 0.52 0.99 0.00 36.58 0.66 0.99 0.00 36.75 0.59 0.99 0.00 29.30 1.20 0.72 0.04 29.79 1.61 0.82 0.04 30.11 1.67 0.83 0.05 0.33 0.02
"""  # noqa: E501
"""PSNR and SSIM of the six components, then LEM."""
_ABLATIONS = """
w/o CCA                    36.42 0.52 36.54 0.66 36.71 0.59 29.26 1.20 29.80 1.62 30.13 1.73 0.34 0.02 32.79 0.83 33.09 0.96 23.06 0.44 25.02 0.60
w/o MoE                    36.42 0.52 36.54 0.66 36.72 0.59 29.28 1.20 29.87 1.56 30.20 1.67 0.34 0.02 32.79 0.83 33.10 0.96 23.07 0.44 25.02 0.60
w/o AE-LEM                 36.19 0.53 36.33 0.67 36.53 0.61 29.29 1.20 29.90 1.60 30.16 1.67 0.35 0.02 32.38 0.86 32.71 1.00 22.97 0.44 24.91 0.60
w/o full-volume fine-tuning 35.88 0.49 36.02 0.63 36.17 0.56 29.20 1.17 29.57 1.47 29.91 1.67 0.33 0.02 32.51 0.76 32.85 0.87 22.79 0.45 24.69 0.59
w/o joint AE               36.23 0.52 36.25 0.66 36.48 0.61 29.84 1.20 29.66 1.74 29.85 1.70 0.35 0.02 32.35 0.85 32.68 0.98 22.93 0.45 24.93 0.59
w/o joint LDM              36.06 0.51 36.30 0.63 36.25 0.57 27.03 1.19 29.07 1.57 29.17 1.80 0.34 0.02 33.01 0.71 33.08 0.83 22.53 0.48 24.54 0.62
"""  # noqa: E501
"""PSNR of the six components, LEM, PSNR of the four maps."""
_MAP_KEYS = tuple((quantity, metric) for quantity in MAP_NAMES for metric in (NMSE, PSNR, SSIM))
_COMPONENT_KEYS = (*((quantity, metric) for quantity in COMPONENT_NAMES for metric in (PSNR, SSIM)), (TENSOR, LEM))
_ABLATION_KEYS = (*((name, PSNR) for name in COMPONENT_NAMES), (TENSOR, LEM), *((name, PSNR) for name in MAP_NAMES))


def _read(text: str, keys: tuple[tuple[str, str], ...]) -> Iterator[tuple[Key, Published]]:
    for line in text.strip().splitlines():
        words = line.split()
        count = 2 * len(keys)
        method, numbers = " ".join(words[:-count]), [float(word) for word in words[-count:]]
        for index, (quantity, metric) in enumerate(keys):
            yield (method, quantity, metric), Published(*numbers[2 * index : 2 * index + 2])


FIGURES: Final[Mapping[Key, Published]] = {
    **dict(_read(_MAPS, _MAP_KEYS)),
    **dict(_read(_COMPONENTS, _COMPONENT_KEYS)),
    **dict(_read(_ABLATIONS, _ABLATION_KEYS)),
    ("reference", TENSOR, SPD_VIOLATIONS): Published(1.40, 0.27),
    ("TensorLDM", TENSOR, SPD_VIOLATIONS): Published(1.54, 0.28),
    ("w/o AE-LEM", TENSOR, SPD_VIOLATIONS): Published(1.61, 0.29),
    ("Stage 1+2", TENSOR, LEM): Published(0.520, float("nan")),
    ("Stage 2 alone", TENSOR, LEM): Published(0.508, float("nan")),
    ("Stage 1+2", TENSOR, OFF_DIAGONAL_LEM): Published(0.240, float("nan")),
    ("Stage 2 alone", TENSOR, OFF_DIAGONAL_LEM): Published(0.255, float("nan")),
}
NOT_SIGNIFICANT: Final[Mapping[Key, float]] = {
    ("Diff-DTI", "FA", NMSE): 0.097,
    ("w/o MoE", TENSOR, LEM): 0.177,
    ("w/o joint LDM", TENSOR, LEM): 0.075,
    ("w/o CCA", "FA", PSNR): 0.247,
    ("w/o MoE", "FA", PSNR): 0.682,
    ("w/o joint LDM", "RD", PSNR): 0.124,
    ("w/o CCA", "Dxz", PSNR): 0.927,
    ("w/o MoE", "Dxz", PSNR): 0.164,
    ("w/o AE-LEM", "Dxz", PSNR): 0.055,
    ("w/o joint AE", "Dxz", PSNR): 0.070,
    ("w/o CCA", "Dyz", PSNR): 0.808,
    ("w/o MoE", "Dyz", PSNR): 0.195,
    ("w/o AE-LEM", "Dyz", PSNR): 0.543,
}
"""The paper's paired t-tests that found nothing; of those it lists, all others are at p < 0.01."""
RUNTIME_SECONDS: Final[Mapping[tuple[str, int], str]] = {
    ("SuperDTI", 0): "10.9 (A6000)",
    ("LDM", 0): "23.6 (A6000)",
    ("Diff-DTI", 0): "593 (A6000)",
    ("TensorLDM", 250): "123 (A6000), 32.7 (RTX 6000 Ada)",
    ("TensorLDM", 25): "9.4 (RTX 6000 Ada)",
}
"""By method and sampler steps; 0 where the paper states none."""
PROBE_R2: Final[Mapping[str, float]] = {"features": 0.61, "latents": 0.08}
ROUTING: Final[Mapping[str, tuple[str, float, float]]] = {
    "diagonal": ("y", 0.40, 1.23),
    "off-diagonal": ("z", 0.34, 1.37),
}
"""By group: the volume with the largest share, that share, and the entropy in nats."""
_PAPER_NAMES: Final = {name.lower().replace("-", "").replace(" ", "").replace("_", ""): name for name, _, _ in FIGURES}


def paper_name(method: str) -> str | None:
    """What the paper calls a method, however its name is spelt here; None for one that it does not have."""
    return _PAPER_NAMES.get(method.lower().replace("-", "").replace(" ", "").replace("_", ""))
