"""Settings of ``tensorldm prepare``: from raw scans to prepared subjects."""

from typing import Literal

from pydantic import Field

from tensorldm.config.reading import Strict

Fit = Literal["ols", "wls", "nlls", "restore"]


class PrepareConfig(Strict):
    """What is chosen from a series and what is made of it; a store is of one set of values."""

    shell: float = Field(gt=50, le=20_000, description="b-value of the shell, s/mm²")
    shell_tolerance: float = Field(ge=0, le=500, description="how far the nearest shell may be from it, s/mm²")
    antipodal: bool = Field(description="count a direction and its negative as one; false: the paper's literal words")
    b0: Literal["first", "mean"] = Field(description="input b=0: the first of the series, or the mean of all")
    reference_fit: Fit = Field(description="fit of the reference tensor; ols is the paper's")
    gradient_nonlinearity: bool = Field(description="use grad_dev files where they are given")
    voxel_size_mm: float = Field(ge=0.5, le=5, description="isotropic grid; kept as it is where it is within 2 %")
    suspect_gradients: Literal["refuse", "warn"] = Field(
        description="what to do with a series whose fibres run smoother under another sign or order of its axes"
    )
    margin_mm: float = Field(ge=0, le=300, description="background kept around the brain's bounding box")
