"""Every verb of the program, imported so that each registers itself on the app. Verbs import the package lazily."""

from tensorldm.cli import cohort, demo, doctor, evaluate, prepare, reconstruct, tables, train

__all__ = ["cohort", "demo", "doctor", "evaluate", "prepare", "reconstruct", "tables", "train"]
