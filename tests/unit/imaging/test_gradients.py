import numpy as np
import pytest

from tensorldm.errors import DataError, DataWarning
from tensorldm.imaging.gradients import GradientTable, read_gradients, write_fsl, write_mrtrix
from tensorldm.imaging.header import read_header

BVALS = [0, 1000, 1000, 990]
BVECS = np.array([[0, 1, 0, 0.6], [0, 0, 1, 0], [0, 0, 0, 0.8]])
"""Three rows, as FSL writes them."""


def table(bvals, directions=None):
    bvals = np.array(bvals, dtype=float)
    if directions is None:
        directions = np.where(bvals[:, None] > 50, np.array([[1.0, 0, 0]]), 0)
    return GradientTable(bvals, np.array(directions, dtype=float))


def test_the_pair_beside_the_image_is_found_and_vectors_in_columns_are_understood(save_series):
    rows = read_gradients(save_series(bvals=BVALS, bvecs=BVECS))
    columns = read_gradients(save_series(bvals=BVALS, bvecs=BVECS.T))
    np.testing.assert_allclose(rows.bvals, BVALS)
    np.testing.assert_allclose(rows.directions, BVECS.T)
    np.testing.assert_allclose(columns.directions, BVECS.T)


def test_three_volumes_are_read_as_three_rows(save_series):
    bvecs = np.array([[0, 0.6, 0], [0, 0, 1], [0, 0.8, 0]])
    np.testing.assert_allclose(read_gradients(save_series(3, bvals=BVALS[:3], bvecs=bvecs)).directions, bvecs.T)


def test_b_values_in_a_column_are_understood(save_series):
    assert read_gradients(save_series(bvals=np.array(BVALS)[:, None], bvecs=BVECS)).bvals.tolist() == BVALS


@pytest.mark.parametrize("names", [("dwi.bvals", "dwi.bvecs"), ("bvals", "bvecs"), ("bval", "bvec")])
def test_other_customary_names_are_found(save_series, tmp_path, names):
    image = save_series()
    np.savetxt(tmp_path / names[0], [BVALS])
    np.savetxt(tmp_path / names[1], BVECS)
    np.testing.assert_allclose(read_gradients(image).directions, BVECS.T)


def test_fsl_vectors_are_mirrored_for_a_grid_of_positive_determinant(save_series):
    gradients = read_gradients(save_series(bvals=BVALS, bvecs=BVECS, affine=np.diag([2.0, 2, 2, 1])))
    np.testing.assert_allclose(gradients.directions, BVECS.T * [-1, 1, 1])


def test_an_mrtrix_table_is_turned_from_the_scanner_to_the_image(save_series, tmp_path, oblique):
    space = oblique(mirrored=False)
    image = save_series(affine=space.affine)
    column = space.affine[:3, 1] / np.linalg.norm(space.affine[:3, 1])
    lines = [[0, 0, 0, 0], [*column, 1000], [*(0.5 * column), 1000], [*(-column), 700]]
    np.savetxt(tmp_path / "dwi.b", lines, header="command_history: mrinfo")
    gradients = read_gradients(image)
    np.testing.assert_allclose(gradients.directions[1:], [[0, 1, 0], [0, 1, 0], [0, -1, 0]], atol=1e-6)
    # A vector of half the length has a quarter of the nominal b-value.
    np.testing.assert_allclose(gradients.bvals, [0, 1000, 250, 700], rtol=1e-6)


def test_a_table_given_by_name_is_taken_before_the_one_beside(save_series, tmp_path):
    image = save_series(bvals=BVALS, bvecs=BVECS)
    np.savetxt(tmp_path / "other.txt", [[0, 0, 0, 0], *[[0, 0, 1, 500]] * 3])
    assert read_gradients(image, grad=tmp_path / "other.txt").bvals.tolist() == [0, 500, 500, 500]


def test_vectors_of_another_length_are_normalised_with_a_word_and_b_values_stand(save_series):
    with pytest.warns(DataWarning, match=r"dwi\.bvec: 1 vectors are not of length 1 \(volume 1: 2\.000\)"):
        gradients = read_gradients(save_series(bvals=BVALS, bvecs=BVECS * [1, 2, 1, 1]))
    np.testing.assert_allclose(gradients.directions, BVECS.T)
    np.testing.assert_allclose(gradients.bvals, BVALS)


def test_a_direction_may_be_missing_for_b0_and_for_nothing_else(save_series):
    bvecs = BVECS.copy()
    bvecs[:, 0] = np.nan
    np.testing.assert_array_equal(read_gradients(save_series(bvals=BVALS, bvecs=bvecs)).directions[0], 0)
    for nothing in (np.nan, 0):
        bvecs[:, 2] = nothing
        with pytest.raises(DataError, match=r"dwi\.bvec: volume 2 has b=1000 s/mm² but no direction"):
            read_gradients(save_series(bvals=BVALS, bvecs=bvecs))


