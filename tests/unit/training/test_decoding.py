"""Phase II where the decoders learn to read the experts' mixture: the loss by hand, what is kept, what is learned."""

import pytest
import torch
from einops import rearrange, repeat

from tensorldm.batch import Batch
from tensorldm.build import build_model, build_scaling
from tensorldm.bundle import BundleInfo
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.experiments.inside import Opened, autoencode
from tensorldm.model import TensorLDM
from tensorldm.networks.layers import enlarge
from tensorldm.training.objectives import DecodingObjective, DenoisingObjective, l1
from tensorldm.training.paper_stage import PaperStage
from tensorldm.training.stages import STAGES, make_optimizer, set_trainable, settings_of, switch_decoders
from tensorldm.training.streams import join, split

EXPECTING = (
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
    "stages.0={steps: 1, box: [16, 16, 16]}",
)
FORMS = {
    "paper": ("model.autoencoder.conditioner=paper",),
    "directional": (),
    "expecting": EXPECTING,
    "spreading": (*EXPECTING, "model.spread_channels=4"),
}


@pytest.fixture(params=FORMS)
def config(request) -> RunConfig:
    return read_config(RunConfig, "smoke", ("model.decoder_condition=moe", *FORMS[request.param]))


def _model(config: RunConfig) -> TensorLDM:
    """All layers at work, the latents' scale and the codebooks as if measured and frozen."""
    model, random = build_model(config.model, seed=1), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
    model.latent_mean.normal_(generator=random)
    model.latent_spread.uniform_(0.5, 2.0, generator=random)
    switch_decoders(model, STAGES[4], config=config.model)
    set_trainable(model, STAGES[4], config=config.model)
    return model


def _objective(model: TensorLDM, config: RunConfig, kind: type[DenoisingObjective] = DecodingObjective, **known):
    return kind(model, scaling=build_scaling(config.model), seed=3, stage=4, **{"summed": False, **known})


@torch.no_grad()
def _by_hand(model: TensorLDM, config: RunConfig, batch: Batch) -> float:
    """E4 of the nearest codes decoded with every level's FiLM reading the experts' mixture, mean over subjects."""
    target = build_scaling(config.model).scale(batch.components)
    features = model.scan_features(**batch.scan)
    expected = 0.0 if features.expected is None else features.expected
    spread = 1.0 if features.spread is None else features.spread
    differences = (target - expected) / spread
    groups = []
    for group, encoder, quantizer in zip(
        (slice(0, 3), slice(3, 6)), model.autoencoder.encoders, model.autoencoder.quantizers, strict=True
    ):
        raw = rearrange(encoder(differences[:, group]), "b s f x y z -> b s x y z f")
        nearest = torch.cdist(raw.flatten(0, -2), quantizer.codebook).argmin(dim=1)
        groups.append(rearrange(quantizer.codebook[nearest].reshape(raw.shape), "b s x y z f -> b s f x y z"))
    mixed = model.experts(features, model.unet.component_embedding.flat_vectors())
    narrow = model.expert_levels.narrow
    levels = [enlarge(each(mixed), 2 ** (len(narrow) - 1 - index)) for index, each in enumerate(narrow)]
    decoded = expected + spread * model.autoencoder.decoder(torch.cat(groups, dim=1), levels)
    inside = repeat(batch.mask, "b x y z -> b d x y z", d=6)
    errors = [(d - t)[m].abs().sum() / m[0].sum() for d, t, m in zip(decoded, target, inside, strict=True)]
    return float(torch.stack(errors).mean())


@pytest.mark.parametrize("summed", [False, True])
def test_the_loss_is_that_of_the_noise_and_the_error_of_decoding_the_nearest_codes(summed, config, heads):
    model, batch, positions = _model(config), heads.batch(seed=0, position=0, size=2), torch.arange(2)
    with torch.no_grad():
        loss, logs = _objective(model, config, summed=summed)(batch, positions)
        noise, _ = _objective(model, config, DenoisingObjective, summed=summed)(batch, positions)
    by_hand = _by_hand(model, config, batch)
    assert by_hand > 0.1
    assert float(logs["reconstruction"]) == pytest.approx(by_hand, rel=1e-3)  # one latent between two codes may differ
    assert float(loss) == pytest.approx(float(noise) + float(logs["reconstruction"]), rel=1e-6)


def test_the_loss_of_a_batch_is_the_mean_of_its_samples(config, heads):
    objective = _objective(_model(config), config)
    subjects = split(heads.batch(seed=0, position=0, size=2))
    with torch.no_grad():
        together, _ = objective(join(subjects), torch.tensor([0, 1]))
        alone = [objective(subject, torch.tensor([i]))[0] for i, subject in enumerate(subjects)]
    assert float(together) == pytest.approx(float(sum(alone)) / 2, rel=1e-4)


