"""Make a bundle small enough to ship: half precision, without what only training needs.

    python tools/ship.py RUN/stage5/bundle --out src/tensorldm/weights --text "What a user should know."

With ``--until 0`` only what Stage 0 has trained: the start of another training of the later stages, in a form that may
differ. Several bundles of one model (of two ends of a training, say) are averaged, weight by weight. Intervals'
factors are the first's; calibrate what ships, since rounding moves it a little. Refused when larger than it may be.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from tensorldm.bundle import WEIGHTS, BundleInfo, load_bundle, read_info, write_bundle
from tensorldm.errors import DataError, TensorldmError

LARGEST_BYTES = 32_000_000
JOINS_DECODER, JOINS_UNET = 3, 5
"""Stages from which on a part joins the components."""


def main() -> None:
    """Write the bundle, or say in a sentence why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", help="of the card; the first bundle's own otherwise")
    parser.add_argument("--until", type=int, help="the last stage whose parts are kept")
    wanted = parser.parse_args()
    try:
        info = ship(wanted.bundles, wanted.out, text=wanted.text, until=wanted.until)
    except TensorldmError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    size = (wanted.out / WEIGHTS).stat().st_size
    sys.stdout.write(f"{wanted.out}: {size / 1e6:.1f} MB, SHA-256 {info.weights_sha256}\n")


def ship(bundles: Sequence[Path], out: Path, *, text: str | None = None, until: int | None = None) -> BundleInfo:
    """The mean of the bundles in half precision; ``out`` is touched only when it is small enough."""
    first = read_info(bundles[0])
    weights = mean_weights(bundles, first)
    card = first.card if text is None else first.card.model_copy(update={"text": text})
    joint, intervals = (first.decoder_joint, first.unet_joint), first.intervals
    if until is not None:
        stages = tuple(stage for stage in card.stages if stage <= until)
        if not stages:
            raise DataError(f"{bundles[0]}: it knows the stages {list(card.stages)}, none up to {until}.")
        card = card.model_copy(update={"stages": stages, "measures": {}})
        joint = (joint[0] if max(stages) >= JOINS_DECODER else "off", joint[1] if max(stages) >= JOINS_UNET else "off")
        intervals = None

    def write(folder: Path) -> BundleInfo:
        return write_bundle(
            folder,
            weights,
            config=first.model,
            joint=joint,
            card=card,
            precision="float16",
            intervals=intervals,
        )

    with tempfile.TemporaryDirectory() as trial:
        write(Path(trial))
        size = (Path(trial) / WEIGHTS).stat().st_size
    if size > LARGEST_BYTES:
        raise DataError(
            f"{bundles[0]}: {size / 1e6:.1f} MB in half precision, and {LARGEST_BYTES / 1e6:.0f} MB may ship. "
            "Train a smaller model."
        )
    return write(out)


def mean_weights(bundles: Sequence[Path], first: BundleInfo) -> dict[str, Tensor]:
    """Weight by weight, in full precision; whole numbers are the first's."""
    total: dict[str, Tensor] = {}
    for folder in bundles:
        model, info = load_bundle(folder)
        alike = (info.model, info.decoder_joint, info.unet_joint, info.card.stages)
        if alike != (first.model, first.decoder_joint, first.unet_joint, first.card.stages):
            raise DataError(
                f"{folder}: another model, or other stages, than {bundles[0]}. Average bundles of one kind."
            )
        for name, value in model.state_dict().items():
            if name not in total:
                total[name] = value.clone()
            elif value.is_floating_point():
                total[name] += value
    return {name: value / len(bundles) if value.is_floating_point() else value for name, value in total.items()}


if __name__ == "__main__":
    main()
