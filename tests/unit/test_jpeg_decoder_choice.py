"""Which JPEG decoder is taken, and what is said where the one that was asked for is not there or not right."""

import io
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import foveate
from foveate.engine.pictures import check_jpeg_decoder, choose_pictures, find_jpeg_decoder
from foveate.errors import ConfigurationError, DeviceError, MissingExtraError
from foveate.images import ImageLimits, NvImageCodec
from foveate.models.lfm2_vl.device_pictures import DevicePictures
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pictures import HostPictures

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
VERBOSITY = "PYNVIMGCODEC_VERBOSITY"


def pillow(file: bytes) -> Any:
    return np.array(Image.open(io.BytesIO(file)))


def nearest_chroma(file: bytes) -> Any:
    """Decode as a decoder does that repeats chroma samples."""
    luma, *chroma = Image.open(io.BytesIO(file)).convert("YCbCr").split()
    half = (luma.width // 2, luma.height // 2)
    coarse = [each.resize(half, Image.Resampling.BOX).resize(luma.size, Image.Resampling.NEAREST) for each in chroma]
    return np.array(Image.merge("YCbCr", (luma, *coarse)).convert("RGB"))


class FakeDecoder:
    name = "the fake"

    def __init__(self, decode_one: Any) -> None:
        self._decode_one = decode_one

    def decode(self, files: list[bytes], _stream: int) -> list[Any]:
        return [self._decode_one(file) for file in files]


class FakeCodec(ModuleType):
    """Stands for the package nvidia.nvimgcodec; its decoder is Pillow."""

    __version__ = "9.9"
    ColorSpec = SimpleNamespace(SRGB="sRGB")
    BackendKind = SimpleNamespace(HW_GPU_ONLY="hardware", GPU_ONLY="gpu", HYBRID_CPU_GPU="hybrid", CPU_ONLY="cpu")

    def __init__(self) -> None:
        super().__init__("nvidia.nvimgcodec")
        self.settings: dict[str, Any] = {}
        self.calls: list[dict[str, Any]] = []

    def Backend(self, kind: str) -> str:  # noqa: N802 - the package's names
        return kind

    def CodeStream(self, file: bytes) -> bytes:  # noqa: N802
        return file

    def DecodeParams(self, **params: Any) -> dict[str, Any]:  # noqa: N802
        return params

    def Decoder(self, **settings: Any) -> "FakeCodec":  # noqa: N802
        if settings["device_id"] > 0:
            raise RuntimeError("there is one device, at 0xdeadbeef")
        self.settings = settings
        return self

    def decode(self, streams: list[bytes], **options: Any) -> list[Any]:
        self.calls.append(options)
        return [pillow(stream) for stream in streams]


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch) -> FakeCodec:
    package = FakeCodec()
    monkeypatch.setitem(sys.modules, "nvidia", ModuleType("nvidia"))
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", package)
    return package


@pytest.fixture
def no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)


@pytest.mark.parametrize("choice", ["auto", "cpu"])
def test_a_model_on_the_cpu_has_its_pictures_from_pillow(choice):
    made = choose_pictures(ImageSettings(), ImageLimits(max_pixels=7), CPU, torch.float32, choice)
    assert isinstance(made, HostPictures)
    assert made.limits.max_pixels == 7


def test_a_gpus_decoder_needs_a_model_on_a_gpu(tiny):
    with pytest.raises(DeviceError, match="'gpu', but the model is on cpu"):
        foveate.load(tiny, device="cpu", image_decoder="gpu")


def test_a_choice_that_there_is_not_is_named_with_those_that_there_are(tiny):
    with pytest.raises(ConfigurationError, match="'GPU'; allowed are auto, cpu, gpu"):
        foveate.load(tiny, device="cpu", image_decoder="GPU")


@pytest.mark.usefixtures("no_codec")
def test_without_the_package_auto_takes_pillow_and_gpu_says_what_to_install():
    assert find_jpeg_decoder("auto", GPU) is None
    with pytest.raises(MissingExtraError, match=r"pip install 'foveate\[cuda\]'"):
        find_jpeg_decoder("gpu", GPU)


def test_the_packages_decoder_interpolates_chroma_and_leaves_the_rest_to_pillow(codec):
    decoder = NvImageCodec(0)
    assert decoder.name == "nvImageCodec 9.9"
    assert codec.settings["options"] == ":fancy_upsampling=1"
    assert codec.settings["backends"] == ["hardware"]


def test_it_decodes_on_the_stream_that_it_is_given_and_turns_nothing(codec):
    file = io.BytesIO()
    Image.new("RGB", (40, 40), (9, 99, 199)).save(file, "JPEG")
    (pixels,) = NvImageCodec(0).decode([file.getvalue()], 1234)
    assert np.array_equal(pixels, pillow(file.getvalue()))
    (call,) = codec.calls
    assert call["cuda_stream"] == 1234
    assert call["params"] == {"apply_exif_orientation": False, "color_spec": "sRGB", "allow_any_depth": False}


@pytest.mark.usefixtures("codec")
def test_a_decoder_that_cannot_be_made_is_a_missing_extra_without_the_packages_words():
    with pytest.raises(MissingExtraError, match=r"cannot decode on cuda:1 \(RuntimeError\)") as raised:
        NvImageCodec(1)
    assert "0xdeadbeef" not in str(raised.value)


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("before", [None, "3"])
def test_importing_the_package_leaves_environment_and_standard_error_as_they_were(before, monkeypatch, capfd):
    monkeypatch.delenv(VERBOSITY, raising=False)
    if before:
        monkeypatch.setenv(VERBOSITY, before)
    NvImageCodec(0)
    assert os.environ.get(VERBOSITY) == before
    os.write(2, b"still there")
    assert capfd.readouterr().err == "still there"


def test_a_decoder_that_gives_pillows_pixels_passes_the_check():
    check_jpeg_decoder(FakeDecoder(pillow), CPU)
    check_jpeg_decoder(FakeDecoder(lambda file: pillow(file) ^ 1), CPU)


@pytest.mark.parametrize(
    ("decode_one", "words"),
    [
        (nearest_chroma, "gives other pixels than Pillow"),
        (lambda file: pillow(file)[..., ::-1].copy(), "gives other pixels than Pillow"),
        (lambda file: pillow(file)[:32], "gives other pixels than Pillow"),
        (lambda _file: None, "does not decode a plain JPEG"),
        (lambda _file: 1 / 0, "does not decode a plain JPEG"),
    ],
    ids=["chroma repeated", "BGR", "half of it", "nothing", "raises"],
)
def test_a_decoder_that_does_not_is_refused(decode_one, words):
    with pytest.raises(MissingExtraError, match=words):
        check_jpeg_decoder(FakeDecoder(decode_one), CPU)


def test_answers_start_from_the_same_prompt_whoever_cuts_the_picture(tiny):
    vlm = foveate.load(tiny, device="cpu")
    usual = vlm.processor.pictures
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (80, 120, 3), dtype=np.uint8))
    answer = vlm.describe(picture)
    config = vlm.model.config
    vlm.processor.pictures = DevicePictures(config.images, usual.limits, CPU, torch.float32)
    assert vlm.describe(picture).prompt_tokens == answer.prompt_tokens
