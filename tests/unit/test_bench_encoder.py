"""What the encoder benchmark reckons, checks and leaves out."""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from foveate.bench.batches import MOST_TILES, TileRow, full_rows, published_rows
from foveate.bench.ceilings import Ceilings, measure_ceilings
from foveate.bench.checkpoint import encoder_checkpoint, encoder_layout
from foveate.bench.encoder import EncoderBenchmark
from foveate.bench.timing import paired_ratio, summary, time_rounds
from foveate.bench.vllm_peer import MODES, PeerError, VllmPeer
from foveate.bench.ways import TransformersWays, eager_way
from foveate.bench.work import encoder_flops, floor_ms, weight_elements
from foveate.checkpoints import LAYOUT_NAMES, layout
from foveate.checkpoints.writing import write_settings
from foveate.errors import ConfigurationError
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.model import Lfm2VlModel, load_model
from foveate.models.lfm2_vl.tiles import TileShape

CPU = torch.device("cpu")
CEILINGS = Ceilings(copy_terabytes_per_s=2.0, teraflops_per_s=100.0, dtype="float32")
SMALL = TileRow("small", (TileShape(16, 16), TileShape(8, 32)), (2,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder_checkpoint(tmp_path_factory.mktemp("bench") / "tiny", "tiny", "float32")


@pytest.fixture(scope="module")
def model(folder: Path) -> Lfm2VlModel:
    return load_model(folder, read_model_config(folder), device=CPU, dtype=torch.float32)


def benchmark(model, **others) -> EncoderBenchmark:
    return EncoderBenchmark(model, None, CEILINGS, others, rounds=1)


@torch.no_grad()
def test_the_operations_are_those_that_torch_counts_in_the_reference(folder, model):
    """One full tile, so that the reference pads nothing; its position table is a product too. Torch counts attention
    where it is made of plain products."""
    row, config = full_rows([1], model.config)[0], model.config
    call = TransformersWays(folder, CPU, torch.float32, 1024).eager(row.batch(config, CPU, torch.float32))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    position_table = 2 * row.num_patches * config.vision.position_grid**2 * config.vision.hidden_size
    assert counter.get_total_flops() == encoder_flops(config, row.tiles) + position_table


def test_the_weights_are_those_of_all_linear_layers(model):
    linear = [part for part in model.encoder.modules() if isinstance(part, torch.nn.Linear)]
    assert weight_elements(model.config) == sum(part.weight.numel() for part in linear)


def test_the_least_time_is_arithmetic_or_for_little_work_the_reading_of_the_weights(model):
    config, tile = model.config, TileShape(32, 32)
    arithmetic_ms = encoder_flops(config, [tile]) / 100e12 * 1e3
    assert floor_ms(config, [tile], CEILINGS, 4) == pytest.approx(arithmetic_ms)
    slow = Ceilings(copy_terabytes_per_s=1e-6, teraflops_per_s=100.0, dtype="float32")
    assert floor_ms(config, [tile], slow, 4) == pytest.approx(weight_elements(config) * 4 / 1e6 * 1e3)


def test_ceilings_are_measured_on_a_cpu_too():
    measured = measure_ceilings(CPU, torch.float32)
    assert measured.copy_terabytes_per_s > 0
    assert measured.teraflops_per_s > 0
    assert measured.dtype == "float32"


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_the_encoder_of_a_shortened_layout_is_that_of_the_whole_one(name, tmp_path):
    configs = []
    for index, chosen in enumerate((layout(name), encoder_layout(name))):
        (tmp_path / str(index)).mkdir()
        write_settings(tmp_path / str(index), chosen, "bfloat16")
        configs.append(read_model_config(tmp_path / str(index)))
    whole, short = configs
    assert (short.vision, short.projector, short.images) == (whole.vision, whole.projector, whole.images)
    assert short.language.hidden_size == whole.language.hidden_size
    assert short.language.layer_kinds == whole.language.layer_kinds[:3]


def test_rows_of_full_tiles_are_pictures_of_at_most_as_many_as_the_model_cuts(model):
    one, many = full_rows([1, 23], model.config)
    assert (one.name, one.tiles_per_image) == ("1 tile, 256 tokens", (1,))
    assert (many.name, many.tiles_per_image) == ("23 tiles, 5888 tokens", (10, 10, 3))


@pytest.mark.parametrize("count", [0, -1, MOST_TILES + 1])
def test_a_count_of_tiles_out_of_bounds_is_told(model, count):
    with pytest.raises(ConfigurationError, match=rf"tiles holds {count}; give 1 to {MOST_TILES}"):
        full_rows([count], model.config)


def test_published_rows_have_the_tiles_and_tokens_of_their_names(model):
    for row in published_rows():
        tiles = len(row.tiles)
        assert row.name == f"{tiles} tile{'s' * (tiles > 1)}, {row.tokens(model.config)} tokens"


def test_the_patches_of_a_row_are_the_same_at_every_call(model):
    first, second = (SMALL.batch(model.config, CPU, torch.float32).patches for _ in range(2))
    assert torch.equal(first, second)
    assert first.abs().max() <= 1


def test_calls_are_timed_in_turn_after_the_warm_ups():
    called: list[str] = []
    done: list[int] = []
    calls = {name: partial(called.append, name) for name in "ab"}
    times = time_rounds(calls, rounds=3, warm_ups=1, progress=done.append)
    assert called == ["a", "b"] * 4
    assert done == [1, 2, 3]
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


def test_a_summary_is_median_95th_percentile_and_least():
    values = [float(value) for value in range(100, -1, -1)]
    assert summary(values) == {"median_ms": 50.0, "p95_ms": 95.0, "min_ms": 0.0}


def test_a_ratio_compares_round_by_round():
    """A card that slows down in the second round slows both, and the ratio stays."""
    assert paired_ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == 0.5


def test_transformers_features_are_right_and_features_off_by_more_than_the_bound_are_marked(folder, model):
    reference = TransformersWays(folder, CPU, torch.float32, model.config.images.longest_tile_patches)
    eager = eager_way(model)
    others = {
        "transformers": lambda: reference.eager,
        "noisy": lambda: lambda batch: lambda: [eager(batch)()[0] * 1.01],
        "not a number": lambda: lambda batch: lambda: [eager(batch)()[0] * torch.nan],
        "another shape": lambda: lambda batch: lambda: [eager(batch)()[0][:-1]],
    }
    (row,) = benchmark(model, **others).measure([SMALL])
    assert {name: result.is_right for name, result in row.ways.items()} == {
        "eager": True,
        "transformers": True,
        "noisy": False,
        "not a number": False,
        "another shape": False,
    }
    assert row.ways["noisy"].error == pytest.approx(0.01, rel=1e-3)
    assert row.ways["not a number"].error is None
    assert row.ways["another shape"].error is None


def test_another_engine_that_fails_is_left_out_with_its_reason_and_ours_goes_on(model):
    def unloadable():
        raise OSError("no such engine\nand more")

    def failing(_batch):
        raise RuntimeError("out of memory")

    measured = benchmark(model, unloadable=unloadable, failing=lambda: failing)
    rows = measured.measure([SMALL, SMALL])
    assert [list(row.ways) for row in rows] == [["eager"], ["eager"]]
    assert measured.left_out == {
        "unloadable": "OSError: no such engine",
        "failing": "RuntimeError: out of memory",
    }


def test_a_fault_of_our_own_is_not_left_out(model, monkeypatch):
    measured = benchmark(model)
    monkeypatch.setattr(type(model.encoder), "encode", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measured.measure([SMALL])


ENGINE = """
import torch
from types import SimpleNamespace as Space

__version__ = "0.0"

def features(pixel_values, spatial_shapes, num_patches):
    tiles = [pixels[: rows * columns].sum(0, keepdim=True) for pixels, (rows, columns) in
             zip(pixel_values, spatial_shapes.tolist())]
    return [torch.cat(tiles[:count]) for count in num_patches.tolist()]

class Manager:
    def execute(self, batch):
        return [2 * rows for rows in features(**batch)]

class LLM:
    def __init__(self, model, dtype, compilation_config, **_):
        assert (dtype, len(open(model + "/config.json").read()) > 0) == ("float32", True)
        self.runner = runner = Space(get_model=lambda: Space(embed_multimodal=features))
        if compilation_config:
            runner.encoder_cudagraph_manager = Manager()
        worker = Space(worker=Space(model_runner=runner))
        self.llm_engine = Space(model_executor=Space(driver_worker=worker))

    def __del__(self):  # as vLLM shuts down when nobody holds it
        vars(self.runner).clear()
        Manager.execute = lambda *_: 1 / 0
"""


@pytest.fixture
def python_with(tmp_path):
    """Make a Python whose vLLM is the given text."""

    def make(text: str) -> str:
        (tmp_path / "vllm.py").write_text(text)
        command = tmp_path / "python"
        command.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
        command.chmod(0o755)
        return str(command)

    return make


@pytest.mark.parametrize("mode", ["vllm eager", "vllm tuned"])
def test_the_other_process_gets_every_patch_and_its_features_and_times_come_back(folder, model, python_with, mode):
    batches = [row.batch(model.config, CPU, torch.float32) for row in (SMALL, published_rows()[0])]
    found = VllmPeer(python_with(ENGINE), folder, torch.float32, rounds=2).measure(mode, batches, 1024)
    assert found.version == "0.0"
    assert [len(times) for times in found.times_ms] == [2, 2]
    factor = 2 if MODES[mode] else 1  # the stand-in's graph manager doubles, so that it is seen who answered
    for batch, features in zip(batches, found.features, strict=True):
        sums = [patches.sum(0) for patches in batch.patches.split([tile.num_patches for tile in batch.tiles])]
        torch.testing.assert_close(features, factor * torch.stack(sums))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ImportError('libcudart is missing')", "ended with code 1: ImportError: libcudart is missing"),
        ("import os; os._exit(7)", "ended with code 7: it said nothing"),
    ],
)
def test_a_broken_engine_is_one_sentence(folder, python_with, text, words):
    peer = VllmPeer(python_with(text), folder, torch.float32, rounds=1)
    with pytest.raises(PeerError, match=words):
        peer.measure("vllm eager", [], 1024)


def test_an_engine_without_encoder_graphs_is_told(folder, python_with):
    peer = VllmPeer(python_with(ENGINE.replace("if compilation_config", "if False")), folder, torch.float32, rounds=1)
    with pytest.raises(PeerError, match="no encoder graphs for LFM2-VL"):
        peer.measure("vllm graph", [], 1024)


def test_a_python_that_is_not_there_is_told(folder):
    with pytest.raises(PeerError, match="'no-such-python' cannot be started"):
        VllmPeer("no-such-python", folder, torch.float32, rounds=1)
