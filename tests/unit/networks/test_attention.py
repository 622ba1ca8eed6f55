import pytest
import torch

from tensorldm.networks.attention import SwinBlock, WindowAttention, set_attention_mode

CHANNELS, HEADS = 8, 2


def randomised(module, generator, scale=0.3):
    """Away from the start, where residual branches are silent and mixing is the identity."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return module


@pytest.fixture(params=[1, 6], ids=["shared weights", "own weights"])
def sets(request):
    return request.param


@pytest.fixture(params=[0, 2], ids=["unshifted", "shifted"])
def shift(request):
    return request.param


@pytest.fixture
def stack(generator):
    return torch.randn(2, 6, CHANNELS, 6, 5, 8, generator=generator)


def reference_attention(attention, stack, joint):
    """Every voxel by itself in float64: softmax over the voxels it may see, written out from [E2] and [E3]."""
    stack = stack.double()
    sets, size = len(attention.to_qkv.weight), CHANNELS // HEADS
    weight, bias = attention.to_qkv.weight.double(), attention.to_qkv.bias.double()
    projected = torch.stack(
        [torch.einsum("bfxyz,fg->bxyzg", stack[:, d], weight[d % sets]) + bias[d % sets] for d in range(6)],
        dim=1,
    )
    query, key, value = (part.unflatten(-1, (HEADS, size)) for part in projected.chunk(3, dim=-1))  # b d x y z h k
    if joint:
        mixes = (attention.mix_query, attention.mix_key, attention.mix_value)
        query, key, value = (
            torch.einsum("hde,bexyzhk->bdxyzhk", m.double(), part)
            for m, part in zip(mixes, (query, key, value), strict=True)
        )
    x, y, z = stack.shape[-3:]
    voxels = [(i, j, k) for i in range(x) for j in range(y) for k in range(z)]
    window = {v: tuple((c - attention.shift) // 4 for c in v) for v in voxels}
    result = torch.zeros_like(query)
    table = attention.position_bias.double()
    for v in voxels:
        seen = [u for u in voxels if window[u] == window[v]]
        offset = [sum((v[a] - u[a] + 3) * 7 ** (2 - a) for a in range(3)) for u in seen]
        for d in range(6):
            others = range(6) if joint else [d]
            logits, values = [], []
            for e in others:
                keys = torch.stack([key[:, e, *u] for u in seen], dim=1)
                logit = torch.einsum("bhk,bnhk->bhn", query[:, d, *v], keys) / size**0.5
                logit = logit + table[d % sets][:, offset]
                if joint:
                    logit = logit + attention.direction_bias.double()[:, d, e, None]
                logits.append(logit)
                values.append(torch.stack([value[:, e, *u] for u in seen], dim=1))
            weights = torch.cat(logits, dim=-1).softmax(dim=-1)
            result[:, d, *v] = torch.einsum("bhn,bnhk->bhk", weights, torch.cat(values, dim=1))
    out_weight, out_bias = attention.to_out.weight.double(), attention.to_out.bias.double()
    flat = result.flatten(-2)
    return torch.stack(
        [
            torch.einsum("bxyzf,fg->bgxyz", flat[:, d], out_weight[d % sets]) + out_bias[d % sets][:, None, None, None]
            for d in range(6)
        ],
        dim=1,
    )


@pytest.mark.parametrize("mode", ["off", "literal"])
def test_attention_is_what_the_equations_say_written_out_voxel_by_voxel(sets, shift, mode, generator):
    small = torch.randn(1, 6, CHANNELS, 6, 5, 2, generator=generator)
    attention = randomised(WindowAttention(CHANNELS, HEADS, sets=sets, shift=shift), generator)
    attention.mode = mode
    with torch.no_grad():
        found = attention(small)
        expected = reference_attention(attention, small, joint=mode == "literal")
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=0)


def test_switching_cca_on_changes_nothing_at_first(stack, sets, shift, generator):
    attention = randomised(WindowAttention(CHANNELS, HEADS, sets=sets, shift=shift), generator)
    with torch.no_grad():
        attention.gate.zero_()
        attention.mode = "off"
        before = attention(stack)
        attention.mode = "gated"
        assert torch.equal(attention(stack), before)


def test_an_open_gate_is_the_literal_form(stack, sets, shift, generator):
    attention = randomised(WindowAttention(CHANNELS, HEADS, sets=sets, shift=shift), generator)
    with torch.no_grad():
        attention.gate.fill_(1.0)
        attention.mode = "gated"
        gated = attention(stack)
        attention.mode = "literal"
        torch.testing.assert_close(gated, attention(stack), atol=1e-6, rtol=0)


def test_literal_cca_differs_from_the_independent_block_even_with_neutral_parameters(stack):
    """Why there is a gate: opening the softmax to six times the tokens is not a no-op."""
    attention = WindowAttention(CHANNELS, HEADS)
    torch.nn.init.eye_(attention.to_out.weight[0])
    with torch.no_grad():
        independent = attention(stack)
        attention.mode = "literal"
        assert (attention(stack) - independent).abs().max() > 0.1


@pytest.mark.parametrize("component", range(6))
def test_off_no_component_sees_another(stack, sets, component, generator):
    block = randomised(SwinBlock(CHANNELS, HEADS, sets=sets, shift=2), generator)
    changed = stack.clone()
    changed[:, component] += 1.0
    with torch.no_grad():
        before, after = block(stack), block(changed)
    others = [d for d in range(6) if d != component]
    assert torch.equal(before[:, others], after[:, others])
    assert (before[:, component] - after[:, component]).abs().max() > 0.1


@pytest.mark.parametrize("mode", ["gated", "literal"])
@pytest.mark.parametrize("component", range(6))
def test_on_every_component_sees_every_other(stack, sets, mode, component, generator):
    block = randomised(SwinBlock(CHANNELS, HEADS, sets=sets), generator)
    set_attention_mode(block, mode)
    changed = stack.clone()
    changed[:, component] += torch.randn(stack[:, component].shape, generator=generator)
    with torch.no_grad():
        difference = (block(stack) - block(changed)).abs().amax(dim=(0, 2, 3, 4, 5))
    assert bool((difference > 1e-4).all())


def test_windows_do_not_see_past_their_walls_and_shifted_ones_bridge_them(generator):
    size = (8, 8, 8)
    stack = torch.randn(1, 6, CHANNELS, *size, generator=generator)
    changed = stack.clone()
    changed[..., :4, :4, :4] += torch.randn(1, 6, CHANNELS, 4, 4, 4, generator=generator)
    reached = {}
    for shift in (0, 2):
        attention = randomised(WindowAttention(CHANNELS, HEADS, shift=shift), generator)
        attention.mode = "literal"
        with torch.no_grad():
            reached[shift] = (attention(stack) - attention(changed)).abs().amax(dim=(0, 1, 2)) > 0
    assert not reached[0][4:].any()
    assert reached[2][4:6, :6, :6].any()
    assert not reached[2][6:].any(), "the far side of the head is not next to the near one"


def test_the_joint_bias_is_one_array_of_position_plus_direction(sets, generator):
    attention = randomised(WindowAttention(CHANNELS, HEADS, sets=sets), generator)
    bias = attention.joint_bias().detach().unflatten(1, (6, 64)).unflatten(3, (6, 64))
    assert bias.shape == (HEADS, 6, 64, 6, 64)
    for d, e in ((0, 0), (3, 1), (5, 2)):
        spatial = attention.position_bias[d % sets][:, attention.positions]
        torch.testing.assert_close(bias[:, d, :, e], (spatial + attention.direction_bias[:, d, e, None, None]).detach())


@pytest.mark.parametrize("mode", ["off", "gated", "literal"])
def test_gradients_reach_every_parameter_that_the_mode_uses(stack, sets, shift, mode, generator):
    block = randomised(SwinBlock(CHANNELS, HEADS, sets=sets, shift=shift), generator)
    set_attention_mode(block, mode)
    block(stack).square().mean().backward()
    joint = {"mix_query", "mix_key", "mix_value", "direction_bias"}
    unused = {"off": joint | {"gate"}, "gated": set(), "literal": {"gate"}}[mode]
    for name, parameter in block.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.abs().max() > 0)
        assert reached == (name.rsplit(".", 1)[-1] not in unused), name


def test_at_the_switch_the_gate_itself_has_a_gradient(stack, generator):
    block = randomised(SwinBlock(CHANNELS, HEADS), generator)
    set_attention_mode(block, "gated")
    with torch.no_grad():
        block.attention.gate.zero_()
    block(stack).square().mean().backward()
    assert bool((block.attention.gate.grad.abs() > 0).all())


def test_attention_in_bfloat16_autocast_stays_near_float32(stack, shift, generator):
    block = randomised(SwinBlock(CHANNELS, HEADS, shift=shift), generator, scale=0.1)
    set_attention_mode(block, "gated")
    with torch.no_grad():
        exact = block(stack)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            coarse = block(stack)
    assert float((coarse - exact).abs().mean() / exact.abs().mean()) < 0.01
