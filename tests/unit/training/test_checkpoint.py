import pytest
import torch
from torch import nn
from torch.optim import Adam

from tensorldm.errors import DataError
from tensorldm.training.checkpoint import (
    Checkpoint,
    checkpoints,
    load_optimizer_tensors,
    optimizer_tensors,
    read_newest,
    write_checkpoint,
)


def _checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"model/weight": torch.full((3,), float(step))}, {"best": None, "stage": 2})


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path):
    write_checkpoint(tmp_path, _checkpoint(7), keep=2)
    found = read_newest(tmp_path)
    assert found is not None
    assert found.step == 7
    assert found.numbers == {"best": None, "stage": 2}
    assert torch.equal(found.owned_by("model")["weight"], torch.full((3,), 7.0))


def test_only_the_newest_are_kept_in_order_of_their_steps(tmp_path):
    for step in (5, 50, 500, 1000):
        write_checkpoint(tmp_path, _checkpoint(step), keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000500", "step-00001000"]


def test_a_folder_that_was_being_written_when_the_run_was_killed_does_not_count(tmp_path):
    write_checkpoint(tmp_path, _checkpoint(5), keep=2)
    half = tmp_path / ".step-00000009.part"
    half.mkdir()
    (half / "state.safetensors").write_bytes(b"half of it")
    newest = read_newest(tmp_path)
    assert newest is not None
    assert newest.step == 5
    write_checkpoint(tmp_path, _checkpoint(9), keep=2)
    assert not half.exists()


def test_a_damaged_checkpoint_is_refused_with_what_to_do(tmp_path):
    path = write_checkpoint(tmp_path, _checkpoint(5), keep=2)
    (path / "state.safetensors").write_bytes(b"not a tensor file")
    with pytest.raises(DataError, match=r"step-00000005.*Delete this folder"):
        read_newest(tmp_path)


def test_no_checkpoint_yet_is_no_error(tmp_path):
    assert read_newest(tmp_path / "absent") is None


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_an_optimiser_goes_on_bit_for_bit_from_its_named_memory(kind):
    def parts():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        names = ["1.weight", "0.weight", "1.bias", "0.bias"]  # groups need not follow the module's order
        by_name = dict(network.named_parameters())
        groups = [{"params": [by_name[n] for n in names[:2]]}, {"params": [by_name[n] for n in names[2:]], "lr": 0.1}]
        return network, names, kind(groups, lr=0.01)

    def step(network, optimizer, value):
        network(torch.full((1, 3), value)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    network, names, optimizer = parts()
    step(network, optimizer, 1.0)
    weights, memory = {k: v.clone() for k, v in network.state_dict().items()}, optimizer_tensors(optimizer, names)
    memory = {name: value.clone() for name, value in memory.items()}
    step(network, optimizer, -2.0)

    resumed, names, other = parts()
    resumed.load_state_dict(weights)
    load_optimizer_tensors(other, names, tensors=memory)
    step(resumed, other, -2.0)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), resumed.parameters(), strict=True))


def test_memory_is_laid_out_like_its_parameter():
    """A fused step refuses anything else, and a file keeps no order in memory."""

    def parts():
        torch.manual_seed(0)
        network = nn.Conv3d(3, 4, 3).to(memory_format=torch.channels_last_3d)
        return network, Adam(network.parameters())

    (network, optimizer), names = parts(), ["weight", "bias"]
    network(torch.ones(1, 3, 4, 4, 4)).square().sum().backward()
    optimizer.step()
    memory = {name: value.contiguous().clone() for name, value in optimizer_tensors(optimizer, names).items()}
    resumed, other = parts()
    load_optimizer_tensors(other, names, tensors=memory)
    known = other.state[resumed.weight]
    assert not resumed.weight.is_contiguous()
    assert known["exp_avg"].stride() == known["exp_avg_sq"].stride() == resumed.weight.stride()
    assert torch.equal(known["exp_avg"], optimizer.state[network.weight]["exp_avg"])
