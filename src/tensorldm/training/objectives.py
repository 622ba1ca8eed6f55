"""What each stage minimises [E4, E5, E8, E10]. An objective is the module that is wrapped for training.

``forward(batch, positions)`` gives the loss and numbers to log. Randomness is drawn per sample, from the seed and the
sample's position in the stage, so a loss depends neither on the batch size nor on the number of processes; and it is
a mean over subjects, so that the mean over processes is the loss of the joined batch.
Axes: b batch, d component (6), f latent channel, x y z space.
"""

import torch
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from tensorldm.batch import Batch, beside
from tensorldm.components import DIAGONAL
from tensorldm.config.training import ErrorKind
from tensorldm.data.scaling import TensorScaling
from tensorldm.diffusion import add_noise, prediction_target
from tensorldm.dti.logarithm import log_continued
from tensorldm.dti.packing import frobenius
from tensorldm.model import TensorLDM
from tensorldm.networks.conditioner import ScanFeatures
from tensorldm.networks.spread import surprise
from tensorldm.rng import generator
from tensorldm.scan_facts import ScanFacts
from tensorldm.shapes import Components, Latents, Masks
from tensorldm.training.encoded import Encoded
from tensorldm.training.recording import Evaluated, Gathered, Logs, Recordable

Positions = Int[Tensor, " b"]
PerSubject = Float[Tensor, " b"]


class ExpectationObjective(Recordable):
    """Stage 0: the error of the expected tensor, of each component and of its logarithm [choice: expectation]."""

    THIN = 2

    def __init__(
        self, model: TensorLDM, *, scaling: TensorScaling, lem_weight: float = 0.0, error: ErrorKind = "absolute"
    ) -> None:
        super().__init__()
        self.model, self.scaling, self.lem_weight, self.error = model, scaling, lem_weight, error
        self.distance = log_distance

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """What the network reads, the reference, the mask, and which voxel of each cube has its logarithm taken."""
        facts = self.model.facts(**batch.scan).on_device()
        chosen = beside(one_hot(positions % self.THIN**3, self.THIN**3).float(), batch.mask)
        return facts["known"], facts["described"], batch.components, batch.mask, chosen

    def evaluate(
        self,
        known: Float[Tensor, "b a _ _ _"],
        described: Float[Tensor, "b k"],
        components: Components,
        mask: Masks,
        chosen: Float[Tensor, "b p"],
    ) -> Evaluated:
        """Loss of regressing the reference tensors."""
        assert self.model.expectation is not None, "this model has no expectation"
        x, y, z = mask.shape[1:]
        expected = (self.model.expectation.one_way(known, described)[..., :x, :y, :z] * mask[:, None]).float()
        target = self.scaling.scale(components)
        regression = component_error(expected, target, mask=mask, kind=self.error).mean()
        distance = self._log_distance(expected, components, mask=mask, chosen=chosen).mean()
        loss = regression + self.lem_weight * distance
        return Evaluated(loss, {"regression": regression.detach(), "log_distance": distance.detach()})

    def _log_distance(
        self, expected: Components, components: Components, *, mask: Masks, chosen: Float[Tensor, "b p"]
    ) -> PerSubject:
        """Of every eighth voxel: logarithms of millions of tensors would take half the time.

        Which ones depends on the sample's position, so that eight samples in a row have all of them, whatever the size
        of a batch: a network that takes cubes of voxels as one gives each voxel of a cube by weights of its own.
        """
        guess, reference = self.scaling.unscale(expected), components.to(expected.dtype)
        inside = rearrange(mask, "b x y z -> b 1 x y z").to(expected.dtype)
        guess, reference, inside = (self._thinned(volumes, chosen) for volumes in (guess, reference, inside))
        return self.distance(guess, reference, mask=rearrange(inside, "b 1 x y z -> b x y z") > 0)

    def _thinned(self, volumes: Float[Tensor, "b d _ _ _"], chosen: Float[Tensor, "b p"]) -> Float[Tensor, "b d _ _ _"]:
        """The chosen voxel of every cube: as a sum over all of them, in whose gradient no index need be sorted."""
        side = self.THIN
        cubes = rearrange(volumes, "b d (x p) (y q) (z r) -> b (p q r) d x y z", p=side, q=side, r=side)
        return (cubes * rearrange(chosen, "b p -> b p 1 1 1 1")).sum(dim=1)


