"""Write the gradient table that ships with the package: ``python -m tensorldm.cohort.schemes.make``.

HCP's counts (18 b=0 and 90 directions at b=1000), directions of our own from `cohort.directions`.
"""

from pathlib import Path

from tensorldm.cohort.directions import spread_directions
from tensorldm.cohort.protocol import HCP_B0S, HCP_BVAL, HCP_DIRECTIONS, HCP_SCHEME, shell

HEADER = "# x y z b (s/mm²), image axes; 18 b=0 among 90 directions by electrostatic repulsion, seed 0\n"


def table() -> str:
    """The file's text."""
    bvals, directions = shell(spread_directions(HCP_DIRECTIONS, seed=0), b0s=HCP_B0S, bval=HCP_BVAL)
    rows = zip(directions.tolist(), bvals.tolist(), strict=True)
    return HEADER + "".join(f"{x:.8f} {y:.8f} {z:.8f} {b:g}\n" for (x, y, z), b in rows)


if __name__ == "__main__":
    (Path(__file__).parent / HCP_SCHEME).write_text(table(), encoding="utf-8")
