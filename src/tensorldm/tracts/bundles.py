"""A whole brain's streamlines cut into bundles, as files that viewers open."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorldm.tracts.bundle_masks import BundleMask, check_place, choose_bundles, read_bundle
from tensorldm.tracts.regions import Region
from tensorldm.tracts.selecting import SelectionRule, select
from tensorldm.tracts.streamlines import Streamlines
from tensorldm.tracts.tck import read_tck, write_tck


def read_bundles(folder: Path, names: Sequence[str], *, brain: Region) -> list[BundleMask]:
    """The masks of these bundles (or of the paper's), each checked to lie in the brain."""
    bundles = [read_bundle(folder, name) for name in choose_bundles(folder, names)]
    for bundle in bundles:
        check_place(folder, bundle, brain=brain)
    return bundles


def cut_bundles(
    tractogram: Path, bundles: Sequence[BundleMask], *, rule: SelectionRule, folder: Path
) -> Mapping[str, Streamlines]:
    """The streamlines of each bundle, written to ``folder`` as NAME.tck and given by name, empty ones too."""
    whole = read_tck(tractogram)
    found = {bundle.name: select(whole, bundle, rule) for bundle in bundles}
    for name, streamlines in found.items():
        write_tck(folder / f"{name}.tck", streamlines)
    return found