class ReconstructionObjective(Recordable):
    """Stages 1 and 2: E4 and the commitment to the codebook. With ``lem_weight`` Stage 3: E5.

    Where the model has a spread, its own likelihood besides; nothing else hears of that.
    """

    SPREAD_WEIGHT = 0.1
    """So that its gradient is no larger than the others' when their norm is clipped together."""

    def __init__(self, model: TensorLDM, *, scaling: TensorScaling, lem_weight: float = 0.0) -> None:
        super().__init__()
        self.model, self.scaling, self.lem_weight = model, scaling, lem_weight

    def gather(self, batch: Batch, positions: Positions) -> Gathered:  # noqa: ARG002  nothing is drawn
        """The scan, the reference and the mask."""
        return self.model.facts(**batch.scan).on_device(), batch.components, batch.mask

    def evaluate(self, facts: dict[str, Tensor], components: Components, mask: Masks) -> Evaluated:
        """Loss of encoding and decoding the reference tensors."""
        target = self.scaling.scale(components)
        features = self.model.features_of(ScanFacts(**facts))
        result = self.model.autoencoder(
            target,
            features,
            condition=self.model.decoder_condition(features),
            inside=self.model.latent_mask(mask),
        )
        decoded = result.components.float()
        reconstruction = l1(decoded, target, mask=mask).mean()
        loss = reconstruction + result.commitment
        logs = {
            "reconstruction": reconstruction.detach(),
            "commitment": result.commitment.detach(),
            "perplexity_diagonal": result.perplexity[0],
            "perplexity_off_diagonal": result.perplexity[1],
        }
        if features.spread is not None and features.spread.requires_grad:
            assert features.expected is not None
            difference = (target - features.expected).detach()
            surprised = surprise(difference, features.spread, mask=mask).mean()
            loss = loss + self.SPREAD_WEIGHT * surprised
            logs["surprise"] = surprised.detach()
        if self.lem_weight:
            distance = log_distance(self.scaling.unscale(decoded), components.to(decoded.dtype), mask=mask).mean()
            loss = loss + self.lem_weight * distance
            logs["log_distance"] = distance.detach()
        return Evaluated(loss, logs)


class DenoisingObjective(Recordable):
    """Stage 4 (E8: mean over components, each in isolation) and Stage 5 (E10: their sum, jointly denoised).

    One diffusion step for a subject [choice: diffusion-step]; every latent counts [choice: noise-loss].
    """

    draws = True

    def __init__(self, model: TensorLDM, *, scaling: TensorScaling, seed: int, stage: int, summed: bool) -> None:
        super().__init__()
        self.model, self.seed, self.stage, self.summed = model, seed, stage, summed
        self.encoded = Encoded(model, scaling)

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """Noisy latents at one diffusion step drawn for each subject, what to predict, and what the experts read."""
        clean, features = self.encoded(batch, comes_again=self.training)
        return self.noised(clean, features, batch=batch, positions=positions)

    def noised(self, clean: Latents, features: ScanFeatures, *, batch: Batch, positions: Positions) -> Gathered:
        """``gather`` of latents that are known."""
        steps, noise = self.draw(positions, clean)
        alpha_bar = self.model.schedule.gather(steps)
        noisy = add_noise(clean, noise, alpha_bar=alpha_bar)
        target = prediction_target(clean, noise, alpha_bar=alpha_bar, prediction=self.model.prediction)
        places = self.model.places(features, batch.centre, voxel_size=batch.voxel_size)
        return noisy, target, steps, features.pooled, features.gradients, *places

    def evaluate(
        self,
        noisy: Latents,
        target: Latents,
        steps: Int[Tensor, " b"],
        pooled: Float[Tensor, "b c _ x y z"],
        gradients: Float[Tensor, "b c v"],
        *places: Float[Tensor, "b _"],
    ) -> Evaluated:
        """E8 or E10: error of the prediction."""
        x, y, z = places
        condition = self.model.condition(ScanFeatures((), pooled, gradients=gradients), (x, y, z))
        predicted = self.model.denoise(noisy, steps, condition=condition).float()
        errors = reduce((predicted - target).square(), "b d f x y z -> b d", "mean")
        diagonal, off_diagonal = errors[:, :3].mean(), errors[:, 3:].mean()
        loss = errors.sum(dim=1).mean() if self.summed else errors.mean()
        return Evaluated(loss, {"error_diagonal": diagonal.detach(), "error_off_diagonal": off_diagonal.detach()})

    def draw(self, positions: Positions, like: Latents) -> tuple[Int[Tensor, " b"], Latents]:
        """Diffusion step and noise of each sample, drawn where they are used."""
        place, steps, noises = like.device, [], []
        for position in positions.tolist():
            random = generator(self.seed, "denoise", self.stage, position, device=place)
            steps.append(torch.randint(len(self.model.schedule), (1,), generator=random, device=place))
            noises.append(torch.randn(like.shape[1:], generator=random, device=place))
        return torch.cat(steps), torch.stack(noises)


