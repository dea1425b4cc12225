"""Each kind of pixels becomes the RGB values that the rules of `foveate.images.colour` state."""

import io

import numpy as np
import pytest
from PIL import Image

from foveate.errors import UnreadableImageError
from foveate.images import decode_image, to_rgb


def pixels(image):
    """Return the pixels, [height, width, 3], of an RGB picture."""
    assert image.mode == "RGB"
    return np.asarray(image)


def encode(image, image_format, **options):
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def on_white(colour, alpha):
    """Composite on white in exact arithmetic, rounded to nearest."""
    colour, alpha = np.asarray(colour, np.int64), np.asarray(alpha, np.int64)
    return (2 * (colour * alpha + 255 * (255 - alpha)) + 255) // 510


every_level = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
every_alpha = np.ascontiguousarray(every_level.T)


def test_rgb_is_returned_itself():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8))
    assert to_rgb(image) is image


def test_grey_is_repeated_in_each_channel():
    assert (pixels(to_rgb(Image.fromarray(every_level))) == every_level[..., None]).all()


def test_one_bit_pixels_become_black_and_white():
    bits = np.array([[0, 255, 255], [255, 0, 0]], np.uint8)
    assert (pixels(to_rgb(Image.fromarray(bits).convert("1"))) == bits[..., None]).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_every_colour_at_every_alpha_is_composited_on_white_and_rounded_to_nearest(mode):
    image = Image.merge(mode, [Image.fromarray(every_level)] * (len(mode) - 1) + [Image.fromarray(every_alpha)])
    assert (pixels(to_rgb(image)) == on_white(every_level, every_alpha)[..., None]).all()


def test_half_transparent_black_on_white_is_middle_grey():
    assert to_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 128))).getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize("mode", ["RGBa", "La"])
def test_premultiplied_colour_gets_the_white_that_shines_through(mode):
    image = Image.merge(mode, [Image.fromarray(every_level)] * (len(mode) - 1) + [Image.fromarray(every_alpha)])
    expected = np.minimum(every_level.astype(int) + 255 - every_alpha, 255)
    assert (pixels(to_rgb(image)) == expected[..., None]).all()


def test_the_fourth_channel_of_rgbx_means_nothing():
    image = Image.merge("RGBX", [Image.fromarray(every_level)] * 3 + [Image.fromarray(every_alpha)])
    assert (pixels(to_rgb(image)) == every_level[..., None]).all()


def palette_image(indices=((0, 1, 2),)):
    image = Image.fromarray(np.array(indices, np.uint8)).convert("P")
    image.putdata([index for row in indices for index in row])
    image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    return image


def test_a_palette_without_transparency_gives_its_colours():
    assert pixels(to_rgb(palette_image())).tolist() == [[[200, 0, 0], [0, 200, 0], [0, 0, 200]]]


@pytest.mark.parametrize(
    ("transparency", "expected"),
    [
        (1, [[200, 0, 0], [255, 255, 255], [0, 0, 200]]),
        (bytes([0, 255, 128]), [[255, 255, 255], [0, 200, 0], [127, 127, 227]]),
    ],
    ids=["index", "alpha-per-entry"],
)
@pytest.mark.parametrize("through_png", [False, True], ids=["in-memory", "png"])
def test_transparent_palette_entries_are_composited_on_white(transparency, expected, through_png):
    image = palette_image()
    image.info["transparency"] = transparency
    result = decode_image(encode(image, "PNG", transparency=transparency)) if through_png else to_rgb(image)
    assert pixels(result)[0].tolist() == expected


def test_turning_a_palette_picture_into_rgb_leaves_the_callers_picture_alone():
    image = palette_image()
    image.info["transparency"] = 1
    before = image.getpalette("RGBA"), image.tobytes(), dict(image.info)
    to_rgb(image)
    assert (image.getpalette("RGBA"), image.tobytes(), dict(image.info)) == before


def test_a_palette_with_an_alpha_channel_uses_it():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 255, 0, 0, 0, 0], "RGBA")
    image.putdata([0, 1])
    assert pixels(to_rgb(image)).tolist() == [[[10, 20, 30], [255, 255, 255]]]


def test_alpha_beside_palette_indices_is_composited_on_white():
    image = Image.merge("PA", [palette_image().convert("L"), Image.new("L", (3, 1), 0)])
    image.putalpha(Image.fromarray(np.array([[255, 0, 128]], np.uint8)))
    image.putpalette([200, 0, 0] * 256)
    assert pixels(to_rgb(image))[0].tolist() == [[200, 0, 0], [255, 255, 255], on_white([200, 0, 0], 128).tolist()]


@pytest.mark.parametrize(
    ("mode", "colours", "transparent"),
    [("L", [7, 9], 7), ("RGB", [(7, 8, 9), (7, 8, 10)], (7, 8, 9)), ("1", [255, 0], 255)],
)
def test_the_one_transparent_colour_of_a_png_becomes_white(mode, colours, transparent):
    image = Image.new(mode, (2, 1))
    image.putdata(colours)
    result = pixels(decode_image(encode(image, "PNG", transparency=transparent)))[0].tolist()
    assert result == [[255] * 3, list(np.broadcast_to(colours[1], 3))]


