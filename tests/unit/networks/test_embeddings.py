import math

import pytest
import torch

from tensorldm.batch import mask_centre
from tensorldm.networks.embeddings import ComponentEmbedding, TimeEmbedding, latent_coordinates

VOXEL_SIZE = torch.tensor([[2.0, 2.0, 2.5]])


def embed(embedding, mask, compression=4):
    size = tuple(side // compression for side in mask.shape[1:])
    coordinates = latent_coordinates(size, mask_centre(mask), voxel_size=VOXEL_SIZE, compression=compression)
    with torch.no_grad():
        return embedding(coordinates)


@pytest.fixture
def mask():
    mask = torch.zeros(1, 16, 24, 16, dtype=torch.bool)
    mask[:, 5:11, 8:20, 4:9] = True
    return mask


def test_the_centre_of_a_box_is_its_middle(mask):
    torch.testing.assert_close(mask_centre(mask), torch.tensor([[7.5, 13.5, 6.0]]))


def test_an_empty_mask_has_the_middle_of_the_grid(mask):
    torch.testing.assert_close(mask_centre(torch.zeros_like(mask)), torch.tensor([[7.5, 11.5, 7.5]]))


def test_coordinates_are_mm_from_the_centre_to_the_middle_of_each_latent():
    x, y, z = latent_coordinates((2, 1, 1), torch.tensor([[1.5, 1.5, 5.5]]), voxel_size=VOXEL_SIZE, compression=4)
    torch.testing.assert_close(x, torch.tensor([[0.0, 8.0]]))
    torch.testing.assert_close(y, torch.tensor([[0.0]]))
    torch.testing.assert_close(z, torch.tensor([[-10.0]]))


@pytest.mark.parametrize("front", [0, 4, 8])
def test_padding_does_not_change_the_embedding_of_a_place(mask, front):
    embedding = ComponentEmbedding(8)
    padded = torch.nn.functional.pad(mask, (front, 8, front, 12, front, 4))
    latents = front // 4
    inside = embed(embedding, padded)[..., latents : latents + 4, latents : latents + 6, latents : latents + 4]
    torch.testing.assert_close(inside, embed(embedding, mask), atol=1e-5, rtol=0)


def test_a_crop_to_the_head_does_not_change_the_embedding_of_a_place(mask):
    embedding = ComponentEmbedding(8)
    whole = embed(embedding, mask)[..., 1:3, 2:5, 1:3]
    torch.testing.assert_close(embed(embedding, mask[:, 4:12, 8:20, 4:12]), whole, atol=1e-5, rtol=0)


def test_a_patch_told_the_heads_centre_has_the_embedding_of_its_place(mask):
    embedding = ComponentEmbedding(8)
    start = torch.tensor([[8.0, 12.0, 4.0]])
    coordinates = latent_coordinates((2, 2, 2), mask_centre(mask) - start, voxel_size=VOXEL_SIZE, compression=4)
    with torch.no_grad():
        patch = embedding(coordinates)
    torch.testing.assert_close(patch, embed(embedding, mask)[..., 2:4, 3:5, 1:3], atol=1e-5, rtol=0)


def test_the_embedding_is_the_stated_sum_over_axes():
    embedding = ComponentEmbedding(4)
    place = (12.0, -30.0, 5.0)
    with torch.no_grad():
        found = embedding(tuple(torch.tensor([[p]]) for p in place))[0, :, :, 0, 0, 0]
    vectors = embedding.vectors.detach()
    waves_mm = [32.0, 512.0]
    for d in range(6):
        for k in range(4):
            wave = (math.sin, math.cos)[k // 2]
            expected = sum(
                float(vectors[d, k, axis]) * wave(2 * math.pi * place[axis] / waves_mm[k % 2]) for axis in range(3)
            )
            assert float(found[d, k]) == pytest.approx(expected, abs=1e-5)


def test_components_and_places_are_told_apart(mask):
    found = embed(ComponentEmbedding(8), mask)[0]
    flat = found.flatten(2)
    between_components = torch.pdist(flat.flatten(1)).min()
    between_places = torch.pdist(flat[0].T).min()
    assert between_components > 1
    assert between_places > 0.1


def test_every_diffusion_step_has_a_vector_of_its_own():
    with torch.no_grad():
        vectors = TimeEmbedding(32)(torch.arange(1000))
    assert torch.pdist(vectors).min() > 1e-5
