"""`foveate bench encoder`."""

import json
import sys

import pytest

QUICK = ("bench", "encoder", "--device", "cpu", "--tiles", "1", "--rounds", "2")
WRONG_ENGINE = """
import torch
from types import SimpleNamespace as Space

__version__ = "0.0"

class LLM:
    def __init__(self, compilation_config, **_):
        def encode(**batch):
            return [torch.zeros(256, 128)]
        runner = Space(get_model=lambda: Space(embed_multimodal=encode))
        if compilation_config:
            runner.encoder_cudagraph_manager = Space(execute=lambda batch: encode())
        self.llm_engine = Space(model_executor=Space(driver_worker=Space(worker=Space(model_runner=runner))))
"""


def test_the_table_has_every_way_on_every_row_and_says_that_this_is_no_gpu(foveate):
    result = foveate(*QUICK)
    assert (result.code, result.err) == (0, "")
    assert "1 tile, 256 tokens" in result.out
    for words in (
        "eager",
        "graph",
        "transformers",
        "least possible",
        "median ms",
        "p95 ms",
        "No CUDA here",
        "ceilings",
    ):
        assert words in result.out
    assert "WRONG" not in result.out


def test_json_is_one_line_with_machine_ceilings_and_each_way_checked(foveate, model):
    result = foveate(*QUICK[:4], "--model", model, "--rounds", "1", "--json")
    assert (result.code, result.out.count("\n")) == (0, 1)
    report = json.loads(result.out)
    assert report["machine"]["libraries"]["torch"]
    assert report["ceilings"]["teraflops_per_s"] > 0
    assert report["graphs"]["backend"] == "eager"
    assert [row["tokens"] for row in report["rows"]] == [64, 256, 704]
    for row in report["rows"]:
        assert set(row["ways"]) == {"eager", "graph", "transformers"}
        assert all(way["is_right"] and 0 < way["min_ms"] <= way["median_ms"] for way in row["ways"].values())
        assert sum(row["budgets"]) - row["padded_tokens"] == row["tokens"]
        assert row["floor_ms"] > 0
    assert report["rows"][0]["ways"]["graph"]["error"] == 0


def test_out_leaves_the_json_and_the_drawings(foveate, tmp_path):
    result = foveate(*QUICK, "--with", "graph", "--out", tmp_path / "new" / "folder")
    assert result.code == 0
    names = {file.name for file in (tmp_path / "new" / "folder").iterdir()}
    assert names == {"encoder.json", "times.svg", "padding.svg", "places.svg"}
    report = json.loads((tmp_path / "new" / "folder" / "encoder.json").read_text())
    assert list(report["rows"][0]["ways"]) == ["eager", "graph"]


def test_without_matplotlib_the_json_is_left_and_what_to_install_is_told(foveate, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "foveate.bench.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = foveate(*QUICK, "--with", "eager", "--out", tmp_path)
    assert result.code == 0
    assert "no drawings: matplotlib is not installed" in result.out
    assert [file.name for file in tmp_path.iterdir()] == ["encoder.json"]


def test_wrong_features_are_marked_and_the_exit_code_is_3(foveate, tmp_path):
    (tmp_path / "vllm.py").write_text(WRONG_ENGINE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    result = foveate(*QUICK, "--with", "vllm", "--vllm-python", python)
    assert result.code == 3
    for mode in ("vllm eager", "vllm graph", "vllm tuned"):
        assert f"WRONG: {mode}, 1 tile, 256 tokens: features are off by 1.0e+00; allowed is 0.0001" in result.out


def test_an_engine_that_is_not_there_is_one_sentence_and_the_rest_is_measured(foveate):
    result = foveate(*QUICK, "--with", "eager,vllm", "--vllm-python", "no-such-python", "--json")
    report = json.loads(result.out)
    assert result.code == 0
    assert report["left_out"] == {
        "vllm": "'no-such-python' cannot be started; name a Python that has vLLM with --vllm-python"
    }
    assert list(report["rows"][0]["ways"]) == ["eager"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--with", "eager,tensorrt"), "with holds 'tensorrt'; allowed are eager, graph"),
        (("--layout", "tiny", "--model", "x"), "both a model and a layout are given"),
        (("--layout", "LFM9"), "unknown checkpoint layout 'LFM9'"),
        (("--model", "/no/such"), "no folder /no/such"),
        (("--tiles", "one"), "tiles is 'one'; give whole numbers"),
        (("--tiles", "0"), "tiles holds 0; give 1 to 256"),
        (("--rounds", "0"), "rounds is 0; give at least 1"),
        (("--dtype", "int8"), "dtype is 'int8'"),
        (("--device", "cuda:99"), "'cuda:99'"),
        (("--out", "/dev/null/x"), "cannot be made"),
        (("--compilation-config", '{"budgets": 1}'), "unknown key 'budgets'"),
    ],
)
def test_options_that_cannot_be_are_told(complaint, options, words):
    base = () if "--device" in options else ("--device", "cpu")
    assert words in complaint("bench", "encoder", *base, *options)
