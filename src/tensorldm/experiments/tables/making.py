"""All tables of a study from its stored long tables: Markdown, CSV and LaTeX files, and one document."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from tensorldm.evaluation.formatting import PublishedTable
from tensorldm.evaluation.rendering import to_csv, to_latex, to_markdown
from tensorldm.experiments.tables import accuracy, models, robustness, significance
from tensorldm.experiments.tables.stored import StoredStudy
from tensorldm.imaging.atomic import write_text
from tensorldm.metrics import ranges

DOCUMENT = "tables.md"


def build_tables(stored: StoredStudy) -> list[PublishedTable]:
    """Every table that has figures, in the order of their numbers."""
    found = [table for source in (accuracy, significance, models, robustness) for table in source.tables(stored)]
    return sorted(found, key=lambda table: table.number)


def write_tables(stored: StoredStudy, tables: Sequence[PublishedTable], out: Path) -> list[Path]:
    """Three files for every table, and a document with all of them."""
    written = []
    for table in tables:
        for suffix, render in ((".md", to_markdown), (".csv", to_csv), (".tex", to_latex)):
            path = out / f"{table.slug}{suffix}"
            write_text(path, render(table))
            written.append(path)
    write_text(out / DOCUMENT, to_document(stored, tables))
    return [*written, out / DOCUMENT]


def to_document(stored: StoredStudy, tables: Sequence[PublishedTable]) -> str:
    """Everything a reader needs: how it was made, on whom, the tables, the constants, the settings."""
    titles = ", ".join(comparison.title for comparison in stored.study.comparisons.values())
    parts = [f"## Tables: {titles}", _made(stored)]
    remarks = stored.record.get("Remarks", [])
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in remarks))
    parts += [to_markdown(table).strip() for table in tables]
    parts += ["### How it was measured", "\n".join(f"- {line}." for line in ranges.describe())]
    settings = yaml.safe_dump(stored.study.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    parts += ["### Settings of the study", f"```yaml\n{settings.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _made(stored: StoredStudy) -> str:
    record = stored.record
    if not record:
        return "The study was stopped before its end; give its command again to finish it."
    versions = ", ".join(f"{name} {version}" for name, version in record["Versions"].items())
    commit = f" Commit: {record['Commit']}." if record.get("Commit") else ""
    made = f"{versions}. Hardware: {record['Hardware']}. Seed: {record['Seed']}.{commit}"
    return f"```\n{record['Command']}\n```\n\n{made}"
