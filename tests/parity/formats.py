"""One picture of each kind of pixels, with the RGB picture that it stands for."""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from tests.parity.pictures import picture

Case = tuple[bytes | Image.Image, Image.Image, Image.Image]
"""What is given to Foveate, the RGB picture it shows, and what is given to the reference: a Pillow picture."""

WIDTH, HEIGHT = 80, 60


def _grey() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)


def _rgb_of(grey: np.ndarray) -> Image.Image:
    return Image.fromarray(np.repeat(grey[..., None], 3, 2))


def _palette() -> Case:
    image = picture(WIDTH, HEIGHT).quantize(64)
    colours = np.array(image.getpalette()).reshape(-1, 3).astype(np.uint8)
    return image, Image.fromarray(colours[np.asarray(image)]), image


def _one_bit() -> Case:
    bits = _grey() > 127
    image = Image.fromarray(bits)
    assert image.mode == "1"
    return image, _rgb_of(bits.astype(np.uint8) * 255), image


def _grey_16_bit() -> Case:
    levels = np.random.default_rng(2).integers(0, 65536, (HEIGHT, WIDTH), dtype=np.uint16)
    image = Image.fromarray(levels)
    assert image.mode == "I;16"
    return image, _rgb_of(np.round(levels / 257).astype(np.uint8)), image


def _cmyk() -> Case:
    image = picture(WIDTH, HEIGHT).convert("CMYK")
    return image, image.convert("RGB"), image


def _alpha() -> Case:
    pixels = np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)
    colour, alpha = pixels[..., :3].astype(np.float64), pixels[..., 3:] / 255.0
    on_white = np.round(colour * alpha + 255 * (1 - alpha)).astype(np.uint8)
    image = Image.fromarray(pixels)
    return image, Image.fromarray(on_white), image


def _animation() -> Case:
    frames = [picture(WIDTH, HEIGHT, seed).quantize(32) for seed in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=40)
    opened = Image.open(io.BytesIO(file.getvalue()))
    opened.seek(1)
    return file.getvalue(), frames[0].convert("RGB"), opened


def _turned() -> Case:
    """Lies on its side; its EXIF block says so."""
    upright, file = picture(WIDTH, HEIGHT), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(file, "PNG", exif=exif)
    return file.getvalue(), upright, Image.open(io.BytesIO(file.getvalue()))


FORMATS: dict[str, Callable[[], Case]] = {
    "palette": _palette,
    "1-bit": _one_bit,
    "16-bit grey": _grey_16_bit,
    "CMYK": _cmyk,
    "RGBA": _alpha,
    "animated GIF": _animation,
    "EXIF orientation": _turned,
}
