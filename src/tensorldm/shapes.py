"""Axis legend and array types, checked at run time in every test.

b batch, d tensor component (6), c DWI volume (4 in the paper: b0 x y z), f feature channel, x y z space (RAS),
i j matrix, n gradient or token, h head, k key size, l level, t diffusion step.
"""

from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

Packed = Float[Tensor, "*voxels 6"]
"""Six components per voxel, in the package's order: xx yy zz xy xz yz."""
Tensors = Float[Tensor, "*voxels 3 3"]
Eigenvalues = Float[Tensor, "*voxels 3"]
"""In descending order."""
Scalars = Float[Tensor, "*voxels"]
Vectors = Float[Tensor, "*voxels 3"]

Dwi = Float[Tensor, "b c x y z"]
Components = Float[Tensor, "b 6 x y z"]
Masks = Bool[Tensor, "b x y z"]
Latents = Float[Tensor, "b 6 f x y z"]
Features = Float[Tensor, "b f x y z"]

BVals = Float[Tensor, " n"]
"""s/mm²."""
Directions = Float[Tensor, "n 3"]
"""Unit vectors; zero for b=0."""

Affine = Float[ndarray, "4 4"]
Image = Float[ndarray, "x y z"]
Series = Float[ndarray, "x y z n"]
MaskImage = Bool[ndarray, "x y z"]
