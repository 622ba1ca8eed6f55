"""Every verb of the program, imported so that each registers itself on the app. Verbs import the package lazily."""

from tensorldm.cli import demo, doctor, evaluate, prepare, tables, train

__all__ = ["demo", "doctor", "evaluate", "prepare", "tables", "train"]
