"""The scene with its voxels: reads what is asked for, keeps the last few fields, answers by key.

Requests come in several threads at once; one lock keeps a field from being read twice.
"""

import threading
from collections import OrderedDict
from typing import Any

from tensorldm.imaging.nifti import read_header
from tensorldm.imaging.reorient import to_ras
from tensorldm.viewer.encoding import encode_colours, encode_lines, encode_scalars, world_to_voxel
from tensorldm.viewer.field import Field, load_field
from tensorldm.viewer.layers import COLOUR, LAYERS, available, scalar_image
from tensorldm.viewer.readout import World, read_out
from tensorldm.viewer.scene import Scene, Shown

KEPT_FIELDS = 4
"""Two sides, the reference and one more: at HCP's size 100 MB each."""
LINES = "lines"
"""The layer of directions; not a map of its own."""


class Library:
    """Everything that the page can ask to see."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._fields: OrderedDict[str, Field] = OrderedDict()
        self._written: dict[str, int] = {}
        """When each was written: a scan that is reconstructed anew is read anew."""
        self._lock = threading.RLock()

    @property
    def scene(self) -> Scene:
        """What there is."""
        return self._scene

    def show(self, shown: Shown) -> None:
        """Add a reconstruction, or replace the one with its key."""
        with self._lock:
            self._fields.pop(shown.key, None)
            self._scene = self._scene.with_shown(shown)

    def forget(self, key: str) -> None:
        """Take a reconstruction away."""
        with self._lock:
            self._fields.pop(key, None)
            self._scene = self._scene.without(key)

    def describe(self) -> dict[str, Any]:
        """The scene for the page: keys and titles, never a path."""
        scene = self._scene
        return {
            "shown": [self._describe_one(each) for each in scene.shown],
            "tracts": [{"key": each.key, "title": each.title, "owner": each.owner, "suffix": each.path.suffix}
                       for each in scene.tracts],
            "layers": {name: _describe_layer(name) for name in LAYERS},
        }  # fmt: skip

    def volume(self, key: str, name: str) -> bytes | None:
        """A map as NIfTI; None where key or name mean nothing."""
        field = self._field(key)
        if field is None or not (name == LINES or name in LAYERS):
            return None
        if name == LINES:
            return encode_lines(field)
        if LAYERS[name].kind == COLOUR:
            return encode_colours(field)
        return encode_scalars(scalar_image(field, name, reference=self._reference_for(key)), field.space)

    def read_out(self, keys: list[str], world: World) -> list[dict[str, Any]]:
        """Numbers at a point for each reconstruction that is known."""
        found = [(key, field) for key in keys if (field := self._field(key)) is not None]
        return [read_out(field, world, reference=self._reference_for(key)) for key, field in found]

    def _describe_one(self, shown: Shown) -> dict[str, Any]:
        space = to_ras(read_header(shown.tensor).space).target
        return {
            "key": shown.key,
            "method": shown.method,
            "subject": shown.subject,
            "place": shown.place,
            "isReference": shown.key in self._scene.references,
            "reference": None if (reference := self._scene.reference_of(shown.key)) is None else reference.key,
            "maps": available(lambda name: shown.naming.image(name).is_file(), compared=self._comparable(shown)),
            "worldToVoxel": world_to_voxel(space).round(6).tolist(),
            "voxelSize": [round(side, 3) for side in space.voxel_size],
            "shape": list(space.shape),
        }

    def _comparable(self, shown: Shown) -> bool:
        """Whether there is a reference voxel by voxel."""
        reference = self._scene.reference_of(shown.key)
        if reference is None:
            return False
        mine, theirs = (to_ras(read_header(each.tensor).space).target for each in (shown, reference))
        return mine.same_grid(theirs)

    def _field(self, key: str) -> Field | None:
        with self._lock:
            shown = self._scene.find(key)
            if shown is None:
                return None
            written = shown.tensor.stat().st_mtime_ns if shown.tensor.is_file() else 0
            if key not in self._fields or self._written.get(key) != written:
                self._fields[key], self._written[key] = load_field(shown), written
                while len(self._fields) > KEPT_FIELDS:
                    self._fields.popitem(last=False)
            self._fields.move_to_end(key)
            return self._fields[key]

    def _reference_for(self, key: str) -> Field | None:
        reference = self._scene.reference_of(key)
        return None if reference is None else self._field(reference.key)


def _describe_layer(name: str) -> dict[str, Any]:
    layer = LAYERS[name]
    return {
        "title": layer.title,
        "group": layer.group,
        "unit": layer.unit,
        "low": layer.low,
        "high": layer.high,
        "colours": layer.colours,
        "kind": layer.kind,
        "signed": layer.signed,
    }
