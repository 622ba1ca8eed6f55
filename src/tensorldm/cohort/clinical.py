"""Settings of what sets scanners of every kind apart from one research protocol; all of it is off by default
[choice: clinical-stream].

Ranges are (lowest, highest). A share is the part of the subjects that have something at all.
``preset clinical`` lists every value with its reason.
"""

from dataclasses import dataclass

from tensorldm.cohort.ranges import Checked, Counts, Range


@dataclass(frozen=True)
class SchemeSettings(Checked):
    """Which volumes the model is given, and of which acquisition they are a part.

    In a protocol with a scheme the numbers of b=0s and directions and the SNR are drawn evenly in their logarithm:
    short scans are the usual ones.
    """

    group: int = 48
    """Subjects of so many positions in a row have one number of input volumes, so that a batch can hold them."""
    near_axes: float = 0.6
    any_triad: float = 0.15
    """Shares of subjects with three directions near the axes, and with any three; the rest have more of them."""
    tilt_degrees: float = 25.0
    """Largest tilt of each direction off its axis, small ones preferred."""
    condition: float = 3.0
    """Largest condition number of the matrix of any three directions; 1 is a right-angled triad."""
    directions: Counts = (4, 12)
    """Numbers of input directions where there are more than three."""
    mean_b0: float = 0.5
    """Share of subjects whose input is the mean of the b=0s instead of the first."""
    usual_bval: Range = (900.0, 1100.0)
    usual: float = 0.5
    """Share of subjects whose b-value is drawn from the usual ones instead of the whole range."""
    several_coils: int = 4
    several: float = 0.25
    """Share of subjects whose noise is that of so many receivers combined by sum of squares."""

    def __post_init__(self) -> None:
        self._is_share("near_axes", "any_triad", "mean_b0", "usual", "several")
        self._at_least(1.0, "group", "condition", "several_coils")
        self._in_order("directions", lowest=4.0)
        self._in_order("usual_bval", lowest=100.0)
        if self.near_axes + self.any_triad > 1:
            raise ValueError("near_axes and any_triad are shares of the subjects and at most 1 together")
        if not 0 <= self.tilt_degrees <= 45:
            raise ValueError("tilt_degrees is at most 45: beyond it another axis is nearer")


@dataclass(frozen=True)
class DetailSettings(Checked):
    """What templates of 2 to 5 mm have lost: edges, fluid between the gyri, and texture from voxel to voxel."""

    sharpen: float = 0.0
    """How much of what a blur takes away is added once more, to every anatomy as it is loaded."""
    sharpen_fwhm_mm: float = 5.0
    white_mm2_per_s: float = 0.0
    """Median mean diffusivity of white matter that every anatomy is brought to; 0 leaves it."""
    fluid: Range = (0.0, 0.0)
    """Share of the brain that is mostly fluid; 0 leaves the anatomy's own."""
    fluid_steepness: Range = (2.0, 4.0)
    """How quickly fluid gives way to tissue at the border."""
    sulci: float = 0.0
    """Share of subjects with further sulci, thin sheets of fluid in the grey matter near the surface."""
    sulcus_mm: Range = (0.4, 1.2)
    """Half the width of such a sheet."""
    diffusivity: Range = (0.0, 0.0)
    """Relative standard deviation of the mean diffusivity from voxel to voxel, within a tissue."""
    shape: Range = (0.0, 0.0)
    """The same of the six strains that change a tensor's shape."""
    turn_degrees: Range = (0.0, 0.0)
    """Standard deviation of its turn about each axis."""
    texture_mm: tuple[float, ...] = (0.0, 3.0, 6.0)
    """FWHM of the texture, one of these in each subject."""

    def __post_init__(self) -> None:
        self._at_least(0.0, "sharpen", "white_mm2_per_s", "texture_mm")
        self._at_least(1.0, "sharpen_fwhm_mm")
        self._in_order("fluid", "diffusivity", "shape", "turn_degrees", lowest=0.0)
        self._in_order("fluid_steepness", lowest=1.0)
        self._in_order("sulcus_mm", lowest=0.1)
        self._is_share("sulci")
        if not self.texture_mm:
            raise ValueError("texture_mm needs at least one width")
        if self.fluid[1] > 0.5 or self.shape[1] > 0.3 or self.diffusivity[1] > 0.3:
            raise ValueError("fluid is at most 0.5, diffusivity and shape at most 0.3: beyond it is no brain")

    @property
    def has_texture(self) -> bool:
        """Whether tensors differ from voxel to voxel at all."""
        return max(self.diffusivity[1], self.shape[1], self.turn_degrees[1]) > 0


@dataclass(frozen=True)
class ArtefactSettings(Checked):
    """What happens between the head and the images: motion, eddy currents, distortion, coarse voxels, cut views."""

    misaligned: float = 0.0
    misalignment_mm: Range = (0.0, 0.5)
    """Standard deviation of the shift of each volume along each axis."""
    misalignment_degrees_per_mm: float = 0.6
    """Turns that go with it."""
    eddy: float = 0.0
    eddy_mm: Range = (0.0, 1.0)
    """Standard deviation, 80 mm from the centre, of the shift along the phase-encoding axis in each weighted volume."""
    distorted: float = 0.0
    distortion_mm: Range = (0.0, 4.0)
    """Standard deviation of the smooth shift along the phase-encoding axis that all volumes share."""
    distortion_spacing_mm: float = 50.0
    coarse: float = 0.0
    """Share of subjects scanned with other voxels than the grid's."""
    in_plane_mm: Range = (1.7, 3.5)
    slice_mm: Range = (2.5, 5.0)
    interpolated: float = 0.0
    interpolated_mm: Range = (2.0, 3.5)
    """FWHM of a blur after the noise, as interpolating scanners give it: their noise is alike in neighbours."""
    slab: float = 0.0
    slab_mm: Range = (48.0, 80.0)
    """Height of the field of view where it is cut."""
    eroded: float = 0.0
    """Share of subjects whose mask lacks the outermost voxels of the brain, one layer or two."""
    generous: float = 0.0
    generous_rim: Range = (0.5, 1.0)
    """Share of subjects whose mask takes in much of the bone, and how much of it."""

    def __post_init__(self) -> None:
        self._is_share("misaligned", "eddy", "distorted", "coarse", "interpolated", "slab", "eroded", "generous")
        self._in_order("misalignment_mm", "eddy_mm", "distortion_mm", "interpolated_mm", "generous_rim", lowest=0.0)
        self._in_order("in_plane_mm", "slice_mm", lowest=0.5)
        self._in_order("slab_mm", lowest=10.0)
        self._at_least(0.0, "misalignment_degrees_per_mm")
        self._at_least(20.0, "distortion_spacing_mm")
        if self.eroded + self.generous > 1:
            raise ValueError("eroded and generous are shares of the subjects and at most 1 together")
        if self.distortion_mm[1] > 0.15 * self.distortion_spacing_mm:
            raise ValueError("distortion_mm is at most 0.15 of distortion_spacing_mm: beyond it the image folds")

    @property
    def act_on_images(self) -> bool:
        """Whether any volume is moved, distorted, interpolated or of other voxels."""
        return max(self.misaligned, self.eddy, self.distorted, self.coarse, self.interpolated) > 0
