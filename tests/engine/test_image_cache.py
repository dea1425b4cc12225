"""The cache of features: known by all that decides them, bounded in bytes, the least recently used goes first."""

from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from foveate.engine.image_cache import ImageCache, ImageFeatures, identified
from foveate.errors import ImageError
from foveate.images import DEFAULT_LIMITS, load_image
from foveate.models.lfm2_vl.tiles import TileGrid, TileShape

GRID = TileGrid(1, 1, TileShape(2, 2), None)


def features(rows: int, value: float = 0.0) -> ImageFeatures:
    """Features of 8 bytes a row."""
    return ImageFeatures(GRID, torch.full((rows, 2), value))


def key(source: object, options: bytes = b"") -> bytes:
    return identified(source, DEFAULT_LIMITS, options)[0]


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def test_every_byte_and_every_option_counts():
    changed = PIXELS.copy()
    changed[-1, -1, -1] ^= 1
    sources = (png(PIXELS), png(changed), PIXELS, changed, PIXELS.reshape(30, 20, 3))
    keys = [key(source) for source in sources] + [key(PIXELS, b"other"), key(png(PIXELS), b"other")]
    assert len(set(keys)) == len(keys)
    assert keys == [key(source) for source in sources] + [key(PIXELS, b"other"), key(png(PIXELS), b"other")]


def test_a_file_and_its_bytes_are_one_picture_and_so_are_an_array_and_its_pillow_image(tmp_path):
    (tmp_path / "a.png").write_bytes(png(PIXELS))
    assert key(tmp_path / "a.png") == key(str(tmp_path / "a.png")) == key(png(PIXELS))
    assert key(PIXELS) == key(Image.fromarray(PIXELS)) == key(PIXELS[:, ::-1][:, ::-1])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_what_is_to_be_decoded_is_the_picture_that_was_identified(orientation: int):
    """Turned once, and not again."""
    file, exif = BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(PIXELS).save(file, "PNG", exif=exif)
    expected = np.asarray(load_image(file.getvalue()))
    opened = Image.open(BytesIO(file.getvalue()))
    for source in (file.getvalue(), opened):
        _, picture = identified(source, DEFAULT_LIMITS, b"")
        assert np.array_equal(np.asarray(load_image(picture)), expected)


@pytest.mark.parametrize("source", [b"nothing", "/no/such/file.png", 3, np.zeros((2, 2), np.uint8)])
def test_what_is_no_picture_has_no_key(source: object):
    with pytest.raises(ImageError):
        key(source)


def test_the_one_used_least_recently_goes_first():
    cache = ImageCache(8 * 10)
    for name in (b"a", b"b"):
        cache.put(name, features(4))
    assert cache.get(b"a") is not None
    cache.put(b"c", features(4))
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]
    assert (cache.hits, cache.misses, cache.num_bytes, len(cache)) == (3, 1, 64, 2)


def test_one_larger_than_all_room_is_not_kept_and_drives_nothing_out():
    cache = ImageCache(8 * 10)
    cache.put(b"a", features(10))
    cache.put(b"b", features(11))
    assert [cache.get(name) is not None for name in (b"a", b"b")] == [True, False]


def test_what_is_kept_is_a_copy():
    cache, rows = ImageCache(1000), torch.ones(6, 2)
    cache.put(b"a", ImageFeatures(GRID, rows[2:4]))
    rows.zero_()
    kept = cache.get(b"a")
    assert kept is not None
    assert kept.rows.tolist() == [[1, 1], [1, 1]]
    assert kept.rows.untyped_storage().nbytes() == 16


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.booleans())))
def test_the_bytes_are_those_of_what_is_kept_and_within_the_bound(steps: list[tuple[int, int, bool]]):
    cache = ImageCache(8 * 10)
    for name, rows, is_put in steps:
        if is_put:
            cache.put(bytes([name]), features(rows))
        else:
            cache.get(bytes([name]))
        kept = sum(each.rows.nbytes for each in cache._entries.values())
        assert cache.num_bytes == kept <= cache.max_bytes
    assert cache.hits + cache.misses == sum(not is_put for _, _, is_put in steps)
