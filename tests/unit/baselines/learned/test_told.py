import pytest
import torch
from einops import rearrange

from tensorldm.baselines.learned.told import NUM_CHANNELS, NUM_IMAGES, SOLVED, gradient_channels, tell, tell_batch
from tensorldm.data.scaling import TensorScaling
from tensorldm.dti.analytic import minimum_norm
from tensorldm.errors import DataError

SCALES = TensorScaling().per_component


def _tell(batch, **changes):
    values = {
        "dwi": batch.dwi,
        "bvals": batch.bvals,
        "directions": batch.directions,
        "mask": batch.mask,
        "voxel_size": batch.voxel_size,
        **changes,
    }
    return tell(values.pop("dwi"), values.pop("bvals"), component_scales=SCALES, **values)


def test_a_rival_is_told_the_minimum_norm_tensor_in_network_units(heads):
    told = tell_batch(heads, SCALES)
    signal = rearrange(heads.dwi[1], "c x y z -> x y z c")
    packed = minimum_norm(signal, heads.bvals[1], heads.directions[1])
    wanted = rearrange(packed, "x y z d -> d x y z") / torch.tensor(SCALES).reshape(6, 1, 1, 1)
    inside = heads.mask[1]
    assert torch.allclose(told.channels[1, SOLVED][:, inside], wanted[:, inside], atol=1e-5)


def test_constant_channels_hold_b_times_the_outer_product_of_each_direction(heads):
    told = tell_batch(heads, SCALES)
    assert told.channels.shape[1] == NUM_CHANNELS
    gx, gy, gz = heads.directions[0, 2].tolist()
    by_hand = torch.tensor([gx * gx, gy * gy, gz * gz, gx * gy, gx * gz, gy * gz])
    second = told.channels[0, NUM_IMAGES + 4 + 6 : NUM_IMAGES + 4 + 12]
    assert torch.allclose(second[:, heads.mask[0]], by_hand[:, None].expand(-1, int(heads.mask[0].sum())), atol=1e-6)


def test_a_direction_and_its_opposite_tell_the_same(heads):
    assert torch.equal(_tell(heads).channels, _tell(heads, directions=-heads.directions).channels)


def test_another_b_value_is_heard(heads):
    told = gradient_channels(1.5 * heads.bvals, heads.directions, mask=heads.mask)
    plain = gradient_channels(heads.bvals, heads.directions, mask=heads.mask)
    assert torch.allclose(told, 1.5 * plain)


def test_nothing_is_told_from_outside_the_mask(heads):
    loud = torch.where(heads.mask[:, None], heads.dwi, 7.0)
    assert torch.equal(_tell(heads, dwi=loud).channels, _tell(heads).channels)
    assert (_tell(heads).channels * ~heads.mask[:, None]).abs().max() == 0


def test_another_number_of_volumes_is_refused_with_a_sentence(heads):
    five = torch.cat([heads.dwi, heads.dwi[:, :1]], dim=1)
    with pytest.raises(DataError, match="5 volumes where this method reads one b=0 and three directions"):
        _tell(
            heads,
            dwi=five,
            bvals=torch.cat([heads.bvals, heads.bvals[:, :1]], dim=1),
            directions=torch.cat([heads.directions, heads.directions[:, :1]], dim=1),
        )
