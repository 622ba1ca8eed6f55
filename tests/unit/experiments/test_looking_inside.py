"""What is read out of a model is what the model itself uses, on the grid and in the axes of the subject."""

import math

import numpy as np
import pytest
import torch

from tensorldm.baselines.analytic import analytic_method
from tensorldm.bundle import load_bundle
from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.errors import DataError
from tensorldm.experiments.batching import prepare
from tensorldm.experiments.config import GroupConfig
from tensorldm.experiments.inside import Opened, autoencode, probe_moments, routing
from tensorldm.experiments.linear_probe import moments
from tensorldm.experiments.loading import load
from tensorldm.experiments.measuring import SubjectWork
from tensorldm.experiments.methods import Workbench, method_settings, write_method
from tensorldm.experiments.parts import Results
from tensorldm.experiments.subjects import gather
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.tensor_files import read_provenance, read_tensor
from tensorldm.imaging.volume import Volume
from tensorldm.reconstruct.choice import choose
from tensorldm.reconstruct.plan import make_plan


@pytest.fixture(scope="module")
def subject(scans, tmp_path_factory):
    results = Results(tmp_path_factory.mktemp("study"))
    group = GroupConfig(scans=(scans[0],))
    (found,) = gather("real", group, results=results, seed=0, tell=lambda _: None)
    return found


