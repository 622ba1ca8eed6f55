"""What varies from one virtual subject to the next, and by how much.

Plain dataclasses, so that the stream runs where only torch is installed; `cohort.config` reads them from YAML.
A range is (lowest, highest), drawn evenly. ``preset cohort`` lists every value with its reason.
"""

from dataclasses import dataclass, field
from typing import Literal

from tensorldm.cohort.clinical import ArtefactSettings, DetailSettings, SchemeSettings
from tensorldm.cohort.ranges import Checked, Counts, Range, Size

Reorientation = Literal["ppd", "finite-strain"]
ReferenceNoise = Literal["all", "shared"]


@dataclass(frozen=True)
class WarpSettings(Checked):
    """Pose and shape."""

    rotation_degrees: float = 15.0
    """Largest turn about each axis; drawn evenly between its negative and itself, as the next three."""
    translation_mm: float = 4.0
    scale: float = 0.08
    """Largest relative stretch of each axis, on top of one for all axes."""
    shear: float = 0.04
    spacing_mm: tuple[float, ...] = (60.0, 30.0, 15.0)
    """Distance of the control points of each scale of the velocity field."""
    displacement_mm: tuple[float, ...] = (3.0, 1.2, 0.4)
    """Standard deviation of the displacement at each scale."""
    mirror: bool = True
    """Swap left and right in half of the subjects."""
    reorientation: Reorientation = "ppd"
    zoom: Range = (1.0, 1.0)
    """Further scale of the head, below 1: the detail of a template then comes out finer."""
    zoomed: float = 0.0
    """Share of subjects with it."""

    def __post_init__(self) -> None:
        self._in_order("zoom", lowest=0.5)
        self._is_share("zoomed")
        self._at_least(0.0, "rotation_degrees", "translation_mm", "scale", "shear", "displacement_mm")
        self._at_least(4.0, "spacing_mm")
        if self.scale > 0.4 or self.shear > 0.4:
            raise ValueError("scale and shear are relative and at most 0.4")
        if len(self.spacing_mm) != len(self.displacement_mm):
            raise ValueError("spacing_mm and displacement_mm need one number for each scale")


@dataclass(frozen=True)
class VariationSettings(Checked):
    """Tissue and b=0 signal. Factors are relative to the anatomy's own values."""

    white_diffusivity: Range = (0.92, 1.12)
    grey_diffusivity: Range = (0.92, 1.12)
    csf_diffusivity: Range = (0.97, 1.03)
    """Free water at body temperature varies little."""
    anisotropy: Range = (0.85, 1.12)
    diffusivity_texture: float = 0.04
    """Relative standard deviation of the voxel-scale texture of tissue diffusivity."""
    anisotropy_texture: float = 0.08
    ventricles_mm: Range = (-1.5, 4.0)
    """How far the walls of the inner CSF spaces move outwards."""
    grey_contrast: Range = (0.85, 1.2)
    csf_contrast: Range = (0.7, 1.3)
    bias: float = 0.15
    """Standard deviation of the logarithm of the receive field, which multiplies all volumes."""
    bias_spacing_mm: float = 90.0
    rim: Range = (0.05, 0.25)
    """Share of the voxels around the brain, mostly bone, that the mask lets in."""
    lesion_probability: float = 0.1
    """Share of subjects with white-matter lesions."""
    lesions: int = 12
    """Largest number of lesions in such a subject."""

    def __post_init__(self) -> None:
        self._in_order(
            "white_diffusivity", "grey_diffusivity", "csf_diffusivity", "grey_contrast", "csf_contrast", lowest=0.1
        )
        self._in_order("anisotropy", "rim", lowest=0.0)
        self._in_order("ventricles_mm", lowest=-10.0)
        self._at_least(0.0, "diffusivity_texture", "anisotropy_texture", "bias", "lesions", "lesion_probability")
        self._at_least(10.0, "bias_spacing_mm")


@dataclass(frozen=True)
class ProtocolSettings(Checked):
    """The acquisition."""

    b0s: Counts = (18, 18)
    directions: Counts = (90, 90)
    """Counts, drawn as whole numbers."""
    bval: Range = (1000.0, 1000.0)
    """s/mm²."""
    turn: bool = True
    """Turn the whole scheme at random in every subject."""
    tilt_degrees: Range | None = None
    """Where given, three of the directions lie this far off the x, y and z axes and are the sparse input."""
    voxel_mm: Size | None = None
    """None keeps the anatomy's grid."""
    slice_thickness_mm: float | None = None
    """None: as thick as the slices are apart."""
    blur_mm: Range = (0.0, 0.0)
    """FWHM of the point spread beyond the voxel itself."""
    snr: Range = (20.0, 35.0)
    """Mean b=0 signal of white matter over the noise's standard deviation in one real channel."""
    coils: int = 1
    """1 gives Rician noise; n receivers combined by sum of squares give non-central χ."""
    motion_degrees: float = 0.0
    """Standard deviation of the head's turn about each axis between volumes."""
    motion_mm: float = 0.0
    nonlinearity: float = 0.0
    """Relative deviation of the gradients at 80 mm from the centre; the reference is fitted with it known."""
    scheme: SchemeSettings | None = None
    """Where given, the input's directions are drawn as those of scanners of every kind; counts, b and SNR too."""

    def __post_init__(self) -> None:
        self._in_order("b0s", lowest=1.0)
        self._in_order("directions", lowest=6.0)
        self._in_order("bval", lowest=100.0)
        self._in_order("blur_mm", lowest=0.0)
        self._in_order("snr", lowest=1.0)
        self._at_least(1.0, "coils")
        self._at_least(0.0, "motion_degrees", "motion_mm", "nonlinearity")
        if self.tilt_degrees is not None:
            self._in_order("tilt_degrees", lowest=0.0)
            if self.tilt_degrees[1] > 45.0:
                raise ValueError("tilt_degrees is at most 45: beyond it another axis is nearer")
        if self.voxel_mm is not None:
            self._at_least(0.5, "voxel_mm")
        if self.slice_thickness_mm is not None:
            self._at_least(0.5, "slice_thickness_mm")


@dataclass(frozen=True)
class CohortSettings(Checked):
    """Everything that makes a virtual subject out of an anatomy, a seed and a position."""

    warp: WarpSettings = field(default_factory=WarpSettings)
    variation: VariationSettings = field(default_factory=VariationSettings)
    protocol: ProtocolSettings = field(default_factory=ProtocolSettings)
    detail: DetailSettings = field(default_factory=DetailSettings)
    artefacts: ArtefactSettings = field(default_factory=ArtefactSettings)
    scans_per_head: int = 1
    """Positions in a row that show one head, each in a scan of its own: a head costs more than a scan."""
    reference_noise: ReferenceNoise = "all"
    """Of the reference that a stream gives: all of the acquisition's, or only what it shares with the input."""

    def __post_init__(self) -> None:
        self._at_least(1.0, "scans_per_head")
