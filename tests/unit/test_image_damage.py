"""Damaged, cut-off and hostile files raise an ImageError of one clear line: nothing else, and no warning."""

import io
import re
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from foveate.errors import ImageError, UnreadableImageError
from foveate.images import decode_image


def encode(image, image_format, **options):
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def photograph(width=24, height=17):
    return Image.fromarray(np.random.default_rng(2).integers(0, 256, (height, width, 3), np.uint8))


def exif():
    block = Image.Exif()
    block[0x0112], block[0x010E] = 6, "a description"
    return block


FILES = {
    "jpeg": encode(photograph(), "JPEG", exif=exif(), icc_profile=b"profile" * 9),
    "progressive-jpeg": encode(photograph(), "JPEG", progressive=True),
    "cmyk-jpeg": encode(photograph().convert("CMYK"), "JPEG"),
    "png": encode(photograph(), "PNG", exif=exif(), icc_profile=b"profile" * 9),
    "palette-png": encode(photograph().quantize(16), "PNG", transparency=bytes(range(16))),
    "wide-png": encode(Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20)), "PNG", transparency=7),
    "webp": encode(photograph(), "WEBP", exif=exif()),
    "lossless-webp": encode(photograph().convert("RGBA"), "WEBP", lossless=True),
    "gif": encode(photograph(), "GIF"),
    "interlaced-gif": encode(photograph().quantize(8), "GIF", transparency=3, interlace=1),
    "bmp": encode(photograph(), "BMP"),
    "palette-bmp": encode(photograph().quantize(16), "BMP"),
    "tiff": encode(photograph(), "TIFF", tiffinfo={0x0112: 6, 270: "a description"}, strip_size=24 * 3 * 4),
    "lzw-tiff": encode(photograph(), "TIFF", compression="tiff_lzw"),
    "palette-tiff": encode(photograph().quantize(16), "TIFF"),
}
ANIMATIONS = {
    name: encode(photograph(), name, save_all=True, append_images=[Image.new("RGB", (24, 17))] * 2)
    for name in ("GIF", "WEBP", "PNG", "TIFF")
}


