"""Pictures decoded onto a device: what the GPU's decoder gets, what becomes of its faults, and that nobody notices.

The device is the CPU and the decoder a fake, which is Pillow unless a test says otherwise.
"""

import io
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.errors import ImageError, ImageSizeError, UnreadableImageError
from foveate.images import ImageLimits, load_image
from foveate.models.lfm2_vl import device_pictures
from foveate.models.lfm2_vl.device_pictures import DevicePictures
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pixels import image_patches

CPU = torch.device("cpu")
WAIT_S = 60
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8))


def encode(image: Image.Image = NOISE, image_format: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def with_orientation(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(exif=exif)


def pillow(file: bytes) -> Any:
    return np.array(Image.open(io.BytesIO(file)).convert("RGB"))


def nothing(_file: bytes) -> None:
    return None


class FakeDecoder:
    """Decodes each file with a function; remembers what it was given."""

    name = "the fake"

    def __init__(self, decode_one: Callable[[bytes], Any] = pillow) -> None:
        self.files: list[bytes] = []
        self._decode_one = decode_one

    def decode(self, files: Sequence[bytes], stream: int) -> list[Any]:
        assert stream == 0
        self.files += files
        return [self._decode_one(file) for file in files]


def pictures(decoder: FakeDecoder | None = None, *, threads: int = 2, **limits: int) -> DevicePictures:
    return DevicePictures(ImageSettings(), ImageLimits(**limits), CPU, torch.float32, decoder=decoder, threads=threads)


def same(pixels: Any, source: Any) -> bool:
    return np.array_equal(pixels.numpy(), np.asarray(load_image(source)))


def complaint(call: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises(ImageError) as raised:
        call()
    return type(raised.value), str(raised.value)


OTHERS = {
    "progressive": encode(progressive=True),
    "CMYK": encode(NOISE.convert("CMYK")),
    "PNG": encode(image_format="PNG"),
    "16-bit PNG": encode(Image.fromarray(np.arange(4800, dtype=np.uint16).reshape(60, 80)), "PNG"),
    "transparent PNG": encode(NOISE.convert("RGBA"), "PNG"),
    "tiny": encode(NOISE.crop((0, 0, 5, 3))),
    "Pillow picture": NOISE,
    "array": np.array(NOISE),
}
DAMAGED = {
    "nothing": b"",
    "no picture": b"These are words.",
    "cut off": encode()[:-100],
    "cut off in the header": encode()[:200],
    "without quantisation tables": encode().replace(b"\xff\xdb", b"\xff\xec"),
    "no kind of picture": 7,
    "an address": "https://example.com/cat.jpg",
    "a file that is not there": "/there/is/no/such.jpg",
}


def test_an_ordinary_jpeg_is_decoded_by_the_gpus_decoder_and_has_the_same_pixels():
    decoder = FakeDecoder()
    maker, file = pictures(decoder), encode()
    (pixels,) = maker.decode([file])
    assert same(pixels, file)
    assert len(decoder.files) == 1
    assert maker.counts == {"gpu": 1}


def test_a_path_is_decoded_as_its_bytes(tmp_path):
    path = tmp_path / "noise.jpg"
    path.write_bytes(encode())
    maker = pictures(FakeDecoder())
    assert same(maker.decode([path])[0], path)
    assert maker.counts == {"gpu": 1}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_the_gpu_may_decode_in_another_way_it_does_not_get(kind):
    decoder = FakeDecoder()
    maker = pictures(decoder)
    assert same(maker.decode([OTHERS[kind]])[0], OTHERS[kind])
    assert decoder.files == []
    assert maker.counts == {"cpu": 1}


def test_without_a_decoder_the_cpu_decodes_everything():
    maker, file = pictures(), encode()
    assert same(maker.decode([file])[0], file)
    assert maker.counts == {"cpu": 1}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_come_upright_whoever_decodes_them(orientation):
    file = with_orientation(orientation)
    for decoder in (FakeDecoder(), None):
        assert same(pictures(decoder).decode([file])[0], file)


@pytest.mark.parametrize(
    "fault",
    [
        nothing,
        lambda _file: 1 / 0,
        lambda file: pillow(file)[:-1],
        lambda file: pillow(file)[..., :1],
        lambda file: pillow(file).astype(np.float32),
        lambda _file: "no pixels",
    ],
    ids=["not decoded", "raises", "a row is missing", "grey", "of another type", "of another kind"],
)
def test_where_the_gpus_decoder_fails_pillow_decodes(fault):
    maker, file = pictures(FakeDecoder(fault)), with_orientation(6)
    assert same(maker.decode([file])[0], file)
    assert maker.counts == {"fallback": 1}


def test_a_file_that_the_gpus_decoder_does_not_know_does_not_harm_its_neighbours():
    files = [encode(NOISE.rotate(angle)) for angle in (0, 90, 180)]
    decoder = FakeDecoder(lambda file: None if file == decoder.files[1] else pillow(file))
    maker = pictures(decoder)
    assert all(map(same, maker.decode(files), files))
    assert maker.counts == {"gpu": 2, "fallback": 1}


@pytest.mark.parametrize("kind", DAMAGED)
def test_bad_files_get_the_error_that_they_get_on_the_cpu(kind):
    bad = DAMAGED[kind]
    usual = complaint(lambda: load_image(bad))
    assert complaint(lambda: pictures(FakeDecoder(nothing)).decode([bad])) == usual
    assert complaint(lambda: pictures().decode([bad])) == usual


@pytest.mark.parametrize("limit", [{"max_pixels": 5399}, {"max_bytes": 100}])
def test_limits_are_checked_before_anything_is_decoded(limit):
    decoder = FakeDecoder()
    with pytest.raises(ImageSizeError):
        pictures(decoder, **limit).decode([encode()])
    assert decoder.files == []


def test_of_several_bad_pictures_the_first_is_named_wherever_it_is_decoded():
    good, late, early = encode(), DAMAGED["without quantisation tables"], DAMAGED["no picture"]
    for order in ([good, late, early], [good, early, late], [late, good, early]):
        usual = complaint(lambda order=order: [load_image(each) for each in order])
        for decoder in (FakeDecoder(nothing), None):
            maker = pictures(decoder)
            assert complaint(lambda order=order, maker=maker: maker.decode(order)) == usual


def test_pictures_of_all_kinds_come_back_in_their_order():
    sources = [encode(), *OTHERS.values(), with_orientation(3)]
    maker = pictures(FakeDecoder())
    assert all(map(same, maker.decode(sources), sources))
    assert maker.counts == {"gpu": 2, "cpu": len(OTHERS)}


def test_no_picture_is_no_picture():
    assert pictures(FakeDecoder()).decode([]) == []


def test_patches_are_at_most_a_level_from_the_cpus():
    maker, file = pictures(FakeDecoder()), encode(NOISE.resize((900, 700)))
    (made,) = maker.patches(maker.decode([file]))
    usual = image_patches(load_image(file), ImageSettings())
    assert made.grid == usual.grid
    assert ((made.patches - usual.patches) * 127.5).abs().max() < 1.01


def test_a_very_large_picture_is_decoded_on_the_host(monkeypatch):
    monkeypatch.setattr(device_pictures, "MOST_DEVICE_PIXELS", NOISE.width * NOISE.height - 1)
    decoder = FakeDecoder()
    maker = pictures(decoder)
    assert same(maker.decode([encode()])[0], encode())
    assert decoder.files == []


class Gate(Image.Image):
    """A picture whose pixels cannot be read before a gate is opened."""

    def __init__(self, begun: threading.Semaphore, gate: threading.Event) -> None:
        super().__init__()
        self.__dict__.update(NOISE.copy().__dict__)
        self._begun, self._gate, self.loads = begun, gate, 0

    def load(self) -> Any:
        if not self._gate.is_set():
            self.loads += 1
            self._begun.release()
            assert self._gate.wait(WAIT_S)
        return super().load()


def test_no_more_pictures_are_decoded_on_the_cpu_at_once_than_there_are_threads():
    begun, gate = threading.Semaphore(0), threading.Event()
    maker, sources = pictures(threads=2), [Gate(begun, gate) for _ in range(4)]
    callers = [threading.Thread(target=maker.decode, args=[sources[part::2]]) for part in range(2)]
    for caller in callers:
        caller.start()
    assert begun.acquire(timeout=WAIT_S)
    assert begun.acquire(timeout=WAIT_S)
    assert not begun.acquire(timeout=0.1), "a third one began"
    gate.set()
    for caller in callers:
        caller.join(WAIT_S)
    assert maker.counts == {"cpu": 4}


def test_after_an_error_pictures_that_have_not_begun_are_given_up():
    begun, gate = threading.Semaphore(0), threading.Event()
    maker, rest = pictures(threads=1), [Gate(begun, gate) for _ in range(3)]
    with pytest.raises(UnreadableImageError):
        maker.decode([DAMAGED["without quantisation tables"], *rest])
    gate.set()
    maker._pool.shutdown(wait=True)
    assert sum(each.loads for each in rest) <= 1


def test_many_threads_may_decode_at_once():
    maker, file, seen = pictures(FakeDecoder()), encode(), []

    def decode() -> None:
        for _ in range(20):
            of_file, of_picture = maker.decode([file, NOISE])
            seen.append(same(of_file, file) and same(of_picture, NOISE))

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert seen == [True] * 80
    assert maker.counts == {"gpu": 80, "cpu": 80}
