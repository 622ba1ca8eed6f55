"""Every verb of the program, imported so that each registers itself on the app. Verbs import the package lazily."""

from tensorldm.cli import doctor

__all__ = ["doctor"]
