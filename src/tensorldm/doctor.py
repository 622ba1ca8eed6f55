"""What this installation has: versions, device, optional packages and outside programs."""

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from rich.table import Table

PACKAGES = {
    "torch": "tensors and networks",
    "numpy": "arrays",
    "scipy": "resampling and statistics",
    "nibabel": "NIfTI files",
    "dipy": "brain mask, NLLS and RESTORE fits",
    "lightning-fabric": "training (extra: train)",
    "monai": "rival networks (extra: train)",
    "trx-python": "TRX tractograms (extra: tracts)",
    "pybids": "BIDS datasets (extra: bids)",
    "dask": "many subjects at once (extra: cluster)",
    "matplotlib": "figures (extra: report)",
}
PROGRAMS = {
    "tckgen": ("MRtrix3", "tractography; without it DIPY tracks", ["-version"]),
    "dcm2niix": ("dcm2niix", "reading DICOM folders (extra: dicom)", ["--version"]),
}


def describe_device() -> str:
    """The device that ``--device auto`` would use, in words."""
    import torch

    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        return f"cuda: {torch.cuda.get_device_name(0)}, {memory:.0f} GiB"
    if torch.backends.mps.is_available():
        return "mps: Apple GPU"
    return f"cpu: {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def examine(model: str) -> Table:
    """A table of everything the package uses, with what was found and what each is for.

    ``model`` describes the one that is used where none is named: the layers above know it.
    """
    table = Table("what", "found", "for", title="tensorldm doctor")
    table.add_row("tensorldm", _package_version("tensorldm") or "[red]not installed[/red]", "this package")
    table.add_row("Python", platform.python_version(), platform.platform())
    table.add_row("device", describe_device(), "what --device auto uses")
    table.add_row("model", model, "what reconstruct uses without --model or --method")
    for name, purpose in PACKAGES.items():
        table.add_row(name, _package_version(name) or "[yellow]missing[/yellow]", purpose)
    for program, (title, purpose, arguments) in PROGRAMS.items():
        table.add_row(title, _program_version(program, arguments), purpose)
    return table


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _program_version(program: str, arguments: list[str]) -> str:
    # A program from a Python package lies beside the interpreter, which need not be on the path.
    path = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if path is None:
        return "[yellow]missing[/yellow]"
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        return f"[red]{path} does not start ({error.strerror})[/red]"
    lines = (answer.stdout or answer.stderr).strip().splitlines()
    return f"{lines[0].strip('= ') if lines else 'unknown version'} ({path})"
