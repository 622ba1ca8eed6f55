"""The six components and the orders other programs use."""

import numpy as np
import pytest

from tensorldm.components import COLUMNS, COMPONENTS, CONVENTIONS, ROWS

LETTERS = "xyz"


def test_rows_and_columns_spell_the_component_names():
    assert [LETTERS[i] + LETTERS[j] for i, j in zip(ROWS, COLUMNS, strict=True)] == list(COMPONENTS)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_stores_each_component_once_and_reads_it_back(name):
    convention = CONVENTIONS[name]
    packed = np.array(COMPONENTS)
    stored = packed[list(convention.from_package)]
    assert tuple(stored) == convention.order
    assert tuple(stored[list(convention.to_package)]) == COMPONENTS


def test_fsl_order_is_the_upper_triangle_by_rows_and_dipy_order_the_lower():
    matrix = np.array([[a + b for b in LETTERS] for a in LETTERS])
    assert CONVENTIONS["fsl"].order == tuple(matrix[np.triu_indices(3)])
    lower = [min(cell, cell[::-1]) for cell in matrix[np.tril_indices(3)]]
    assert CONVENTIONS["dipy"].order == tuple(lower)
