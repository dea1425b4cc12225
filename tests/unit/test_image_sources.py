"""`load_image` takes paths, bytes, Pillow pictures and arrays, and refuses whatever else in one clear line."""

import contextlib
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveate.errors import ImageSizeError, UnreadableImageError
from foveate.images import ImageLimits, load_image


@pytest.fixture
def image():
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (6, 9, 3), np.uint8))


@pytest.fixture
def file(image, tmp_path):
    path = tmp_path / "picture.png"
    image.save(path)
    return path


class PathLike:
    """A path that is neither `str` nor `Path`."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize(
    "kind", [str, Path, PathLike, Path.read_bytes, lambda path: bytearray(path.read_bytes()), Image.open]
)
def test_every_source_of_a_file_gives_its_pixels(kind, image, file):
    assert np.array_equal(load_image(kind(str(file) if kind is PathLike else file)), image)


def test_an_array_gives_its_pixels_and_is_copied(image):
    array = np.array(image)
    result = load_image(array)
    array[:] = 0
    assert np.array_equal(result, image)


def test_an_rgb_pillow_picture_is_returned_itself(image):
    assert load_image(image) is image


def test_a_pillow_picture_is_turned_upright_by_its_exif_block(image, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.webp", exif=exif, lossless=True)
    with Image.open(tmp_path / "turned.webp") as opened:
        assert np.array_equal(load_image(opened), image.transpose(Image.Transpose.ROTATE_270))


def test_the_current_frame_of_a_pillow_picture_counts(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((250, 0, 0), (0, 0, 250))]
    frames[0].save(tmp_path / "two.gif", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "two.gif") as opened:
        opened.seek(1)
        assert load_image(opened).getpixel((0, 0)) == (0, 0, 250)


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.zeros((4, 4), np.uint8), r"uint8 of shape \[4, 4\]"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 of shape \[4, 4, 4\]"),
        (np.zeros((4, 4, 3), np.float32), r"float32 of shape \[4, 4, 3\]"),
        (np.zeros((0, 4, 3), np.uint8), r"4x0 pixels"),
    ],
)
def test_an_array_of_another_kind_is_refused_with_what_it_is(array, got):
    with pytest.raises(UnreadableImageError, match=got):
        load_image(array)


@pytest.mark.parametrize("source", [None, 3, ["a.png"], {"url": "a.png"}])
def test_a_source_of_another_type_is_refused_with_its_type(source):
    with pytest.raises(UnreadableImageError, match=f"not {type(source).__name__}$"):
        load_image(source)


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("http://example.com/a.jpg", "not fetched"),
        ("HTTPS://example.com/a.jpg", "not fetched"),
        ("data:image/png;base64,iVBORw0KGgo=", "base64"),
        ("file:///a.jpg", "path alone"),
    ],
)
def test_an_address_is_refused_as_one(address, advice):
    with pytest.raises(UnreadableImageError, match=advice):
        load_image(address)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UnreadableImageError, match=r"^cat\.jpg: there is no such file"):
        load_image(tmp_path / "cat.jpg")


def test_a_folder_is_named(tmp_path):
    (tmp_path / "album").mkdir()
    with pytest.raises(UnreadableImageError, match=r"^album: it is a folder"):
        load_image(tmp_path / "album")


@contextlib.contextmanager
def ordinary_user():
    """Be an ordinary user for a while: root may read whatever it likes."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_that_may_not_be_read_is_named(file):
    file.chmod(0)
    with ordinary_user(), pytest.raises(UnreadableImageError, match=r"^picture\.png: the file may not be read"):
        load_image(file)


def test_a_pipe_a_socket_and_a_device_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(UnreadableImageError, match=f"^{path.name}: it is a pipe, socket or device"):
                load_image(path)


def test_an_empty_file_is_named(tmp_path):
    (tmp_path / "empty.png").touch()
    with pytest.raises(UnreadableImageError, match=r"^empty\.png: the file is empty \(0 bytes\)$"):
        load_image(tmp_path / "empty.png")


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.png"
    with path.open("wb") as large:
        large.truncate(2**40)  # A hole: it takes no room on the disk, and would take a terabyte of memory.
    with pytest.raises(ImageSizeError, match=r"^large\.png: the file has 1,099,511,627,776 bytes.*max_bytes$"):
        load_image(path)


def test_a_file_that_is_no_picture_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnreadableImageError, match=r"^notes\.txt: it is not a picture"):
        load_image(tmp_path / "notes.txt")


@pytest.mark.parametrize("path", ["a\0b.png", "x" * 5000, "line\nbreak\x1b[31m.png", "\udcff.png", ""])
def test_a_senseless_path_gives_one_printable_line(path):
    with pytest.raises(UnreadableImageError) as caught:
        load_image(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_the_limits_hold_for_every_source(image, file):
    limits = ImageLimits(max_pixels=53)
    for source in (file, file.read_bytes(), image, np.array(image)):
        with pytest.raises(ImageSizeError, match="9x6, 54 pixels, the limit is 53"):
            load_image(source, limits)


def test_a_pillow_picture_beyond_the_limit_is_refused_unread(file):
    with Image.open(file) as opened:
        with pytest.raises(ImageSizeError, match=r"^picture\.png: the picture is 9x6, 54 pixels"):
            load_image(opened, ImageLimits(max_pixels=53))
        assert opened.tile


def test_a_closed_pillow_picture_is_refused(file):
    opened = Image.open(file)
    opened.load()
    opened.close()
    with pytest.raises(UnreadableImageError, match=r"^picture\.png: Pillow cannot read its pixels$"):
        load_image(opened)


def test_a_truncated_pillow_picture_is_refused(file, tmp_path):
    (tmp_path / "cut.png").write_bytes(file.read_bytes()[:-40])
    with Image.open(tmp_path / "cut.png") as opened, pytest.raises(UnreadableImageError, match=r"^cut\.png: "):
        load_image(opened)
