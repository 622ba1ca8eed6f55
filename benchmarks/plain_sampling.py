"""Sampling as one would first write it: the yardstick for the package's own, with the same weights.

Components go through the U-Net one after the other, as the paper words it; experts, FiLM maps and embeddings are
computed where they are used, so at every step and for every component; the latent and its embedding are
concatenated; attention writes down its logits, its bias and a mask for every window; the sampler is DDIM. Only the
features of the scan are taken as given.
Axes: b batch, s component, f feature, h head, w window, n token, x y z space.
"""

import torch
import torch.nn.functional as F
from einops import einsum, rearrange

from tensorldm.batch import mask_centre
from tensorldm.diffusion import split_prediction, trailing_pairs
from tensorldm.networks.embeddings import latent_coordinates
from tensorldm.networks.windows import WINDOW, WindowGrid

FORBIDDEN = -1e4


def plain_draw(model, features, noise, *, mask, voxel_size, num_steps):
    """Components in network units of one noise, zero outside the mask."""
    latents, schedule = noise, model.schedule
    for step, previous in trailing_pairs(num_steps, train_steps=len(schedule)):
        predicted = plain_denoise(model, latents, step, features=features, mask=mask, voxel_size=voxel_size)
        clean, implied = split_prediction(
            predicted, latents, signal=schedule.signal(step), spread=schedule.noise(step), prediction=model.prediction
        )
        latents = schedule.signal(previous) * clean + schedule.noise(previous) * implied
    return model.decode(latents, features, size=tuple(mask.shape[1:])) * mask[:, None]


def plain_denoise(model, latents, step, *, features, mask, voxel_size):
    """The U-Net's prediction, component by component; they meet in the attention alone."""
    unet = model.unet
    steps = torch.full((len(latents),), step, device=latents.device)
    stacks, pyramids = [], []
    for component in range(6):
        features_here = component_features(model, features, component)
        pyramids.append([pool(features_here, level) for level in range(len(unet.down_levels))])
        embedding = component_embedding(model, features, component, mask=mask, voxel_size=voxel_size)
        weight = torch.cat([unet.enter_latents.weight, unet.enter_embedding.weight], dim=1)
        bias = unet.enter_latents.bias + unet.enter_embedding.bias
        entering = torch.cat([latents[:, component], embedding.expand(len(latents), -1, -1, -1, -1)], dim=1)
        stacks.append(F.conv3d(entering, weight, bias, padding=1)[:, None])
    skips = []
    for index, level in enumerate(unet.down_levels):
        stacks = through_level(unet, level, stacks, [pyramid[index] for pyramid in pyramids], steps)
        if index < len(unet.downs):
            skips.append(stacks)
            stacks = [unet.downs[index](stack) for stack in stacks]
    for index in reversed(range(len(unet.up_levels))):
        stacks = [
            unet.merges[index](torch.cat([unet.ups[index](stack), skip], dim=2))
            for stack, skip in zip(stacks, skips[index], strict=True)
        ]
        stacks = through_level(unet, unet.up_levels[index], stacks, [pyramid[index] for pyramid in pyramids], steps)
    return torch.cat([unet.head(F.silu(unet.norm(stack))) for stack in stacks], dim=1)


def component_features(model, features, component):
    """Φ^d of one component: every expert's opinion, mixed by the component's gate."""
    vectors = model.unet.component_embedding.flat_vectors()
    vector = F.silu(features.gradients) if model.experts.block.film_vector is not None else None
    opinions = model.experts.block(model.experts.narrow(features.pooled), vector=vector)
    gates = model.experts.gates(features, vectors)[:, component]
    return einsum(gates, opinions, "b c, b c f x y z -> b f x y z")[:, None]


def component_embedding(model, features, component, *, mask, voxel_size):
    """e_d at every latent."""
    coordinates = latent_coordinates(
        tuple(features.pooled.shape[-3:]), mask_centre(mask), voxel_size=voxel_size, compression=model.compression
    )
    return model.unet.component_embedding(coordinates)[:, component]


def pool(stack, level):
    """Mean over cubes, to the grid of a level."""
    return F.avg_pool3d(stack[:, 0], 2**level)[:, None] if level else stack


def through_level(unet, level, stacks, conditions, steps):
    """Blocks, one component after the other; then attention, together where it is joint."""
    time = rearrange(unet.time_embedding(steps), "b v -> b 1 v")
    after = []
    for stack, condition in zip(stacks, conditions, strict=True):
        features = stack
        for block in level.blocks:
            features = block(features, block.modulation(condition), vector=time)
        after.append(features)
    if isinstance(level.attention, torch.nn.Identity):
        return after
    stack = torch.cat(after, dim=1)
    for block in level.attention:
        stack = stack + plain_attention(block.attention, block.norm_attention(stack))
        stack = stack + block.narrow(F.gelu(block.widen(block.norm_mlp(stack))))
    return list(stack.split(1, dim=1))


def plain_attention(layer, stack):
    """Window attention with everything written down: logits, bias and a mask for every window."""
    grid = WindowGrid(tuple(stack.shape[-3:]), shift=layer.shift)
    tokens = grid.cut(layer.to_qkv(grid.arrange(stack)))
    query, key, value = rearrange(tokens, "w s n (three h k) -> three w s h n k", three=3, h=layer.heads)
    mask = window_mask(grid, stack)
    spatial = layer.position_bias[0][:, layer.positions]
    own = torch.stack(
        [softmax_attention(query[:, s], key[:, s], value[:, s], spatial[None] + mask[:, None]) for s in range(6)], dim=1
    )
    if layer.mode == "off":
        mixed = own
    else:
        everyone = (
            rearrange(einsum(matrix, part, "h s r, w r h n k -> w h s n k"), "w h s n k -> w h (s n) k")
            for matrix, part in ((layer.mix_query, query), (layer.mix_key, key), (layer.mix_value, value))
        )
        bias = layer.joint_bias()[None] + mask.repeat(1, 6, 6)[:, None]
        joint = rearrange(softmax_attention(*everyone, bias), "w h (s n) k -> w s h n k", s=6)
        gate = layer.gate.reshape(-1, 1, 1)
        mixed = joint if layer.mode == "literal" else (1 - gate) * own + gate * joint
    joined = grid.join(rearrange(mixed, "w s h n k -> w s n (h k)"))
    return grid.restore(layer.to_out(joined))


def softmax_attention(query, key, value, bias):
    logits = query @ key.mT / query.shape[-1] ** 0.5 + bias
    return logits.softmax(dim=-1) @ value


def window_mask(grid, stack):
    """For each window, FORBIDDEN between tokens from two ends of the head and towards padding, else zero."""
    sides = [torch.arange(side, device=stack.device) for side in grid.size]
    regions = [(side < grid.shift).long() for side in sides]
    label = 1 + regions[0][:, None, None] + 2 * regions[1][None, :, None] + 4 * regions[2][None, None, :]
    labels = grid.cut(grid.arrange(label[None, None, None].float()))
    assert labels.shape[2] == WINDOW**3
    labels = rearrange(labels, "g 1 n 1 -> g n")
    apart = (labels[:, :, None] != labels[:, None, :]) | (labels[:, None, :] == 0)
    return (FORBIDDEN * apart.float()).repeat(len(stack), 1, 1)
