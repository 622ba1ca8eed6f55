"""Coverage-guided fuzzing of three readers: ``python tests/fuzz/coverage_guided.py READER [libFuzzer options]``.

``make fuzz`` runs each for a while. Atheris steers the bytes towards lines of ours that were not reached yet; any
answer but a value or one of our own sentences stops it, and the bytes are kept as ``crash-*``.
"""

import atexit
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(
    include=["tensorldm.imaging.gradient_files", "tensorldm.imaging.header", "tensorldm.config.reading"]
):
    from tensorldm.config.reading import read_config
    from tensorldm.config.run import RunConfig
    from tensorldm.imaging.gradient_files import read_fsl, read_mrtrix
    from tensorldm.imaging.header import read_header

import nibabel
import numpy as np

from tensorldm.config.reading import PRESETS
from tensorldm.errors import DataWarning, TensorldmError
from tensorldm.imaging.volume import Space

SPACE = Space((4, 4, 4), np.diag([-2.0, 2.0, 2.0, 1.0]))
IMAGE = nibabel.Nifti1Image(np.zeros((4, 4, 4), dtype=np.int16), SPACE.affine).to_bytes()


def _gradients(folder: Path, content: bytes) -> None:
    bval, _, bvec = content.partition(b"\n")
    (folder / "x.bval").write_bytes(bval)
    (folder / "x.bvec").write_bytes(bvec)
    (folder / "grad.b").write_bytes(content)
    _answered(lambda: read_fsl(folder / "x.bval", folder / "x.bvec", space=SPACE))
    _answered(lambda: read_mrtrix(folder / "grad.b", space=SPACE))


def _header(folder: Path, content: bytes) -> None:
    (folder / "x.nii").write_bytes(content)
    _answered(lambda: read_header(folder / "x.nii"))


def _config(folder: Path, content: bytes) -> None:
    (folder / "x.yaml").write_bytes(content)
    _answered(lambda: read_config(RunConfig, folder / "x.yaml"))


def _answered(read: Callable[[], object]) -> None:
    try:
        read()
    except TensorldmError as error:
        if not str(error).rstrip().endswith((".", "?")):
            raise RuntimeError(f"not a sentence: {error}") from error


READERS = {
    "gradients": (_gradients, b"0 1000 1000 1000\n0 1 0 0\n0 0 1 0\n0 0 0 1\n"),
    "header": (_header, IMAGE),
    "config": (_config, (PRESETS / "smoke.yaml").read_bytes()),
}


def main() -> None:
    """Fuzz one reader until its time is up or it fails."""
    program, name, *options = sys.argv
    reader, seed = READERS[name]
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DataWarning)
    scratch = TemporaryDirectory(prefix="tensorldm-fuzz-")
    atexit.register(scratch.cleanup)
    folder = Path(scratch.name)
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "valid").write_bytes(seed)
    atheris.Setup([program, *options, str(corpus)], lambda content: reader(folder, content))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
