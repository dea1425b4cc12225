"""Which way pictures come in: all on the CPU, or onto the model's device with JPEGs decoded there."""

import os
from io import BytesIO
from typing import Final

import torch
from PIL import Image

from foveate.errors import ConfigurationError, DeviceError, MissingExtraError
from foveate.images import ImageLimits, JpegDecoder, NvImageCodec, decode_image
from foveate.models.lfm2_vl.device_pictures import DevicePictures
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pictures import HostPictures, Pictures

IMAGE_DECODERS: Final = ("auto", "cpu", "gpu")
_MOST_THREADS: Final = 8
_MOST_LEVELS: Final = 1


def choose_pictures(
    settings: ImageSettings, limits: ImageLimits, device: torch.device, dtype: torch.dtype, image_decoder: str = "auto"
) -> Pictures:
    """Return what decodes and cuts pictures for a model of `dtype` on `device`; see `find_jpeg_decoder`."""
    decoder = find_jpeg_decoder(image_decoder, device)
    if device.type != "cuda":
        return HostPictures(settings, limits)
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    return DevicePictures(settings, limits, device, dtype, decoder=decoder, threads=threads)


def find_jpeg_decoder(image_decoder: str, device: torch.device) -> JpegDecoder | None:
    """Return the JPEG decoder of a device; None for the CPU's.

    `image_decoder` is `auto` (the GPU's where its package is installed and gives Pillow's pixels), `cpu` or `gpu`.

    Raises:
        ConfigurationError: `image_decoder` is none of these.
        DeviceError: The GPU's was asked for and the model is not on one.
        MissingExtraError: The GPU's was asked for and it is not installed, or does not work.
    """
    if image_decoder not in IMAGE_DECODERS:
        raise ConfigurationError(f"image_decoder is {image_decoder!r}; allowed are {', '.join(IMAGE_DECODERS)}")
    if image_decoder == "gpu" and device.type != "cuda":
        raise DeviceError(f"image_decoder is 'gpu', but the model is on {device}; use auto or cpu")
    if image_decoder == "cpu" or device.type != "cuda":
        return None
    try:
        decoder = NvImageCodec(device.index or 0)
        check_jpeg_decoder(decoder, device)
    except MissingExtraError:
        if image_decoder == "gpu":
            raise
        return None
    return decoder


def check_jpeg_decoder(decoder: JpegDecoder, device: torch.device) -> None:
    """Raise MissingExtraError unless a decoder gives Pillow's pixels, to a level, for a small JPEG of bright colours.

    Parts of it that are missing show here, and so does one that repeats chroma samples instead of interpolating them.
    """
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    file = _test_file()
    try:
        (decoded,) = decoder.decode([file], stream)
        pixels = torch.utils.dlpack.from_dlpack(decoded).cpu()
    except Exception as error:  # None, too, which stands for a file that was not decoded
        raise MissingExtraError(
            f"{decoder.name} does not decode a plain JPEG on {device}; "
            "install its parts with: pip install --upgrade 'foveate[cuda]'"
        ) from error
    image = decode_image(file)
    expected = torch.tensor(list(image.tobytes())).view(image.height, image.width, 3)
    if pixels.shape != expected.shape or (pixels - expected).abs().max() > _MOST_LEVELS:
        raise MissingExtraError(
            f"{decoder.name} gives other pixels than Pillow on {device}; "
            "install the versions that Foveate names: pip install --upgrade 'foveate[cuda]'"
        )


def _test_file() -> bytes:
    """Return a JPEG of 4:2:0 chroma, 64x64 pixels, whose hue changes everywhere."""
    ramp = Image.linear_gradient("L").resize((64, 64))
    image = Image.merge("RGB", (ramp, ramp.rotate(90), ramp.rotate(180)))
    file = BytesIO()
    image.save(file, "JPEG", quality=92, subsampling=2)
    return file.getvalue()
