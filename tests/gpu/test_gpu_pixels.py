"""Pictures on the GPU: decoded, turned, resized and cut there, at most a level from what the CPU makes."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Lfm2VlImageProcessor

import foveate
from foveate.engine.pictures import choose_pictures, find_jpeg_decoder
from foveate.errors import ImageError, MissingExtraError
from foveate.images import ImageLimits, load_image
from foveate.models.lfm2_vl.device_pictures import DevicePictures
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pixels import image_patches
from foveate.testing import random_vlm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

GPU = torch.device("cuda", 0)
PHOTOGRAPH = Path(__file__).parents[2] / "examples" / "pictures" / "rocket-on-launch-pad.jpg"
SIZES = [(1920, 1080), (512, 512), (301, 203), (64, 64), (1000, 872), (3024, 4032)]
SUBSAMPLING = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def photograph(size: tuple[int, int] = (640, 480)) -> Image.Image:
    return Image.open(PHOTOGRAPH).convert("RGB").resize(size, Image.Resampling.LANCZOS)


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **{"quality": 92, **options})
    return file.getvalue()


def with_orientation(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(photograph(), exif=exif)


@pytest.fixture(scope="module")
def decoder() -> Any:
    """Return nvImageCodec's decoder, which has been checked against Pillow."""
    try:
        return find_jpeg_decoder("gpu", GPU)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture
def maker(decoder: Any) -> DevicePictures:
    return DevicePictures(ImageSettings(), ImageLimits(), GPU, torch.float32, decoder=decoder)


def without_a_decoder(settings: ImageSettings) -> DevicePictures:
    return DevicePictures(settings, ImageLimits(), GPU, torch.float32)


def levels_apart(pixels: torch.Tensor, source: Any) -> torch.Tensor:
    expected = torch.from_numpy(np.array(load_image(source)))
    assert pixels.shape == expected.shape
    assert pixels.device == GPU
    return (pixels.cpu().int() - expected.int()).abs()


def patch_levels_apart(ours: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    return ((ours.cpu() - reference.cpu()) * 127.5).round().abs()


@pytest.mark.parametrize("size", [*SIZES, (32, 32), (33, 47), (5000, 4000)], ids=str)
@pytest.mark.parametrize("subsampling", SUBSAMPLING)
def test_an_ordinary_jpeg_is_at_most_a_level_from_pillow(maker, subsampling, size):
    file = jpeg(photograph(size), subsampling=SUBSAMPLING[subsampling])
    assert levels_apart(maker.decode([file])[0], file).max() <= 1
    assert maker.counts == {"gpu": 1}


@pytest.mark.parametrize("options", [{"quality": 30}, {"quality": 100}, {"restart_marker_rows": 1}, {"optimize": True}])
def test_however_it_was_compressed(maker, options):
    file = jpeg(photograph(), **options)
    assert levels_apart(maker.decode([file])[0], file).max() <= 1
    assert maker.counts == {"gpu": 1}


def test_noise_in_full_colour_is_at_most_a_level_from_pillow(maker):
    file = jpeg(Image.fromarray(np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)))
    assert levels_apart(maker.decode([file])[0], file).max() <= 1


def test_grey_is_decoded_on_the_gpu_as_three_equal_channels(maker):
    file = jpeg(photograph().convert("L"))
    (pixels,) = maker.decode([file])
    assert levels_apart(pixels, file).max() <= 1
    assert torch.equal(pixels[..., 0], pixels[..., 2])
    assert maker.counts == {"gpu": 1}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_come_upright(maker, orientation):
    file = with_orientation(orientation)
    assert levels_apart(maker.decode([file])[0], file).max() <= 1
    assert maker.counts == {"gpu": 1}


