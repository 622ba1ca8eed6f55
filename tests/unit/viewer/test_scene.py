"""What is found below a folder, and what is compared with what."""

import json

import pytest

from tensorldm.errors import DataError
from tensorldm.viewer.scene import find_scene


def titles(scene):
    return [each.method for each in scene.shown]


def test_methods_in_folders_side_by_side_are_found(tmp_path, make_result, tensors):
    for method in ("ade", "model"):
        make_result(tmp_path / method, tensors(), method=method)
    assert titles(find_scene([tmp_path])) == ["ade", "model"]


def test_a_reference_is_known_by_its_folder(tmp_path, make_result, tensors):
    make_result(tmp_path / "model", tensors())
    make_result(tmp_path / "reference", tensors(), method="ols-90")
    scene = find_scene([tmp_path])
    ours, reference = scene.shown
    assert scene.reference_of(ours.key) == reference
    assert scene.reference_of(reference.key) is None


def test_a_named_reference_goes_before_the_folder_called_so(tmp_path, make_result, tensors):
    for folder in ("model", "reference", "better"):
        make_result(tmp_path / folder, tensors(), method=folder)
    scene = find_scene([tmp_path], reference=tmp_path / "better")
    model = next(each for each in scene.shown if each.method == "model")
    assert scene.reference_of(model.key).method == "better"


def test_nobody_is_compared_with_another_subject(tmp_path, make_result, tensors):
    for subject in ("anna", "bert"):
        make_result(tmp_path / subject / "model", tensors(), subject=subject)
        make_result(tmp_path / subject / "reference", tensors(), subject=subject)
    scene = find_scene([tmp_path])
    models = [each for each in scene.shown if each.folder.name == "model"]
    assert [scene.reference_of(each.key).subject for each in models] == ["anna", "bert"]


def test_scans_of_one_name_are_told_apart_by_their_folders(tmp_path, make_result, tensors):
    for name in ("monday", "tuesday"):
        make_result(tmp_path / name / "dwi", tensors(), subject="dwi")
    make_result(tmp_path / "other", tensors(), subject="other")
    scene = find_scene([tmp_path])
    assert [each.place for each in scene.shown] == ["monday/dwi", None, "tuesday/dwi"]


def test_unfinished_and_hidden_results_are_passed_over(tmp_path, make_result, tensors):
    make_result(tmp_path / "model", tensors())
    make_result(tmp_path / ".result.1234.part", tensors())
    assert len(find_scene([tmp_path]).shown) == 1


def test_bids_names_are_known_with_the_maps_beside_them(tmp_path, make_result, tensors):
    made = make_result(tmp_path, tensors())
    stem = "sub-01_model-DTI_param-tensor_dwimap"
    made.rename(tmp_path / f"{stem}.nii.gz")
    (tmp_path / "tensor.json").rename(tmp_path / f"{stem}.json")
    (shown,) = find_scene([tmp_path]).shown
    assert shown.naming.image("fa").name == "sub-01_model-DTI_param-FA_dwimap.nii.gz"


def test_tracts_go_with_the_nearest_reconstruction_or_with_all(tmp_path, make_result, tensors):
    make_result(tmp_path / "model", tensors())
    make_result(tmp_path / "ade", tensors())
    for name in ("model/tracts/arcuate.tck", "atlas.trx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    scene = find_scene([tmp_path])
    owners = {tract.title: scene.find(tract.owner) if tract.owner else None for tract in scene.tracts}
    assert owners["arcuate"].folder.name == "model"
    assert owners["atlas"] is None


def test_a_folder_without_a_tensor_is_told(tmp_path):
    with pytest.raises(DataError, match="no tensor image"):
        find_scene([tmp_path])


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        find_scene([tmp_path / "absent"])


def test_a_tensor_that_does_not_say_its_convention_is_refused_until_one_is_named(tmp_path, make_result, tensors):
    tensor = make_result(tmp_path, tensors())
    note = json.loads((tmp_path / "tensor.json").read_text())
    del note["TensorConvention"]
    (tmp_path / "tensor.json").write_text(json.dumps(note))
    with pytest.raises(DataError, match="--convention"):
        find_scene([tensor])
    assert find_scene([tensor], convention="mrtrix").shown[0].convention == "mrtrix"