def test_what_is_remembered_stays_right_while_the_experts_learn(config, heads):
    """Latents, pooled features and the expectation are kept; the mixture is of the experts as they are now."""
    model, batch, positions = _model(config), heads.batch(seed=0, position=0, size=2), torch.arange(2)
    remembering, fresh = _objective(model, config), _objective(model, config)
    remembering.encoded.remember = 2
    losses = []
    with torch.no_grad():
        for _ in range(3):
            losses.append(float(remembering(batch, positions)[0]))
            assert losses[-1] == pytest.approx(float(fresh(batch, positions)[0]), rel=1e-5)
            for parameter in (*model.experts.parameters(), *model.expert_levels.parameters()):
                parameter.mul_(1.3)
    assert len(set(losses)) == 3
    features = remembering.encoded(batch)[1]
    assert features.fused == (), "Φ_X is not kept"
    assert (features.expected is None) == (config.model.expectation is None)


def test_the_decoders_learn_from_their_own_error_and_the_unet_from_the_noise_alone(config, heads):
    model = _model(config)
    batch, positions = heads.batch(seed=0, position=0, size=1), torch.arange(1)
    parts = {
        "unet": model.unet.up_levels,
        "decoders": model.expert_levels,
        "experts": model.experts,
        "gates": model.experts.gate,
    }
    heard = {}
    loss, logs = _objective(model, config)(batch, positions)
    clean, features = _objective(model, config).encoded(batch)
    objective = _objective(model, config)
    noise = objective.evaluate(*objective.noised(clean, features, batch=batch, positions=positions)).loss
    for name, error in (("noise", noise), ("decoding", loss - noise)):
        model.zero_grad(set_to_none=True)
        error.backward(retain_graph=True)
        heard[name] = {
            part
            for part, module in parts.items()
            if any(p.grad is not None and p.grad.abs().max() > 1e-7 for p in module.parameters())
        }
    assert logs["reconstruction"] > 0
    assert heard == {"noise": {"unet", "experts", "gates"}, "decoding": {"decoders", "experts", "gates"}}


def test_a_model_whose_decoders_keep_the_anatomy_has_no_such_objective(config):
    model = _model(config)
    model.set_decoder_condition("anatomy")
    with pytest.raises(AssertionError, match="nothing to learn"):
        _objective(model, config)


def test_a_few_steps_teach_decoders_that_knew_the_anatomy_to_read_the_experts(config, heads):
    """The switch itself costs: the decoders do not understand at first. What they learn then is of the scan."""
    model = build_model(config.model, seed=1)
    both = heads.batch(seed=0, position=0, size=2)
    _train(model, config, stage=2, steps=60, batch=both)
    known = _error(model, config, both)
    switch_decoders(model, STAGES[4], config=config.model)
    puzzled = _error(model, config, both)
    _train(model, config, stage=4, steps=60, batch=both)
    learned = _error(model, config, both)
    for narrow in model.expert_levels.narrow:
        torch.nn.init.zeros_(narrow.weight)
    silent = _error(model, config, both)
    print(f"Φ_X {known:.3f}, at the switch {puzzled:.3f}, learned {learned:.3f}, then told nothing {silent:.3f}")
    assert known < 0.9 * puzzled
    assert learned < 0.8 * puzzled
    assert learned < 0.95 * silent


def _train(model: TensorLDM, config: RunConfig, *, stage: int, steps: int, batch: Batch) -> None:
    row = STAGES[stage]
    moving = set_trainable(model, row, config=config.model)
    # Adam's decoders lean on the anatomy, which is what the switch takes from them.
    settings = settings_of(config, stage).model_copy(update={"optimizer": "adamw", "learning_rate": 4e-3})
    optimizer, _ = make_optimizer(moving, settings)
    objective = row.objective(model, config, stage).train()
    for step in range(steps):
        loss, _ = objective(batch, torch.arange(2 * step, 2 * step + 2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def _error(model: TensorLDM, config: RunConfig, batch: Batch) -> float:
    """E4 of decoding the reference's latents."""
    target, features = build_scaling(config.model).scale(batch.components), model.eval().scan_features(**batch.scan)
    x, y, z = batch.mask.shape[1:]
    decoded = model.decode(model.encode(target, features), features, size=(x, y, z))
    return float(l1(decoded, target, mask=batch.mask).mean())


@pytest.mark.parametrize("number", [4, 5])
def test_validation_inside_training_decodes_with_the_experts(number, config, heads):
    stage = PaperStage(config, STAGES[number], start=None)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in stage.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
        batch = heads.batch(seed=0, position=0, size=1)
        sound = stage.reconstruct(batch, torch.tensor([0]))
        _spoil_the_anatomy(stage.model)
        assert torch.equal(stage.reconstruct(batch, torch.tensor([0])), sound)
        stage.model.set_decoder_condition("anatomy")
        assert stage.reconstruct(batch, torch.tensor([0])).isnan().any()


def test_a_study_of_autoencoded_references_decodes_as_the_model_samples(config, heads):
    model, batch = _model(config).eval(), heads.batch(seed=0, position=0, size=1)
    info = BundleInfo(model=config.model, weights_sha256="")
    sound = autoencode(Opened(model, info, batch))
    _spoil_the_anatomy(model)
    assert torch.equal(autoencode(Opened(model, info, batch)), sound)
    model.set_decoder_condition("anatomy")
    assert autoencode(Opened(model, info, batch)).isnan().any()


@torch.no_grad()
def _spoil_the_anatomy(model: TensorLDM) -> None:
    """Φ_X is no number from here on."""
    for fuse in model.autoencoder.conditioner.fuse:
        fuse.weight.fill_(torch.nan)