def test_every_16_bit_grey_level_is_divided_by_257_and_rounded():
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    expected = np.rint(levels / 257)
    assert (pixels(to_rgb(Image.fromarray(levels))) == expected[..., None]).all()


def test_eight_bit_levels_widened_to_16_bits_come_back_exactly():
    wide = (every_level * np.uint16(257)).astype(np.uint16)
    assert (pixels(to_rgb(Image.fromarray(wide))) == every_level[..., None]).all()


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B"])
def test_16_bit_grey_is_the_same_in_each_byte_order(mode):
    levels = np.array([[0, 256, 1000, 65535]], np.uint16)
    stored = levels.astype(">u2" if mode == "I;16B" else "<u2").tobytes()
    image = Image.frombytes(mode, (4, 1), stored)
    assert pixels(to_rgb(image))[0, :, 0].tolist() == [0, 1, 4, 255]


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
def test_a_file_of_16_bit_grey_decodes_by_the_same_rule(image_format):
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    data = encode(Image.fromarray(levels), image_format)
    assert (pixels(decode_image(data)) == np.rint(levels / 257)[..., None]).all()


def test_a_16_bit_png_compares_its_transparent_level_in_16_bits():
    image = Image.fromarray(np.array([[1000, 1001]], np.uint16))
    assert pixels(decode_image(encode(image, "PNG", transparency=1000)))[0, :, 0].tolist() == [255, 4]


def test_32_bit_levels_in_the_16_bit_range_are_read_as_16_bit_grey():
    image = Image.fromarray(np.array([[0, 128, 129, 65535]], np.int32))
    assert pixels(to_rgb(image))[0, :, 0].tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("levels", [[0, 65536], [-1, 100]])
def test_32_bit_levels_beyond_16_bits_are_refused_with_their_range(levels):
    image = Image.fromarray(np.array([levels], np.int32))
    with pytest.raises(UnreadableImageError, match=f"scan.tif: 32-bit grey levels from {levels[0]} to {levels[1]} "):
        to_rgb(image, "scan.tif")


def test_floating_point_pixels_are_refused_with_what_to_do():
    data = encode(Image.new("F", (2, 2), 0.5), "TIFF")
    with pytest.raises(UnreadableImageError, match=r"depth\.tif: floating-point .* scale them to 0\.\.255"):
        decode_image(data, name="depth.tif")


@pytest.mark.parametrize(
    ("cmyk", "expected"),
    [
        ((0, 0, 0, 0), (255, 255, 255)),
        ((0, 0, 0, 255), (0, 0, 0)),
        ((255, 0, 0, 0), (0, 255, 255)),
        ((0, 255, 255, 0), (255, 0, 0)),
        ((0, 128, 0, 100), (155, 77, 155)),
    ],
)
@pytest.mark.parametrize("image_format", [None, "TIFF", "JPEG"])
def test_known_inks_give_known_colours(cmyk, expected, image_format):
    image = Image.new("CMYK", (16, 16), cmyk)
    result = to_rgb(image) if image_format is None else decode_image(encode(image, image_format, quality=100))
    assert np.abs(pixels(result)[8, 8].astype(int) - expected).max() <= (2 if image_format == "JPEG" else 0)


@pytest.mark.parametrize("mode", ["YCbCr", "HSV", "LAB"])
def test_other_colour_spaces_convert_back_to_what_they_were_made_from(mode):
    colours = Image.new("RGB", (5, 1))
    colours.putdata([(255, 255, 255), (0, 0, 0), (200, 30, 60), (20, 90, 160), (128, 128, 128)])
    if mode == "LAB":
        image = Image.new("LAB", (3, 1))
        image.putdata([(255, 128, 128), (0, 128, 128), (137, 128, 128)])
        assert np.abs(pixels(to_rgb(image))[0].astype(int) - [[255] * 3, [0] * 3, [128] * 3]).max() <= 2
    else:
        difference = pixels(to_rgb(colours.convert(mode))).astype(int) - np.asarray(colours)
        assert np.abs(difference).max() <= 4


@pytest.mark.parametrize("mode", ["LAB", "CMYK"])
def test_a_tiff_in_another_colour_space_decodes_as_its_pixels_convert(mode):
    others = [Image.new("L", (256, 256), 120)] * (len(Image.new(mode, (1, 1)).getbands()) - 1)
    image = Image.merge(mode, [Image.fromarray(every_level), *others])
    assert (pixels(decode_image(encode(image, "TIFF"))) == pixels(to_rgb(image))).all()


def test_a_picture_whose_pixels_have_no_rule_is_refused_by_name():
    image = Image.new("RGB", (2, 2))
    image.info["transparency"] = "red"
    with pytest.raises(UnreadableImageError, match=r"^odd\.png: its pixels \(mode RGB\) cannot be turned into RGB$"):
        to_rgb(image, "odd.png")