class DecodingObjective(DenoisingObjective):
    """Stages 4 and 5 where the decoders read Φ^d: E8 or E10, and E4 of decoding the clean latents so.

    The decoders' part of the model gets gradients from E4 alone, the U-Net from the noise alone; only experts and
    gates hear both. The latents are quantised first, as those of a sample are. [choice: decoder-condition]
    """

    def __init__(self, model: TensorLDM, *, scaling: TensorScaling, seed: int, stage: int, summed: bool) -> None:
        super().__init__(model, scaling=scaling, seed=seed, stage=stage, summed=summed)
        assert model.decoder_reads == "moe", "decoders that read Φ_X have nothing to learn here"
        self.scaling = scaling
        self.encoded = Encoded(model, scaling, keeps_expected=True)

    def forward(self, batch: Batch, positions: Positions) -> tuple[Tensor, Logs]:
        """Sum of both errors."""
        clean, features = self.encoded(batch, comes_again=self.training)
        loss, logs, _ = self.replay(*self.noised(clean, features, batch=batch, positions=positions))
        x, y, z = batch.mask.shape[1:]
        decoded = self.model.decode(clean, features, size=(x, y, z)).float()
        reconstruction = l1(decoded, self.scaling.scale(batch.components), mask=batch.mask).mean()
        return loss + reconstruction, {**logs, "reconstruction": reconstruction.detach()}


def component_error(prediction: Components, target: Components, *, mask: Masks, kind: ErrorKind) -> PerSubject:
    """E4, or squared errors in the place of absolute ones [choice: squared-error].

    The many small errors outside the white matter then weigh less than the few large ones, which tell which way
    fibres run.
    """
    if kind == "absolute":
        return l1(prediction, target, mask=mask)
    return _masked_mean((prediction - target).square().sum(dim=1), mask)


def l1(prediction: Components, target: Components, *, mask: Masks) -> PerSubject:
    """E4: |error| summed over components, averaged over each subject's mask. [choice: reconstruction-loss]"""
    errors = (prediction - target).abs().sum(dim=1)
    return _masked_mean(errors, mask)


def log_distance(prediction: Components, target: Components, *, mask: Masks) -> PerSubject:
    """The Log-Euclidean term of E5 in mm²/s, averaged over the mask, with the log continued below its floor.

    Outside the mask both tensors are the same before the logarithm is taken: a mask after it would let the gradient
    of padding through as 0 · inf. [choice: lem-loss]
    """
    # Made on the device: a copy from the host would make both wait.
    filler = 1e-3 * (torch.arange(6, device=prediction.device) < len(DIAGONAL)).to(prediction.dtype)
    with torch.autocast(prediction.device.type, enabled=False):
        logs = [
            log_continued(torch.where(mask[..., None], rearrange(tensor, "b d x y z -> b x y z d"), filler))
            for tensor in (prediction, target)
        ]
        return _masked_mean(frobenius(logs[0] - logs[1]), mask)


def _masked_mean(values: Float[Tensor, "b x y z"], mask: Masks) -> PerSubject:
    inside = mask.to(values.dtype)
    return (values * inside).sum(dim=(1, 2, 3)) / inside.sum(dim=(1, 2, 3)).clamp_min(1)
