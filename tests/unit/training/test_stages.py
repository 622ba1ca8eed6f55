import pytest
import torch

from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.experiments.ablated import AblatedMethod
from tensorldm.training.objectives import ReconstructionObjective
from tensorldm.training.stages import (
    STAGES,
    attention_mode,
    joint_modes,
    make_optimizer,
    set_trainable,
    settings_of,
    switch_decoders,
)

MOE = "model.decoder_condition=moe"
EXPECTING = "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}"
STAGE_0 = "stages.0={steps: 1, box: [16, 16, 16], lem_weight: 0.5}"
MIXING = ("mix_query", "mix_key", "mix_value")
CODEBOOK = ("codebook", "counts", "sums", "updates")
MOVES = {
    0: ("expectation.",),
    1: ("autoencoder.", "spread."),
    2: ("autoencoder.", "spread."),
    3: ("autoencoder.decoder.",),
    4: ("unet.", "experts."),
    5: ("unet.",),
}
"""What each stage may change, by the start of a name; Stage 0 is not in the paper."""
FORMS = {
    "paper": ("model.autoencoder.conditioner=paper",),
    "directional": (),
    "expecting": (EXPECTING, STAGE_0),
    "spreading": (EXPECTING, STAGE_0, "model.spread_channels=4"),
}
STAGES_OF_FORMS = [(form, number) for form, known in FORMS.items() for number in STAGES if number or STAGE_0 in known]
MOVES_FOR_EXPERTS = {
    3: ("autoencoder.decoder.",),
    4: ("unet.", "experts.", "expert_levels.", "autoencoder.decoder.levels."),
    5: ("unet.", "expert_levels.", "autoencoder.decoder.levels."),
}
"""The same where the decoders read Φ^d from Stage 4 on."""


def _config(*overrides: str) -> RunConfig:
    return read_config(RunConfig, "smoke", overrides)


def _one_step(config: RunConfig, number: int, heads):
    """What a step of a stage changed, what was to move, and what of that got no gradient."""
    row = STAGES[number]
    model = build_model(config.model, seed=1)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():  # as after earlier stages: layers that start at zero would keep gradients from the others
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
    before_joint = (attention_mode(config.model.decoder_cca) if number > 3 else "off", "off")
    model.set_joint(*joint_modes(row, config.model, before=before_joint))
    switch_decoders(model, row, config=config.model)
    moving = set_trainable(model, row, config=config.model)
    optimizer, ordered = make_optimizer(moving, settings_of(config, number))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objective = row.objective(model, config, number).train()
    loss, _ = objective(heads.batch(seed=0, position=0, size=2), torch.arange(2))
    loss.backward()
    without = [name for name, parameter in ordered.items() if parameter.grad is None]
    optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    return changed, moving, without


@pytest.mark.parametrize(("form", "number"), STAGES_OF_FORMS)
def test_a_step_changes_what_its_stage_trains_and_not_one_other_parameter_or_buffer(number, form, heads):
    config = _config(*FORMS[form])
    changed, moving, _ = _one_step(config, number, heads)
    codebook = {name for name in changed if name.endswith(CODEBOOK)}
    assert changed - codebook <= set(moving)
    assert all(name.startswith(MOVES[number]) for name in changed)
    assert len(changed & set(moving)) >= 0.9 * len(moving)
    assert bool(codebook) == (number in (1, 2))


@pytest.mark.parametrize("number", [1, 2])
def test_the_spread_learns_with_the_autoencoder_from_its_own_loss_alone(number, heads, monkeypatch):
    config = _config(*FORMS["spreading"])
    changed, moving, _ = _one_step(config, number, heads)
    spread = {name for name in moving if name.startswith("spread.")}
    assert spread
    assert spread <= changed
    monkeypatch.setattr(ReconstructionObjective, "SPREAD_WEIGHT", 0.0)
    changed, _, _ = _one_step(config, number, heads)
    assert not spread & changed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", MOVES_FOR_EXPERTS)
