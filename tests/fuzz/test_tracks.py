"""Track files from elsewhere: a header that lies or never ends, points that stop anywhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorldm.tracts.streamlines import Streamlines
from tensorldm.tracts.tck import read_tck, write_tck

LINES = Streamlines.of([np.arange(12, dtype=np.float32).reshape(4, 3), np.ones((2, 3), np.float32)])
HEADER_LINES = st.one_of(
    st.sampled_from(
        ["count: 2", "datatype: Float32LE", "datatype: Float64BE", "datatype: x", "file: . 67", "file: . -1", "file:"]
    ),
    st.sampled_from(["file: . 99999999999999999999", "END", "", ":", "mrtrix tracks"]),
    st.text(max_size=12),
)


@given(edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6), length=st.integers(0, 200))
def test_a_track_file_with_wrong_bytes_or_cut_short_is_read_or_told(place, survives, edits, length):
    path = place / "a.tck"
    write_tck(path, LINES)
    content = bytearray(path.read_bytes())
    for position, value in edits:
        content[position % len(content)] = value
    path.write_bytes(content[:length] if length < len(content) else content)
    found = survives(read_tck, path)
    assert found is None or found.offsets[-1] == len(found.points)


@given(lines=st.lists(HEADER_LINES, max_size=6), points=st.binary(max_size=60))
def test_a_header_of_any_lines_is_read_or_told(place, survives, lines, points):
    path = place / "b.tck"
    path.write_bytes("\n".join(["mrtrix tracks", *lines, ""]).encode(errors="replace") + points)
    found = survives(read_tck, path)
    assert found is None or found.offsets[-1] == len(found.points)