OTHERS: dict[str, Callable[[], bytes]] = {
    "progressive": lambda: jpeg(photograph(), progressive=True),
    "CMYK": lambda: jpeg(photograph().convert("CMYK")),
    "narrow": lambda: jpeg(photograph((31, 200))),
    "one pixel": lambda: jpeg(photograph((1, 1))),
    "very large": lambda: jpeg(photograph((6200, 6200)), quality=50),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_jpegs_are_pillows_bit_for_bit(maker, kind):
    file = OTHERS[kind]()
    (pixels,) = maker.decode([file])
    assert np.array_equal(pixels.cpu().numpy(), np.array(load_image(file)))
    assert maker.counts == {"cpu": 1}


DAMAGES = ("cut off", "cut off and closed", "noise in the middle", "no Huffman tables", "no quantisation tables")


def damaged_files() -> dict[str, bytes]:
    file = jpeg(photograph())
    noise, middle = np.random.default_rng(0).bytes(2000).replace(b"\xff", b"\xfe"), len(file) // 2
    return {
        "cut off": file[: len(file) // 2],
        "cut off and closed": file[: len(file) // 2] + b"\xff\xd9",
        "noise in the middle": file[:middle] + noise + file[middle + 2000 :],
        "no Huffman tables": file.replace(b"\xff\xc4", b"\xff\xec"),
        "no quantisation tables": file.replace(b"\xff\xdb", b"\xff\xec"),
    }


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or what it complains of."""
    try:
        return call()
    except ImageError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_gives_the_error_that_it_gives_on_the_cpu_or_a_picture_where_that_does(maker, kind):
    file = damaged_files()[kind]
    assert outcome(lambda: maker.decode([file])[0].shape[:2]) == outcome(lambda: load_image(file).size[::-1])
    good = jpeg(photograph((200, 200)))
    assert levels_apart(maker.decode([good])[0], good).max() <= 1, "the next picture is harmed"


def test_a_batch_of_all_kinds_comes_back_in_order(maker):
    sources = [jpeg(photograph((300 + 40 * index, 200))) for index in range(12)]
    sources[3], sources[7], sources[9] = photograph((99, 77)), jpeg(photograph(), progressive=True), with_orientation(6)
    assert all(levels_apart(*pair).max() <= 1 for pair in zip(maker.decode(sources), sources, strict=True))
    assert maker.counts == {"gpu": 10, "cpu": 2}


def test_decoding_the_same_pictures_again_takes_no_more_memory(maker):
    files = [jpeg(photograph((1920, 1080))), jpeg(photograph(), progressive=True)]

    def free_bytes() -> tuple[int, int]:
        """Bytes that the decoder has not taken, and those that torch's tensors have not; what torch keeps is free."""
        for _ in range(5):
            maker.patches(maker.decode(files))
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved(), -torch.cuda.memory_allocated()

    before = free_bytes()
    for _ in range(10):
        after = free_bytes()
    assert all(early - late < 16 * 2**20 for early, late in zip(before, after, strict=True)), (before, after)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resample", [0, 2, 3])
def test_patches_are_the_references_on_the_gpu(resample, size):
    picture, settings = photograph(size), ImageSettings(resample=resample)
    ours = without_a_decoder(settings)
    (made,) = ours.patches(ours.decode([picture]))
    reference = Lfm2VlImageProcessor(resample=resample)([picture], return_tensors="pt", device="cuda")
    tiles = zip(reference["pixel_values"], reference["pixel_attention_mask"], strict=True)
    apart = patch_levels_apart(made.patches, torch.cat([tile[mask.bool()] for tile, mask in tiles]))
    assert apart.max() <= 1
    assert (apart > 0).float().mean() <= 0.01


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resample", [0, 2, 3])
def test_patches_are_the_cpus_to_a_level_in_a_fifth_of_the_values(resample, size):
    """Bicubic alone may be further off, in one value of a hundred: the CPU's resize cuts off overshoot twice."""
    picture, settings = photograph(size), ImageSettings(resample=resample)
    ours = without_a_decoder(settings)
    apart = patch_levels_apart(
        ours.patches(ours.decode([picture]))[0].patches, image_patches(picture, settings).patches
    )
    assert (apart > 0).float().mean() <= 0.2
    assert (apart > 1).float().mean() <= (0.01 if resample == 3 else 0)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_cutting_a_picture_never_waits_for_the_gpu():
    ours = choose_pictures(ImageSettings(), ImageLimits(), GPU, torch.bfloat16, "cpu")
    pictures = ours.decode([photograph((1920, 1080)), photograph((300, 200))])
    ours.patches(pictures)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        patches = ours.patches(pictures)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(each.patches.device == GPU and each.patches.dtype == torch.bfloat16 for each in patches)


def test_a_model_takes_pictures_by_the_gpu_and_by_the_cpu_and_says_the_same():
    graphs: dict[str, Any] = {"cudagraph_mm_encoder": False}
    answers = {}
    for choice in ("auto", "cpu"):
        vlm = random_vlm("tiny", device="cuda", dtype="float32", compilation_config=graphs, image_decoder=choice)
        sampling = foveate.SamplingParams(max_tokens=8, ignore_stop_tokens=True)
        answers[choice] = vlm.describe(jpeg(photograph()), photograph((900, 700)), sampling=sampling)
    assert answers["auto"].prompt_tokens == answers["cpu"].prompt_tokens
    assert len(answers["auto"].token_ids) == len(answers["cpu"].token_ids) == 8
