"""`foveate bench latency` and `foveate bench throughput`."""

import json

import numpy as np
import pytest
from PIL import Image

QUICK = ("--device", "cpu", "--sizes", "64x64,96x64", "--rounds", "1")
STAGES = ["identify", "decode_images", "pixels", "prompt", "waiting", "encode", "prefill"]


def test_latency_times_one_request_at_a_time_in_both_ways(foveate):
    result = foveate("bench", "latency", *QUICK, "--output-tokens", "1,3")
    assert (result.code, result.err) == (0, "")
    for words in (
        "64x64, 1 token, 1 at once",
        "96x64, 3 tokens, 1 at once",
        "graph",
        "eager",
        "No CUDA here",
        "encode ",
    ):
        assert words in result.out


def test_json_is_one_line_with_stages_and_rates_of_every_load(foveate):
    result = foveate("bench", "throughput", *QUICK, "--output-tokens", "3", "--concurrency", "1,2", "--json")
    assert (result.code, result.out.count("\n")) == (0, 1)
    report = json.loads(result.out)
    assert report["machine"]["libraries"]["torch"]
    assert set(report["engine_start_s"]) == {"graph", "eager"}
    loads = [(row["pictures"], row["output_tokens"], row["at_once"]) for row in report["rows"]]
    assert loads == [("64x64", 3, 1), ("64x64", 3, 2), ("96x64", 3, 1), ("96x64", 3, 2)]
    for row in report["rows"]:
        assert row["prompt_tokens"] > row["image_tokens"] > 0
        for told in row["ways"].values():
            assert list(told["stages_ms"]) == [*STAGES, "decode"]
            first, whole = told["first_token_ms"]["median_ms"], told["round_ms"]["median_ms"]
            assert 0 < first < whole
            assert told["requests_per_s"] == pytest.approx(1e3 * row["at_once"] / whole, rel=0.05)
            assert told["tokens_per_s"] == pytest.approx(3e3 * row["at_once"] / whole, rel=0.05)


def test_a_folder_of_pictures_and_one_way(foveate, model, tmp_path):
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (50, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "notes.txt").write_text("no picture")
    options = ("--model", model, "--pictures", str(tmp_path), "--graphs", "off", "--rounds", "1", "--device", "cpu")
    report = json.loads(foveate("bench", "latency", *options, "--output-tokens", "2", "--json").out)
    assert [row["pictures"] for row in report["rows"]] == [tmp_path.name]
    assert list(report["rows"][0]["ways"]) == ["eager"]
    assert report["rows"][0]["ways"]["eager"]["between_tokens_ms"]["median_ms"] > 0


def test_out_leaves_the_json_and_the_drawing(foveate, tmp_path):
    out = tmp_path / "new" / "folder"
    result = foveate("bench", "latency", *QUICK, "--output-tokens", "1", "--graphs", "on", "--out", str(out))
    assert result.code == 0
    assert json.loads((out / "latency.json").read_text())["rows"]
    drawing = (out / "latency.svg").read_text()
    assert "64x64, 1 token, 1 at once" in drawing
    assert f"written: {out / 'latency.json'}, {out / 'latency.svg'}" in result.out


WRONG = {
    ("--sizes", "512"): "sizes is '512'",
    ("--sizes", "8x8"): "from 16 to 8192 pixels",
    ("--output-tokens", "many"): "output_tokens is 'many'",
    ("--output-tokens", "0"): "from 1 to 4096",
    ("--graphs", "perhaps"): "give on, off or both",
    ("--rounds", "0"): "rounds is 0",
    ("--pictures", "/nowhere"): "is no folder",
    ("--sizes", "0x0"): "sizes is 0x0",
    ("--compilation-config", '{"cudagraph_mm_encoder": false}', "--layout", "tiny"): "leaves the encoder graphs off",
    ("--model", "x/y", "--layout", "tiny"): "give one of them",
    ("--layout", "huge"): "huge",
    ("--device", "tpu"): "device is 'tpu'",
}


@pytest.mark.parametrize("options", WRONG, ids=" ".join)
def test_wrong_options_are_one_line_with_the_bound(foveate, options):
    result = foveate("bench", "latency", "--device", "cpu", *options)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert WRONG[options] in result.err


def test_a_folder_without_pictures_is_refused(foveate, tmp_path):
    result = foveate("bench", "throughput", "--device", "cpu", "--pictures", str(tmp_path))
    assert result.code == 2
    assert "holds no picture" in result.err


def test_a_picture_that_cannot_be_used_is_named(foveate, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no more")
    result = foveate("bench", "latency", "--device", "cpu", "--pictures", str(tmp_path))
    assert result.code == 2
    assert "broken.jpg" in result.err


def test_a_drawing_that_cannot_be_written_is_one_line(foveate, tmp_path):
    (tmp_path / "latency.svg").mkdir()
    result = foveate("bench", "latency", *QUICK, "--output-tokens", "1", "--graphs", "off", "--out", str(tmp_path))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "latency.svg cannot be written" in result.err


def test_concurrency_out_of_bounds_is_called_by_its_name(foveate):
    result = foveate("bench", "throughput", "--device", "cpu", "--concurrency", "0")
    assert result.code == 2
    assert "concurrency is 0" in result.err
