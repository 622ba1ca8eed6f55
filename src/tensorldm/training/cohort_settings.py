"""How virtual training subjects vary, read from a preset or a YAML file."""

from tensorldm.cohort.settings import CohortSettings


def read_cohort_settings(name: str) -> CohortSettings:
    """The settings of this preset or file."""
    return CohortSettings()