@pytest.fixture(scope="module")
def work(subject, tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    return SubjectWork(subject, folder, Workbench(torch.device("cpu")), tell=lambda _: None)


@pytest.fixture(scope="module")
def opened(work, bundle):
    return work.opened(bundle)


def test_the_batch_is_what_reconstruct_gives_its_engine(work, bundle, monkeypatch):
    """Same four volumes, same axes, same scale: a model looked into is a model as it is used."""
    from tensorldm.experiments.config import MethodConfig
    from tensorldm.reconstruct import model_engine

    seen = {}

    def watch(self, scan):
        seen["scan"] = scan
        raise DataError("seen")

    monkeypatch.setattr(model_engine.ModelEngine, "estimate", watch)
    settings = method_settings(MethodConfig(bundle=bundle), work.loaded, seed=0)
    with pytest.raises(DataError, match="seen"):
        work.bench.reconstruct(work.loaded, bundle, settings=settings)
    scan, batch = seen["scan"], work.prepared.batch
    assert torch.equal(batch.mask[0], scan.mask)
    assert torch.allclose(batch.dwi[0], (scan.dwi / scan.b0_scale).float(), rtol=1e-5, atol=1e-6)
    assert torch.allclose(batch.bvals[0], scan.bvals.float())
    assert torch.allclose(batch.directions[0], scan.directions.float())
    assert batch.voxel_size[0].tolist() == pytest.approx(scan.voxel_size)


def test_a_tensor_comes_back_from_the_batch_as_it_went_there(work):
    reference = read_tensor(work.reference("ols")).data
    inside = work.loaded.scan.mask
    back = work.prepared.to_native(work.prepared.batch.components, work.loaded)
    assert np.allclose(back[inside], reference[inside], rtol=1e-5, atol=1e-10)
    assert not back[~inside].any()


def test_the_batch_turns_tensors_with_its_axes(work):
    """LAS to RAS mirrors x: the tensors' xy and xz change sign, and with the directions the signal stays explained."""
    batch, scan = work.prepared.batch, work.loaded.scan
    reference = read_tensor(work.reference("ols")).data
    whole = work.prepared.grid
    xy = whole.forward(Volume(np.ascontiguousarray(reference[..., 3]), scan.space)).data
    assert np.allclose(batch.components[0, 3].numpy()[batch.mask[0].numpy()], -xy[batch.mask[0].numpy()], atol=1e-9)
    plan = make_plan(scan.space, scan.gradients, traits=choose(method="minimum-norm").traits, settings=_plain())
    assert isinstance(plan.gradients, GradientTable)
    assert tuple(work.prepared.volumes) == plan.used


def _plain():
    from tensorldm.reconstruct.settings import Settings

    return Settings()


def test_other_voxels_than_2_mm_are_refused_with_what_to_do(subject, tmp_path, monkeypatch):
    loaded = load(subject, tmp_path)
    from dataclasses import replace

    from tensorldm.imaging.volume import Space

    thick = replace(loaded.scan, space=Space(loaded.scan.space.shape, np.diag([-3.0, 3.0, 3.0, 1.0])))
    odd = replace(loaded, scan=thick)
    with pytest.raises(DataError, match="grid: 2mm"):
        prepare(odd, np.zeros((*thick.space.shape, 6), dtype=np.float32))


def test_shares_of_the_experts_sum_to_one_and_their_entropy_is_that_of_the_shares(opened):
    found = routing(opened)
    for component in ("Dxx", "Dyy", "Dzz", "Dxy", "Dxz", "Dyz"):
        shares = [found[component, f"weight_{name}"] for name in ("b0", "x", "y", "z")]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
        assert found[component, "entropy_nats"] == pytest.approx(-sum(p * math.log(p) for p in shares))
        assert found[component, "entropy_nats"] <= math.log(4) + 1e-9


def test_without_a_mixture_every_share_is_a_quarter(work, make_bundle):
    even = routing(work.opened(make_bundle(3, "model.unet.routing=uniform")))
    assert {round(value, 6) for (_, metric), value in even.items() if metric != "entropy_nats"} == {0.25}
    assert even["Dxy", "entropy_nats"] == pytest.approx(math.log(4))


def test_the_probe_sees_every_voxel_of_the_brain_with_its_own_fa(opened):
    found = probe_moments(opened)
    batch = opened.batch
    fa = fractional_anisotropy(batch.components[0].movedim(0, -1).double())[batch.mask[0]]
    for kind in ("features", "latents"):
        assert found[kind, "r2_voxel"].count == int(batch.mask.sum())
        assert found[kind, "r2_voxel"].target_mean == pytest.approx(float(fa.mean()))
    cells = int(opened.model.latent_mask(batch.mask).sum())
    assert found["latents", "r2_cell"].count == found["features", "r2_cell"].count == cells


def test_a_voxel_is_told_the_latent_of_the_cell_it_lies_in(opened):
    """Against nearest upsampling of the whole grid."""
    size, mask = opened.model.compression, opened.batch.mask[0]
    latents = opened.latents[0].flatten(0, 1)
    upsampled = torch.nn.functional.interpolate(latents[None], scale_factor=size, mode="nearest")[0]
    x, y, z = mask.shape
    features = upsampled[:, :x, :y, :z].movedim(0, -1)[mask]
    fa = fractional_anisotropy(opened.batch.components[0].movedim(0, -1).double())[mask]
    expected, found = moments(features, fa), probe_moments(opened)["latents", "r2_voxel"]
    assert torch.allclose(found.feature_mean, expected.feature_mean)
    assert torch.allclose(found.feature_target, expected.feature_target)


def test_a_voxel_is_told_the_features_of_where_it_lies_in_a_model_that_begins_at_half_resolution_too(
    work, bundle, make_bundle
):
    """Against nearest upsampling of every level to the grid of the scan."""
    halved = make_bundle(
        3,
        "model.autoencoder.patch=2",
        "model.autoencoder.encoder_channels=[8, 12]",
        "model.autoencoder.conditioner_channels=[6, 8]",
        "model.autoencoder.decoder_channels=[8, 8]",
        "model.autoencoder.attention_levels=[1]",
    )
    for opened in (work.opened(bundle), work.opened(halved)):
        mask = opened.batch.mask[0]
        wide = [-(-side // opened.model.side_multiple) * opened.model.side_multiple for side in mask.shape]
        levels = [torch.nn.functional.interpolate(level[:, 0], size=wide) for level in opened.features.fused]
        x, y, z = mask.shape
        expected = torch.cat(levels, dim=1)[0, :, :x, :y, :z].movedim(0, -1)[mask].double().mean(dim=0)
        assert torch.allclose(probe_moments(opened)["features", "r2_voxel"].feature_mean, expected)


def test_autoencoding_is_the_models_own_decoding_of_the_references_latents(opened, bundle):
    model, info = load_bundle(bundle)
    again = Opened(model, info, opened.batch)
    found = autoencode(opened)
    assert torch.equal(found, autoencode(again))
    assert not found[:, :, ~opened.batch.mask[0]].any()
    with torch.inference_mode():
        decoded = model.decode(opened.latents, again.features, size=tuple(opened.batch.mask.shape[1:]))
    scale = torch.tensor(model.component_scales)[None, :, None, None, None]
    assert torch.allclose(found, decoded * scale * opened.batch.mask[:, None], rtol=1e-5)


def test_a_model_can_be_given_the_volumes_of_a_fit(work, make_bundle, tmp_path, monkeypatch):
    """Then it sees those and no others, and its sidecar counts them in the whole series."""
    from tensorldm.experiments.config import MethodConfig
    from tensorldm.reconstruct import model_engine

    seen, estimate = [], model_engine.ModelEngine.estimate
    monkeypatch.setattr(
        model_engine.ModelEngine, "estimate", lambda self, scan: (seen.append(scan), estimate(self, scan))[1]
    )
    told = make_bundle(3, "model.autoencoder.conditioner=directional")
    fit = analytic_method("ols-6").reconstruct(work.loaded.scan)
    write_method(
        work.loaded,
        MethodConfig(bundle=told, sees="ols-6", steps=1),
        tmp_path / "six.nii.gz",
        label="six",
        seed=0,
        bench=work.bench,
    )
    assert sorted(read_provenance(tmp_path / "six.nii.gz").volumes) == sorted(fit.volumes)
    assert seen[0].bvals.tolist() == [0] + 6 * [1000]
    with pytest.raises(ValueError, match="only a bundle"):
        MethodConfig(analytic="ade", sees="ols-6")
    with pytest.raises(ValueError, match="no analytic method 'ols-7'"):
        MethodConfig(bundle=told, sees="ols-7")
