"""What to cite, as CITATION.cff at the top of the repository says it; a test keeps the two alike."""

from typing import Final

from tensorldm import __version__

PAPER_AUTHORS: Final = ("Junhyeok Lee", "Kyu Sung Choi")
PAPER_TITLE: Final = (
    "TensorLDM: A Component-Wise Latent Diffusion Model for Volumetric DTI Reconstruction from Sparse DWIs"
)
SOFTWARE: Final = "TensorLDM"
SOFTWARE_AUTHORS: Final = "The TensorLDM developers"
LICENSE: Final = "Apache-2.0"


def references() -> tuple[str, str]:
    """The paper and the software, ready to paste."""
    return (
        f"{' and '.join(PAPER_AUTHORS)}. {PAPER_TITLE}.",
        f"{SOFTWARE_AUTHORS}. {SOFTWARE}, version {__version__}. {LICENSE}.",
    )
