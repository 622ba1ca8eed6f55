"""Every verb of the program, imported so that each registers itself on the app. Verbs import the package lazily."""

from tensorldm.cli import (
    bids,
    calibrate,
    cohort,
    demo,
    doctor,
    evaluate,
    prepare,
    reconstruct,
    report,
    table_runs,
    tables,
    track,
    tract_tables,
    train,
    view,
)

__all__ = [
    "bids",
    "calibrate",
    "cohort",
    "demo",
    "doctor",
    "evaluate",
    "prepare",
    "reconstruct",
    "report",
    "table_runs",
    "tables",
    "track",
    "tract_tables",
    "train",
    "view",
]
