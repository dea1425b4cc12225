"""A picture that cannot be used: exit code 2 and one line that names it and says why."""

import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image


def test_a_missing_file_is_named(complaint, model, tmp_path):
    line = complaint("describe", tmp_path / "nowhere.jpg", "--model", model)
    assert "nowhere.jpg: there is no such file" in line


def test_a_file_that_is_not_a_picture_is_told_which_formats_are_read(complaint, model, tmp_path):
    (tmp_path / "letter.txt").write_text("Dear reader,")
    line = complaint("describe", tmp_path / "letter.txt", "--model", model)
    assert "letter.txt" in line
    assert "not a picture" in line
    assert "JPEG, PNG" in line


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_a_truncated_jpeg_is_refused_and_never_read_as_half_grey(complaint, model, picture, tmp_path, kept):
    data = picture.read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: int(len(data) * kept)])
    line = complaint("describe", tmp_path / "cut.jpg", "--model", model)
    assert "cut.jpg" in line
    assert "cut off" in line


def test_a_file_of_0_bytes_is_called_empty(complaint, model, tmp_path):
    (tmp_path / "empty.jpg").touch()
    assert "empty.jpg: the file is empty (0 bytes)" in complaint("describe", tmp_path / "empty.jpg", "--model", model)


def test_a_folder_is_not_taken_for_a_picture(complaint, model, tmp_path):
    (tmp_path / "holiday").mkdir()
    assert "holiday: it is a folder" in complaint("describe", tmp_path / "holiday", "--model", model)


def test_a_picture_too_thin_for_one_tile_is_refused_with_its_size_and_the_bound(complaint, model, tmp_path):
    Image.new("RGB", (10000, 1)).save(tmp_path / "thin.png")
    line = complaint("describe", tmp_path / "thin.png", "--model", model)
    assert "10000x1" in line
    assert "too thin" in line
    assert "256" in line


def test_a_picture_of_one_pixel_is_answered(foveate, model, tmp_path):
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    result = foveate("describe", tmp_path / "dot.png", "--model", model, "--max-tokens", 2)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("\n")


def test_a_decompression_bomb_is_refused_by_its_header_before_its_damaged_pixels_are_met(complaint, model, tmp_path):
    write_png_header(tmp_path / "bomb.png", width=60000, height=60000, pixels=b"these are no deflated pixels")
    line = complaint("describe", tmp_path / "bomb.png", "--model", model)
    assert "60000x60000" in line
    assert "the limit is 134,217,728" in line


def test_one_bad_picture_of_several_is_the_one_that_is_named(complaint, model, picture, tmp_path):
    line = complaint("describe", picture, tmp_path / "second.jpg", "--model", model)
    assert "second.jpg" in line
    assert picture.name not in line


def test_a_name_with_a_line_break_still_gives_one_line(complaint, model, tmp_path):
    complaint("describe", tmp_path / "two\nlines.jpg", "--model", model)


@pytest.mark.parametrize("address", ["https://example.org/cat.jpg", "data:image/png;base64,AAAA", "file:///cat.jpg"])
def test_an_address_is_not_fetched(complaint, model, address):
    assert "address" in complaint("describe", address, "--model", model)


def write_png_header(path: Path, *, width: int, height: int, pixels: bytes) -> None:
    """Write a PNG file of 8-bit RGB whose header says `width` x `height`, whatever its pixel data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
