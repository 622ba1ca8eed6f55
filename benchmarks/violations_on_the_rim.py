"""Where the impossible tensors of real references lie: the rim of the mask, or the brain within.

    python benchmarks/violations_on_the_rim.py SCANS/*/dwi.nii.gz

For each raw series: an ordinary least-squares fit to all volumes in the package's own mask, and the same
with the mask grown by one voxel, as a generous mask would be. The rim is what touches the outside, corners included.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy import ndarray
from scipy import ndimage

from tensorldm.baselines.scan import Scan, read_scan
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.fit import fit_ols
from tensorldm.metrics.ranges import NEGATIVE_EIGENVALUE_MM2_PER_S

CORNERS = np.ones((3, 3, 3), dtype=bool)
HEADINGS = ("scan", "mask", "voxels", "λ < 0", "rim: share of the mask", "of the λ < 0", "b=0 where λ < 0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scans", nargs="+", type=Path)
    print("| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS), sep="\n")
    for path in parser.parse_args().scans:
        scan = read_scan(path)
        for name, mask in (("found", scan.mask), ("grown", ndimage.binary_dilation(scan.mask, CORNERS))):
            cells = measure(replace(scan, mask=mask), typical=scan)
            print("| " + " | ".join((path.resolve().parent.name, name, *cells)) + " |", flush=True)


def measure(scan: Scan, *, typical: Scan) -> tuple[str, ...]:
    """The table's figures; b=0 is relative to its median over the mask that was found."""
    packed, _ = fit_ols(*scan.inside(tuple(range(len(scan.gradients)))))
    impossible = (eigenvalues(packed)[:, 2] < NEGATIVE_EIGENVALUE_MM2_PER_S).numpy()
    rim = (scan.mask & ~ndimage.binary_erosion(scan.mask, CORNERS, border_value=1))[scan.mask]
    b0 = _mean_b0(scan)[scan.mask] / np.median(_mean_b0(typical)[typical.mask])
    return (
        f"{len(rim)}",
        f"{impossible.mean():.2%}",
        f"{rim.mean():.0%}",
        f"{rim[impossible].mean():.0%}" if impossible.any() else "–",
        f"{np.median(b0[impossible]):.2f}" if impossible.any() else "–",
    )


def _mean_b0(scan: Scan) -> ndarray:
    return np.asarray(scan.signal[..., list(scan.gradients.b0_indices)].mean(axis=-1))


if __name__ == "__main__":
    main()