def test_of_an_autoencoder_whose_decoders_read_the_experts_phase_2_changes_film_alone(number, form, heads):
    changed, moving, without = _one_step(_config(*FORMS[form], MOE), number, heads)
    assert changed <= set(moving), "no buffer either: codebook, counts and the latents' scale stay"
    assert all(name.startswith(MOVES_FOR_EXPERTS[number]) for name in changed)
    assert without == []
    model = build_model(_config(*FORMS[form], MOE).model)
    film = {name for name, _ in model.autoencoder.named_parameters(prefix="autoencoder") if ".film." in name}
    of_autoencoder = {name for name in changed if name.startswith("autoencoder.")}
    assert film
    assert (of_autoencoder == film) is (number > 3)
    assert any(name.startswith("expert_levels.") for name in changed) is (number > 3)


@pytest.mark.parametrize("number", [4, 5])
def test_what_phase_2_trains_without_the_option_is_what_it_trains_with_it_less_the_decoders(number):
    plain, moe = (
        set(set_trainable(build_model(config.model), STAGES[number], config=config.model))
        for config in (_config(), _config(MOE))
    )
    assert plain < moe
    assert all(".film." in name or name.startswith("expert_levels.") for name in moe - plain)
    assert not any(name.startswith("autoencoder.") for name in plain)


def test_without_pretraining_the_decoders_learn_to_read_the_experts_too():
    config = _config(MOE)
    work = AblatedMethod("no-pretrain").prepare(config, 5, start=None)
    moving = {name for part in work.parts for name in part.moving}
    assert work.model.decoder_reads == "moe"
    assert {name.partition(".")[0] for name in moving} == {"autoencoder", "unet", "experts", "expert_levels"}


@pytest.mark.parametrize(("form", "number"), STAGES_OF_FORMS)
@pytest.mark.parametrize("cca", ["gated", "literal", "none"])
def test_every_parameter_that_a_stage_trains_is_in_use(number, cca, form, heads):
    config = _config(*FORMS[form], f"model.decoder_cca={cca}", f"model.unet_cca={cca}")
    _, _, without_gradient = _one_step(config, number, heads)
    assert without_gradient == []


def test_stage_3_trains_attention_blocks_output_layers_and_fusion_alone(heads):
    config = _config()
    moving = set_trainable(build_model(config.model), STAGES[3], config=config.model)
    parts = {name.removeprefix("autoencoder.decoder.").split(".")[0] for name in moving}
    assert parts == {"levels", "fusion", "norm", "head"}
    assert all(".attention." in name for name in moving if ".levels." in name)


def test_stage_5_trains_attention_and_film_alone_and_nothing_of_the_time_path(heads):
    config = _config()
    moving = set_trainable(build_model(config.model), STAGES[5], config=config.model)
    assert moving
    assert all(".attention." in name or ".film." in name for name in moving)
    kinds = {name.rsplit(".attention.", 1)[1].split(".")[0] for name in moving if ".attention." in name}
    assert kinds == {"to_qkv", "to_out", "position_bias", *MIXING, "direction_bias", "gate"}


def test_the_uniform_ablation_leaves_no_gate_of_the_experts_to_one_step(heads):
    config = _config("model.unet.routing=uniform")
    _, moving, without_gradient = _one_step(config, 4, heads)
    assert not any(name.startswith("experts.gate") for name in moving)
    assert without_gradient == []


def test_gates_have_their_own_rate_and_only_matrices_decay():
    config = _config("stages.3.weight_decay=0.5", "stages.3.gate_learning_rate=0.7")
    moving = set_trainable(build_model(config.model), STAGES[3], config=config.model)
    optimizer, ordered = make_optimizer(moving, settings_of(config, 3))
    names = {id(parameter): name for name, parameter in ordered.items()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gate = names[id(parameter)].endswith("attention.gate")
            assert (group["lr"] == 0.7) == gate
            assert (group["weight_decay"] == 0.5) == names[id(parameter)].endswith(".weight")
    assert [names[id(p)] for group in optimizer.param_groups for p in group["params"]] == list(ordered)
