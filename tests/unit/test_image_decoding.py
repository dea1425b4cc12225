"""Good picture files of each format decode to the pixels they hold, upright, within the limits, from any thread."""

import io
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, PngImagePlugin, TiffImagePlugin

from foveate.errors import ConfigurationError, ImageSizeError, UnreadableImageError
from foveate.images import ImageLimits, decode_image, read_header
from foveate.images.failures import decoder_failures

LOSSLESS = {
    "PNG": {},
    "WEBP": {"lossless": True},
    "BMP": {},
    "TIFF": {},
}


def photograph(width=37, height=23, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def encode(image, image_format, **options):
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def same(image, expected):
    assert image.mode == "RGB"
    return np.array_equal(np.asarray(image), np.asarray(expected))


@pytest.mark.parametrize("image_format", LOSSLESS)
def test_rgb_in_a_lossless_format_comes_back_bit_for_bit(image_format):
    image = photograph()
    assert same(decode_image(encode(image, image_format, **LOSSLESS[image_format])), image)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_jpeg_gives_the_pixels_that_pillow_gives(mode, options):
    data = encode(photograph().convert(mode), "JPEG", **options)
    assert same(decode_image(data), Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_deflate", "packbits", "jpeg", "group4"])
def test_a_compressed_tiff_gives_the_pixels_that_pillow_gives(compression):
    image = photograph().convert("1") if compression == "group4" else photograph()
    data = encode(image, "TIFF", compression=compression)
    assert same(decode_image(data), Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("rows_per_strip", [1, 10, 23])
def test_a_tiff_of_several_strips_is_put_together(rows_per_strip, big):
    options = {"strip_size": 37 * 3 * rows_per_strip, "big_tiff": big}
    assert same(decode_image(encode(photograph(), "TIFF", **options)), photograph())


@pytest.mark.parametrize("mode", ["P", "1", "L", "RGB"])
def test_a_bmp_of_each_depth_gives_the_pixels_that_pillow_gives(mode):
    image = photograph().convert(mode)
    assert same(decode_image(encode(image, "BMP")), image.convert("RGB"))


def test_a_bmp_whose_alpha_was_left_zero_is_opaque():
    data = encode(Image.new("RGBA", (2, 2), (10, 20, 30, 0)), "BMP")
    bitfields = struct.pack("<LLLL", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = bytearray(struct.pack("<L", 56) + data[18:54] + bitfields)
    header[16:20] = struct.pack("<L", 3)
    file = data[:10] + struct.pack("<L", 14 + 56) + bytes(header) + data[54:]
    assert Image.open(io.BytesIO(file)).mode == "RGBA"
    assert same(decode_image(file), Image.new("RGB", (2, 2), (10, 20, 30)))


def with_orientation(image, image_format, orientation):
    """Save `image` such that a reader has to apply EXIF `orientation` to see it."""
    inverse = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    stored = image if orientation == 1 else image.transpose(Image.Transpose(inverse[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    if image_format == "TIFF":
        return encode(stored, "TIFF", tiffinfo={0x0112: orientation})
    return encode(stored, image_format, exif=exif, **LOSSLESS[image_format])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["PNG", "WEBP", "TIFF"])
def test_the_eight_orientations_give_the_same_upright_picture(image_format, orientation):
    image = photograph()
    assert same(decode_image(with_orientation(image, image_format, orientation)), image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_is_turned_upright(orientation):
    image = Image.new("RGB", (32, 16), "white")
    image.paste((255, 0, 0), (0, 0, 8, 8))
    stored = Image.open(io.BytesIO(with_orientation(image, "PNG", orientation)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    result = decode_image(encode(stored, "JPEG", quality=100, subsampling=0, exif=exif))
    assert result.size == (32, 16)
    assert np.abs(np.asarray(result).astype(int) - np.asarray(image)).max() <= 3


@pytest.mark.parametrize("animated", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_is_the_picture(animated):
    first, second = Image.new("RGB", (12, 9), (250, 0, 0)), Image.new("RGB", (12, 9), (0, 0, 250))
    data = encode(first, animated, save_all=True, append_images=[second], **LOSSLESS.get(animated, {}))
    assert Image.open(io.BytesIO(data)).n_frames == 2
    assert same(decode_image(data), first)


def test_a_transparent_gif_lies_on_white():
    image = Image.new("P", (2, 1))
    image.putpalette([9, 8, 7, 1, 2, 3])
    image.putdata([0, 1])
    assert np.asarray(decode_image(encode(image, "GIF", transparency=0)))[0].tolist() == [[255] * 3, [1, 2, 3]]


def test_a_gif_frame_larger_than_its_screen_enlarges_the_picture():
    data = bytearray(encode(photograph().convert("L"), "GIF"))
    data[6:10] = struct.pack("<HH", 5, 5)
    assert same(decode_image(bytes(data)), photograph().convert("L").convert("RGB"))


def chunk(kind, payload):
    return struct.pack(">L", len(payload)) + kind + payload + struct.pack(">L", zlib.crc32(kind + payload))


def png(width, height, depth, colour_type, rows, *extra):
    header = struct.pack(">LLBBBBB", width, height, depth, colour_type, 0, 0, 0)
    pixels = b"".join(b"\0" + row for row in rows)
    chunks = [chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(pixels)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(("depth", "row"), [(1, 0b01000000), (2, 0b00110000), (4, 0b00001111)])
def test_the_transparent_level_of_a_png_of_few_bits_counts_in_those_bits(depth, row):
    white = (1 << depth) - 1
    data = png(2, 1, depth, 0, [bytes([row])], chunk(b"tRNS", struct.pack(">H", 0)))
    assert np.asarray(decode_image(data))[0, :, 0].tolist() == [255, 255]
    data = png(2, 1, depth, 0, [bytes([row])], chunk(b"tRNS", struct.pack(">H", white)))
    assert np.asarray(decode_image(data))[0, :, 0].tolist() == [0, 255]


def test_16_bit_colour_keeps_its_high_byte_in_colour_and_transparency():
    row = struct.pack(">6H", 0x12FF, 0x3400, 0x5680, 0xFFFF, 0, 0)
    assert np.asarray(decode_image(png(2, 1, 16, 2, [row]))).tolist() == [[[0x12, 0x34, 0x56], [255, 0, 0]]]
    data = png(2, 1, 16, 2, [row], chunk(b"tRNS", struct.pack(">3H", 0xFFFF, 0, 0)))
    assert np.asarray(decode_image(data)).tolist() == [[[0x12, 0x34, 0x56], [255, 255, 255]]]


def test_16_bit_grey_with_alpha_lies_on_white():
    data = png(2, 1, 16, 4, [struct.pack(">4H", 0, 0xFFFF, 0, 0)])
    assert np.asarray(decode_image(data))[0].tolist() == [[0] * 3, [255] * 3]


def test_chunks_that_have_nothing_to_do_with_pixels_are_not_even_unpacked():
    bomb = zlib.compress(bytes(2**24), 9)
    extra = [
        chunk(b"iCCP", b"x\0\0" + bomb),
        chunk(b"zTXt", b"x\0\0" + bomb),
        chunk(b"iTXt", b"x\0\1\0\0\0" + bomb),
        chunk(b"acTL", b"\0" * 8),
        chunk(b"fcTL", b"\0" * 3),
        chunk(b"tEXt", b"\xff" * 2**20)[:-1] + b"?",
    ]
    assert same(decode_image(png(1, 1, 8, 2, [b"\1\2\3"], *extra)), Image.new("RGB", (1, 1), (1, 2, 3)))


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\1\x12"]
)
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_a_broken_exif_block_does_not_spoil_a_good_picture(image_format, exif):
    options = LOSSLESS.get(image_format, {})
    data = encode(photograph(), image_format, exif=exif, **options)
    assert same(decode_image(data), decode_image(encode(photograph(), image_format, **options)))


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_a_senseless_orientation_leaves_the_picture_as_it_is(orientation):
    data = encode(photograph(), "TIFF", tiffinfo={0x0112: orientation})
    assert same(decode_image(data), photograph())


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_corrupt_colour_profile_is_ignored(image_format):
    options = LOSSLESS.get(image_format, {})
    data = encode(photograph(), image_format, icc_profile=b"not a profile" * 99, **options)
    assert same(decode_image(data), decode_image(encode(photograph(), image_format, **options)))


def test_metadata_that_pillow_warns_about_gives_no_warning():
    exif = Image.Exif()
    exif[0x010E] = "description" * 5
    broken = exif.tobytes()[:-30]
    tiff = TiffImagePlugin.ImageFileDirectory_v2()
    tiff[33432] = "copyright" * 9
    tags = encode(photograph(), "TIFF", tiffinfo=tiff)
    damaged = tags.replace(struct.pack("<HHL", 33432, 2, 82), struct.pack("<HHL", 33432, 2, 2**30))
    assert damaged != tags
    text = PngImagePlugin.PngInfo()
    text.add(b"acTL", bytes(8))
    text.add(b"eXIf", broken)
    files = [damaged, encode(photograph(), "PNG", pnginfo=text), encode(photograph(), "JPEG", exif=broken)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for data in files:
            Image.open(io.BytesIO(data)).getexif()
        warned, caught[:] = len(caught), []
        for data in files:
            decode_image(data)
    assert warned >= len(files)
    assert caught == []


def test_more_pixels_than_the_limit_are_refused_before_decoding():
    bomb = png(30_000, 30_000, 8, 0, [])
    with pytest.raises(ImageSizeError, match=r"^sky\.png: the picture is 30000x30000, 900,000,000 pixels.*max_pixels"):
        decode_image(bomb, name="sky.png")


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_limits_hold_to_the_pixel_and_to_the_byte(image_format):
    data = encode(photograph(), image_format)
    exactly = ImageLimits(max_bytes=len(data), max_pixels=37 * 23)
    assert decode_image(data, exactly).size == (37, 23)
    with pytest.raises(ImageSizeError, match="37x23, 851 pixels, the limit is 850"):
        decode_image(data, ImageLimits(max_pixels=850))
    with pytest.raises(ImageSizeError, match=rf"the limit is {len(data) - 1:,}; .*max_bytes"):
        decode_image(data, ImageLimits(max_bytes=len(data) - 1))


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "GIF", "BMP", "TIFF"])
def test_our_limit_counts_and_not_the_process_wide_one_of_pillow(image_format, monkeypatch):
    data = encode(photograph(), image_format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert decode_image(data).size == (37, 23)


def test_no_memory_for_the_pixels_is_a_size_error():
    with pytest.raises(ImageSizeError, match=r"^sky: there is not enough memory"), decoder_failures("sky", "failed"):
        Image.new("L", (2**31 - 1, 2**31 - 1))


def test_pillows_own_bound_is_a_size_error():
    with pytest.raises(ImageSizeError, match=r"^sky: .*MAX_IMAGE_PIXELS"), decoder_failures("sky", "failed"):
        Image.open(io.BytesIO(png(30_000, 30_000, 8, 0, [])))


@pytest.mark.parametrize("field", ["max_bytes", "max_pixels"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9", 2**31])
def test_a_senseless_limit_is_refused_with_its_name_value_and_bound(field, value):
    with pytest.raises(ConfigurationError, match=rf"ImageLimits\.{field} is .*from 1 to [\d,]+$"):
        ImageLimits(**{field: value})


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_header_tells_format_and_size_without_decoding(image_format):
    header = read_header(encode(photograph(), image_format))
    assert (header.format, header.width, header.height, header.orientation) == (image_format, 37, 23, 1)


def test_a_jpeg_among_other_pictures_in_one_file_is_the_first():
    data = encode(photograph(), "JPEG")
    mpo = encode(photograph(), "MPO", save_all=True, append_images=[Image.new("RGB", (64, 64))])
    assert same(decode_image(mpo), decode_image(data))
    assert same(decode_image(data + b"\0" * 100 + b"motion photo"), decode_image(data))


def test_many_threads_at_once_get_the_right_pixels_and_no_filter_changes():
    pictures = [photograph(200, 150, seed) for seed in range(8)]
    files = [encode(image, name, **LOSSLESS[name]) for image in pictures for name in LOSSLESS]
    filters = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(decode_image, files * 4))
    expected = [image for image in pictures for _ in LOSSLESS] * 4
    assert all(same(result, image) for result, image in zip(results, expected, strict=True))
    assert warnings.filters == filters


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"hello, world", "not a picture"),
        (b"%PDF-1.7", "PDF"),
        (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"\xef\xbb\xbf \n<SVG>", "SVG"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "AVIF"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", "video"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"P6 1 1 255\n\0\0\0", "not a picture"),
    ],
)
def test_another_kind_of_file_is_named_with_the_formats_that_are_read(data, kind):
    with pytest.raises(UnreadableImageError) as caught:
        decode_image(data, name="upload")
    message = str(caught.value)
    assert message.startswith("upload: ")
    assert kind in message
    assert not data or "JPEG, PNG, WebP, GIF, BMP and TIFF are read" in message