def refusal(data):
    """Return the message with which `data` is refused, None where it decodes; check what holds for both."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            image, message = decode_image(data, name="holiday.pic"), None
        except ImageError as error:
            image, message = None, str(error)
    assert caught == []
    if image is not None:
        assert image.mode == "RGB"
        assert np.asarray(image).shape == (image.height, image.width, 3)
        return None
    assert message.startswith("holiday.pic: ")
    assert message.isprintable()
    assert not re.search(r"at 0x|object|Traceback", message)
    return message


@pytest.mark.parametrize("name", FILES)
def test_every_file_cut_short_anywhere_is_refused(name):
    data = FILES[name]
    for length in range(len(data)):
        with pytest.raises(UnreadableImageError):
            decode_image(data[:length])


@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "gif", "bmp", "tiff"])
def test_a_process_that_told_pillow_to_accept_cut_files_gets_no_half_pictures_from_us(name, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for length in range(0, len(FILES[name]), 5):
        with pytest.raises(UnreadableImageError):
            decode_image(FILES[name][:length])


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=40, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=8))
def test_changed_bytes_decode_or_are_refused(name, flips):
    data = bytearray(FILES[name])
    for position, change in flips:
        data[position % len(data)] ^= change
    refusal(bytes(data))


@pytest.mark.parametrize("name", FILES)
def test_each_byte_of_a_header_changed_decodes_or_is_refused(name):
    for position in range(min(len(FILES[name]), 120)):
        for value in (0x00, 0x7F, 0xFF):
            data = bytearray(FILES[name])
            data[position] = value
            refusal(bytes(data))


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=20, deadline=None)
@given(start=st.integers(0, 10**6), length=st.integers(1, 200), filling=st.binary(max_size=64))
def test_a_piece_taken_out_or_replaced_decodes_or_is_refused(name, start, length, filling):
    data = FILES[name]
    start %= len(data)
    refusal(data[:start] + filling + data[start + length :])


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(sorted(ANIMATIONS)), cut=st.integers(0, 10**6))
def test_an_animation_cut_short_gives_its_whole_first_frame_or_is_refused(name, cut):
    data = ANIMATIONS[name]
    cut_off = data[: cut % len(data)]
    if refusal(cut_off) is None:
        assert np.array_equal(decode_image(cut_off), decode_image(data))


@settings(max_examples=200, deadline=None)
@given(
    signature=st.sampled_from(
        [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x40\0\0\0WEBP", b"GIF89a", b"BM", b"II*\0", b"MM\0+"]
    ),
    rest=st.binary(max_size=300),
)
def test_noise_behind_a_signature_is_refused(signature, rest):
    assert refusal(signature + rest)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_deflate", "packbits", "jpeg"])
def test_a_tiff_strip_that_ends_too_soon_is_refused(compression):
    data = bytearray(encode(photograph(), "TIFF", compression=compression))
    length = data.index(struct.pack("<HHL", 279, 4, 1)) + 8
    struct.pack_into("<L", data, length, struct.unpack_from("<L", data, length)[0] // 2)
    assert refusal(bytes(data))


def test_a_changed_byte_in_the_pixels_of_a_png_is_found_out():
    data = bytearray(FILES["png"])
    data[data.index(b"IDAT") + 40] ^= 1
    assert "the check sum of a chunk (IDAT) is wrong" in refusal(bytes(data))


def png(*chunks):
    pieces = [struct.pack(">L", len(p)) + kind + p + struct.pack(">L", zlib.crc32(kind + p)) for kind, p in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


def png_size(width, height):
    return b"IHDR", struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)


PIXEL = (b"IDAT", zlib.compress(b"\0\1\2\3"))
END = (b"IEND", b"")
BMP_HEADER = struct.Struct("<2sLHHLLllHHLLllLL")


def run_length_bmp(width, height):
    return BMP_HEADER.pack(b"BM", 0, 0, 0, 62, 40, width, height, 1, 8, 1, 0, 0, 0, 2, 0) + bytes(8) + b"\0\1"


def webp_canvas(width, height):
    data = bytearray(ANIMATIONS["WEBP"])
    data[24:30] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return bytes(data)


def jpeg_of_size(width, height):
    data = bytearray(FILES["jpeg"])
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def tiff(*tags):
    entries = [struct.pack("<HHLL", tag, kind, count, value) for tag, kind, count, value in sorted(tags)]
    return b"II*\0" + struct.pack("<LH", 8, len(entries)) + b"".join(entries) + bytes(4)


PLAIN_TIFF = {
    256: (4, 1, 4),
    257: (4, 1, 4),
    258: (3, 1, 8),
    259: (3, 1, 1),
    262: (3, 1, 1),
    273: (4, 1, 0),
    279: (4, 1, 16),
}


def changed_tiff(**changes):
    tags = PLAIN_TIFF | {int(tag[1:]): value for tag, value in changes.items()}
    return tiff(*((tag, *value) for tag, value in tags.items()))


def test_the_plain_tiff_that_the_hostile_ones_are_made_from_decodes():
    assert refusal(changed_tiff()) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png(png_size(0, 5), PIXEL, END), "0x5 pixels; it needs at least 1x1"),
        (png(png_size(1, 1), png_size(9000, 9000), PIXEL, END), "states its size twice"),
        (png(PIXEL, END), "does not begin with its size"),
        (png(png_size(1, 1), END), "0 bytes cannot hold 1x1 pixels"),
        (png(png_size(9000, 9000), PIXEL, END), "12 bytes cannot hold 9000x9000 pixels"),
        (png(png_size(2, 1), PIXEL, END), "damaged, cut off"),
        (jpeg_of_size(9000, 9000), "bytes cannot hold 9000x9000 pixels"),
        (png(png_size(1, 1), *[(b"tEXt", b"")] * 70_000, PIXEL, END), "more than 65536 chunks"),
        (b"\xff\xd8" + b"\xff\xfe\0\2" * 5000 + FILES["jpeg"][2:], "more than 4096 segments"),
        (FILES["jpeg"][:-2] + b"\xff\xda" * 200 + b"\xff\xd9", "more than 100 scans"),
        (b"\xff\xd8\xff\xe0\0\4ab\xff\xd9", "ends before its pixels"),
        (b"GIF89a" + bytes(7) + b"!\xfe" + b"\1x" * 2**20 + b"\0;", "more than 1,048,576 blocks"),
        (run_length_bmp(30_000, 4000), "run-length coded pixels are read up to"),
        (changed_tiff(_257=(4, 1, 5)), "its pixels need 20 bytes and it has 16"),
        (changed_tiff(_278=(4, 1, 1)), "1 of its 4 pieces"),
        (changed_tiff(_279=(4, 1, 999)), "cut off inside its pixels"),
        (changed_tiff(_256=(4, 3, 4)), "tag 256 has 3 values"),
        (changed_tiff(_258=(3, 2**31, 4)), "run past the end"),
        (changed_tiff(_258=(3, 1, 12)), "12-bit grey is not read"),
        (changed_tiff(_258=(3, 1, 16), _262=(3, 1, 0)), "white as 0 is not read"),
        (encode(photograph().convert("YCbCr"), "TIFF"), "uncompressed YCbCr is not read"),
        (changed_tiff(_277=(3, 1, 300)), "300 channels; up to 6"),
        (changed_tiff(_322=(4, 1, 60_000), _323=(4, 1, 60_000), _324=(4, 1, 0)), "pieces of 60000x60000"),
        (tiff(), "0x0 pixels"),
        (b"II*\0" + struct.pack("<LH", 8, 60_000), "60,000 entries; up to 4,096"),
        (b"II*\0" + struct.pack("<LH", 8, 4000), "cut off inside its directory"),
        (changed_tiff(_273=(4, 70_000, 0)) + bytes(300_000), "tag 273 has 70,000 values"),
        (webp_canvas(16_384, 1), "16384x1 pixels; a WebP frame has at most 16383 a side"),
    ],
)
def test_a_hostile_file_is_refused_with_its_reason(data, reason):
    assert reason in refusal(data)