def test_missing_and_mismatched_files_are_told(save_series, tmp_path):
    image = save_series()
    with pytest.raises(DataError, match=r"dwi\.nii\.gz: no gradients beside it. Put dwi\.bval and dwi\.bvec there"):
        read_gradients(image)
    save_series(bvals=BVALS)
    with pytest.raises(DataError, match=r"dwi\.bval has no dwi\.bvec beside it"):
        read_gradients(image)
    save_series(bvecs=BVECS[:, :3])
    with pytest.raises(DataError, match=r"dwi\.bvec: 3 vectors \(shape 3×3\) but 4 b-values in .*dwi\.bval"):
        read_gradients(image)
    save_series(5, bvecs=BVECS)
    with pytest.raises(DataError, match=r"dwi\.nii\.gz: 5 volumes but 4 gradients in .*dwi\.bval"):
        read_gradients(image)
    with pytest.raises(DataError, match="only one of bval and bvec is given"):
        read_gradients(image, bval=tmp_path / "dwi.bval")
    with pytest.raises(DataError, match="gradients given twice"):
        read_gradients(image, bval=tmp_path / "dwi.bval", bvec=tmp_path / "dwi.bvec", grad=tmp_path / "dwi.b")
    with pytest.raises(DataError, match=r"nowhere\.bval: there is no such file"):
        read_gradients(image, bval=tmp_path / "nowhere.bval", bvec=tmp_path / "dwi.bvec")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("0 1000 abc 3", "not a table of numbers"), ("", "no numbers"), ("0 1\n2", "lines of 1 and 2 numbers")],
)
def test_text_that_is_no_table_is_told(save_series, tmp_path, text, sentence):
    image = save_series(bvecs=BVECS)
    (tmp_path / "dwi.bval").write_text(text)
    with pytest.raises(DataError, match=sentence):
        read_gradients(image)


def test_negative_b_values_and_a_table_of_three_columns_are_told(save_series, tmp_path):
    with pytest.raises(DataError, match=r"the b-value of volume 1 is -5"):
        read_gradients(save_series(bvals=[0, -5, 1000, 1000], bvecs=BVECS))
    np.savetxt(tmp_path / "x.b", np.zeros((4, 3)))
    with pytest.raises(DataError, match=r"x\.b: 3 columns, expected 4"):
        read_gradients(save_series(), grad=tmp_path / "x.b")


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (1e6, r"dwi\.bval: b-values up to 1e\+09, which is s/m²\. Divide"),
        (1e-3, r"multiply by 1000: up to 1, they look like ms/µm²"),
    ],
)
def test_b_values_in_another_unit_are_told_with_the_way_back(save_series, factor, sentence):
    with pytest.raises(DataError, match=sentence):
        read_gradients(save_series(bvals=np.array(BVALS) * factor, bvecs=BVECS)).nearest_shell(1000.0)


def test_exchanged_files_are_told_as_such(save_series, tmp_path):
    image = save_series(bvals=BVALS, bvecs=BVECS)
    with pytest.raises(DataError, match="the two are exchanged"):
        read_gradients(image, bval=tmp_path / "dwi.bvec", bvec=tmp_path / "dwi.bval")


def test_gradients_of_a_single_volume_are_refused(save_series):
    with pytest.raises(DataError, match="a 3D image, expected a 4D series"):
        read_gradients(save_series(1, bvals=[0], bvecs=np.zeros((3, 1))))


@pytest.mark.parametrize("mirrored", [True, False])
def test_both_formats_give_back_the_table_that_was_written(save_series, tmp_path, oblique, mirrored):
    image = save_series(6, affine=oblique(mirrored=mirrored).affine)
    space = read_header(image).space
    directions = np.random.default_rng(0).normal(size=(6, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    written = GradientTable(np.array([0.0, 5, 1000, 995, 2000, 3000]), directions)
    write_fsl(tmp_path / "dwi.bval", tmp_path / "dwi.bvec", gradients=written, space=space)
    write_mrtrix(tmp_path / "table.b", written, space=space)
    for back in (read_gradients(image), read_gradients(image, grad=tmp_path / "table.b")):
        np.testing.assert_allclose(back.bvals, written.bvals, rtol=1e-7)
        np.testing.assert_allclose(back.directions, written.directions, atol=1e-7)


def test_hcp_like_b_values_form_three_shells_beside_the_b0s():
    gradients = table([5, 990, 1995, 3005, 1000, 5, 2010, 2985, 1010, 1005])
    assert gradients.b0_indices == (0, 5)
    assert [shell.indices for shell in gradients.shells()] == [(1, 4, 8, 9), (2, 6), (3, 7)]
    assert [round(shell.bval) for shell in gradients.shells()] == [1001, 2002, 2995]
    assert gradients.nearest_shell(1200.0).indices == (1, 4, 8, 9)


def test_b_values_up_to_fifty_are_b0_and_a_hundred_apart_are_two_shells():
    gradients = table([0, 50, 51, 700, 800])
    assert gradients.is_b0.tolist() == [True, True, False, False, False]
    assert [shell.indices for shell in gradients.shells()] == [(2,), (3,), (4,)]


def test_a_series_of_b0s_has_no_shell():
    assert table([0, 5]).shells() == ()
    with pytest.raises(DataError, match="None of the 2 b-values is above 50"):
        table([0, 5]).nearest_shell(1000.0)


def test_selected_volumes_keep_their_order():
    chosen = table([0, 1000, 2000]).select([2, 0])
    assert chosen.bvals.tolist() == [2000, 0]


def test_a_table_that_cannot_be_physical_is_refused():
    with pytest.raises(ValueError, match="unit vectors"):
        table([0, 1000], [[0, 0, 0], [0.5, 0, 0]])
    with pytest.raises(ValueError, match="not below 0"):
        table([-1, 1000])
