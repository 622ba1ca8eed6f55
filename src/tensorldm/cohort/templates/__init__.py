"""Real anatomies: converters for what others publish, and a small file format for the result."""

from tensorldm.cohort.templates.packing import load_anatomy, save_anatomy
from tensorldm.cohort.templates.request import GridChoice
from tensorldm.cohort.templates.source import TemplateSource

__all__ = ["GridChoice", "TemplateSource", "load_anatomy", "save_anatomy"]
