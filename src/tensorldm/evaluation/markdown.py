"""A document that commands fill in: each section stands between its own two comments, and the rest stays as it is."""

from pathlib import Path

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_text


def replace_section(path: Path, name: str, *, text: str) -> None:
    """Put ``text`` between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; a new section goes to the end."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    try:
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the document cannot be read ({error}). Give a Markdown file.") from error
    start, stop = before.find(begin), before.find(end)
    if (start < 0) != (stop < 0) or stop < start:
        raise DataError(f"{path}: only one of '{begin}' and '{end}' is there, or out of order. Mend the document.")
    if start < 0:
        document = f"{before.rstrip()}\n\n{section}\n".lstrip()
    else:
        document = before[:start] + section + before[stop + len(end) :]
    write_text(path, document)
