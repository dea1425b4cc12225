"""Only JPEGs of which every good decoder makes the same pixels are called plain."""

import io

import numpy as np
import pytest
from PIL import Image

from foveate.images import read_header
from foveate.images.formats.jpeg_kinds import first_mark

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8))
ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"


def jpeg(image=NOISE, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def changed(old, new, data=None):
    data = jpeg() if data is None else data
    assert data.count(old) == 1, "the file has what the test changes"
    return data.replace(old, new)


SIZE = b"\xff\xc0\x00\x11\x08\x00\x30\x00\x40\x03"
PLAIN = {
    "4:2:0": jpeg(),
    "4:2:2": jpeg(subsampling=1),
    "4:4:4": jpeg(subsampling=0),
    "grey": jpeg(NOISE.convert("L")),
    "restart marks": jpeg(restart_marker_rows=1),
    "Adobe's YCbCr": changed(b"\xff\xdb", ADOBE + b"\x01\xff\xdb", jpeg(qtables=[[1] * 64])),
    "32 pixels a side": jpeg(NOISE.crop((0, 0, 32, 32))),
}
OTHERS = {
    "progressive": jpeg(progressive=True),
    "CMYK": jpeg(NOISE.convert("CMYK")),
    "stored as RGB": jpeg(keep_rgb=True),
    "Adobe's RGB": changed(b"\xff\xdb", ADOBE + b"\x00\xff\xdb", jpeg(qtables=[[1] * 64])),
    "components of other numbers": changed(SIZE + b"\x01", SIZE + b"\x00"),
    "4:4:0": changed(SIZE + b"\x01\x22", SIZE + b"\x01\x12"),
    "4:1:1": changed(SIZE + b"\x01\x22", SIZE + b"\x01\x41"),
    "chroma that is not subsampled alike": changed(b"\x02\x11\x01\x03\x11\x01", b"\x02\x21\x01\x03\x11\x01"),
    "12 bits": changed(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c"),
    "arithmetic coding": changed(b"\xff\xc0\x00\x11", b"\xff\xc9\x00\x11"),
    "fewer than 32 pixels a side": jpeg(NOISE.crop((0, 0, 64, 31))),
    "no quantisation tables": jpeg().replace(b"\xff\xdb", b"\xff\xec"),
    "no Huffman tables": jpeg().replace(b"\xff\xc4", b"\xff\xec"),
    "another quantisation table than its own": changed(SIZE + b"\x01\x22\x00", SIZE + b"\x01\x22\x03"),
    "another Huffman table than its own": changed(b"\xff\xda\x00\x0c\x03\x01\x00", b"\xff\xda\x00\x0c\x03\x01\x20"),
    "a table that is cut short": jpeg(qtables=[[1] * 64]).replace(b"\xff\xdb\x00\x43\x00", b"\xff\xdb\x00\x43\x10"),
    "several scans": jpeg()[:-2] + b"\xff\xda\x00\x0c\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00\xff\xd9",
    "a mark among the coded pixels": jpeg()[:-2] + b"\xff\xc4\x00\x02\x00\xff\xd9",
}


@pytest.mark.parametrize("kind", PLAIN)
def test_ordinary_files_are_plain(kind):
    assert read_header(PLAIN[kind]).is_plain_jpeg


@pytest.mark.parametrize("kind", OTHERS)
def test_files_whose_pixels_may_depend_on_the_decoder_are_not(kind):
    assert not read_header(OTHERS[kind]).is_plain_jpeg


def test_other_formats_are_not():
    file = io.BytesIO()
    NOISE.save(file, "PNG")
    assert not read_header(file.getvalue()).is_plain_jpeg


def test_what_follows_the_first_picture_is_not_given_to_a_decoder():
    assert read_header(jpeg() + jpeg(NOISE.rotate(90))).data == read_header(jpeg()).data


@pytest.mark.parametrize("length", [0, 1, 2**20 - 2, 2**20 - 1, 2**20, 2**20 + 1])
def test_the_first_mark_is_found_wherever_the_search_is_cut(length):
    assert first_mark(b"\xff\xd9" + b"\0" * length + b"\xff\xff\0\xff\xd3\xff\xda", 2) == (length + 7, 0xDA)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\0\xff\0\xff\xff\xff"])
def test_no_mark_is_found_where_there_is_none(data):
    assert first_mark(data, 0) == (-1, 0)
