"""An output folder replaces only what is its own: results of other scans and other people's files stay.

Plain names are the same for every scan, and many programs write an ``fa.nii.gz`` or keep a ``mask.nii.gz`` beside the
series. A folder that a reconstruction has written to carries a mark, the folder of its journal.
"""

from pathlib import Path

from tensorldm.errors import DataError
from tensorldm.imaging.tensor_sidecar import sidecar_path
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.journal import FOLDER, Entry, journal_of
from tensorldm.reconstruct.naming import Naming
from tensorldm.reconstruct.outputs import NAMES
from tensorldm.work.sources import describe_sources


def mark(root: Path) -> None:
    """Make a folder that is about to appear known as ours, with its first file."""
    (root / FOLDER).mkdir(parents=True, exist_ok=True)


def refuse_foreign(out: Path, naming: Naming) -> None:
    """Refuse a folder where files of these names are that no reconstruction wrote."""
    if (out / FOLDER).is_dir():
        return
    images = [out / naming.image(name) for name in NAMES]
    for path in (*images, *map(sidecar_path, images), out / naming.picture, out / naming.report):
        if path.exists():
            raise DataError(
                f"{path}: this file is there and was not written by `tensorldm reconstruct`, which would replace it. "
                "Choose another folder with --out."
            )


def refuse_another_scan(out: Path, files: InputFiles, *, naming: Naming) -> None:
    """Refuse to replace the result of another scan; BIDS names say whose they are, and plain ones do not."""
    if files.entities is not None:
        return
    tensor, journal = naming.image("tensor"), journal_of(out)
    # Of several scans each has the folder of its name; a lone one has the whole place, whatever it is called.
    entries = journal.entries() if naming.folder == Path() else [journal.entry(files.name)]
    for entry in entries:
        if entry is None or all(file.path != tensor.as_posix() for file in entry.written) or _is_of(entry, files):
            continue
        raise DataError(
            f"{out / tensor}: this is the result of another scan, {entry.sources[0].path}. Choose another folder with "
            f"--out for {files.image}, or give --redo to replace it."
        )


def _is_of(entry: Entry, files: InputFiles) -> bool:
    """Whether the images are where they were, or hold what they held."""
    if {str(image.absolute()) for image in files.images} <= {source.path for source in entry.sources}:
        return True
    now = describe_sources([(image.name, image) for image in files.images], known=entry.sources)
    return {source.sha256 for source in now} <= {source.sha256 for source in entry.sources}
