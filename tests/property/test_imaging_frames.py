"""Frames, grids and files keep what is physical, for any grid and any gradient."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tensorldm.components import CONVENTIONS
from tensorldm.imaging.frames import decode_tensor, directions_to_frame, encode_tensor, tensor_to_frame
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.volume import Space, Volume

ANGLES = st.floats(-np.pi, np.pi)
SIDES = st.floats(0.8, 6.0)
FRAMES = st.sampled_from(["image", "fsl", "scanner"])


def turn(a: float, b: float, c: float) -> np.ndarray:
    x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    return x @ y @ z


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    affine = np.eye(4)
    mirror = np.diag([draw(st.sampled_from([-1.0, 1.0])), 1.0, 1.0])
    size = [draw(SIDES) for _ in range(3)]
    affine[:3, :3] = turn(draw(ANGLES), draw(ANGLES), draw(ANGLES)) @ mirror @ np.diag(size)
    affine[:3, 3] = [draw(st.floats(-100, 100)) for _ in range(3)]
    x, y, z = (draw(st.integers(2, 7)) for _ in range(3))
    return Space((x, y, z), affine)


@given(spaces(), arrays(np.float64, (4, 3), elements=st.floats(-1, 1)), FRAMES, FRAMES)
def test_a_change_of_frame_keeps_lengths_and_angles_and_can_be_undone(space, vectors, source, target):
    moved = directions_to_frame(vectors, space, source=source, target=target)
    np.testing.assert_allclose(moved @ moved.T, vectors @ vectors.T, atol=1e-9)
    np.testing.assert_allclose(directions_to_frame(moved, space, source=target, target=source), vectors, atol=1e-9)


@given(
    spaces(), arrays(np.float64, 6, elements=st.floats(-3, 3)), FRAMES, arrays(np.float64, 3, elements=st.floats(-1, 1))
)
def test_a_tensor_gives_the_same_diffusivity_along_a_direction_in_every_frame(space, packed, target, direction):
    def along(tensor: np.ndarray, g: np.ndarray) -> float:
        return float(tensor @ [g[0] ** 2, g[1] ** 2, g[2] ** 2, 2 * g[0] * g[1], 2 * g[0] * g[2], 2 * g[1] * g[2]])

    moved = directions_to_frame(direction, space, target=target)
    assert abs(along(tensor_to_frame(packed, space, target=target), moved) - along(packed, direction)) < 1e-9


@given(spaces(), st.sampled_from(sorted(CONVENTIONS)))
def test_a_convention_and_back_is_the_identity(space, name):
    packed = np.random.default_rng(0).normal(size=(*space.shape, 6))
    np.testing.assert_allclose(decode_tensor(encode_tensor(packed, space, name), space, name), packed, atol=1e-9)


@given(spaces())
def test_reorientation_is_exact_and_leaves_the_nearest_axes(space):
    step = to_ras(space)
    data = np.random.default_rng(0).normal(size=space.shape)
    there = step.forward(data)
    np.testing.assert_array_equal(step.inverse(there, np.ones(there.shape, bool)), data)
    # The voxel axes, turned, are the target's: what is done to the array is done to directions.
    np.testing.assert_allclose(step.target.axes @ step.turn, space.axes, atol=1e-9)
    assert (np.diag(step.target.axes) > 0).all()


@settings(max_examples=40)
@given(spaces(), st.floats(1e-4, 3e-3), st.floats(0.0, 3.0))
def test_a_constant_tensor_comes_back_from_any_grid_unchanged(space, diffusivity, stretch):
    """Constant in the world: whatever is interpolated, re-ordered or padded, every voxel must say the same."""
    grid = working_grid(space).padded(4)
    fibre = np.array([0.36, 0.48, 0.8])
    matrix = diffusivity * (np.eye(3) + stretch * np.outer(fibre, fibre))
    native = matrix[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    turned = (grid.turn @ matrix @ grid.turn.T)[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    everywhere = np.ones(space.shape, bool)
    mask = grid.forward_mask(everywhere)
    packed = np.where(mask[..., None], turned, 0.0)
    back = grid.inverse_tensor(Volume(packed, grid.working), mask, within=everywhere).data
    np.testing.assert_allclose(back, np.broadcast_to(native, back.shape), rtol=1e-6, atol=1e-12)
