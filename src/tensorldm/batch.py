"""What a network is trained on: a batch of subjects, from a prepared store or straight from the virtual cohort."""

from dataclasses import dataclass, fields, replace

from jaxtyping import Float
from torch import Tensor, device

from tensorldm.shapes import Components, Dwi, Masks


@dataclass(frozen=True)
class Batch:
    """Sparse input, reference tensor and mask on one RAS grid; every volume travels with its b-value and direction.

    ``dwi`` is divided by one robust b=0 scale per subject, so that S/S0 survives. ``components`` are mm²/s in
    image axes. ``clean`` is the noise-free tensor where it is known (virtual subjects), else ``components`` again.
    """

    dwi: Dwi
    bvals: Float[Tensor, "b c"]
    directions: Float[Tensor, "b c 3"]
    components: Components
    clean: Components
    mask: Masks
    voxel_size: Float[Tensor, "b 3"]
    subjects: tuple[str, ...]

    def to(self, where: device | str) -> "Batch":
        """The same batch on another device."""
        moved = {
            field.name: getattr(self, field.name).to(where)
            for field in fields(self)
            if isinstance(getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)
