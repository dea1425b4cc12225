"""The promises of the encoder graphs on real CUDA graphs, at the true sizes of the 450M encoder.

A number in a name is that of the pitfall in docs/encoder-graphs.md; those without a GPU are in tests/graphs.
"""

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import GraphImageEncoder
from foveate.graphs import (
    CostStore,
    CudaGraphBackend,
    EncoderCudaGraphManager,
    EncoderGraphSettings,
    FixedCosts,
    MeasuredCosts,
    OutputRows,
)
from foveate.kernels.attention import packed_attention_reference
from foveate.models.lfm2_vl import vision
from foveate.models.lfm2_vl.encoder_graphs import Lfm2VlEncoderGraphs
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape, plan_tiles
from foveate.testing import random_vlm
from foveate.vlm import VLM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

EAGER = {"cudagraph_mm_encoder": False}


@pytest.fixture(scope="module")
def vlm() -> VLM:
    return random_vlm("LFM2.5-VL-450M", device="cuda", dtype="bfloat16", compilation_config=EAGER)


@pytest.fixture(scope="module")
def graphs(vlm: VLM) -> GraphImageEncoder:
    """Graphs whose plans do not depend on what this card measures: what the tests below say of them holds anywhere."""
    manager = EncoderCudaGraphManager(
        Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config), vlm.model.device, costs=FixedCosts(), strict=True
    )
    manager.capture()
    return GraphImageEncoder(manager)


@contextmanager
def errors_on_sync() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def batch_of(tiles: list[tuple[TileShape, ...]], seed: int, device: str = "cuda") -> ImageBatch:
    shapes = tuple(tile for image in tiles for tile in image)
    rows = sum(shape.num_patches for shape in shapes)
    generator = torch.Generator().manual_seed(seed)
    patches = torch.rand(rows, 768, generator=generator) * 2 - 1
    return ImageBatch(patches.to(device, torch.bfloat16), shapes, tuple(len(image) for image in tiles))


def random_batch(vlm: VLM, images: int, seed: int, device: str = "cuda") -> ImageBatch:
    draw = random.Random(seed)
    sizes = [(draw.randint(40, 2200), draw.randint(40, 2200)) for _ in range(images)]
    return batch_of([plan_tiles(*size, vlm.model.config.images).tiles for size in sizes], seed, device)


def joined(features: list[Tensor]) -> Tensor:
    return torch.cat(features)


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def test_every_graph_passes_the_start_up_check(graphs: GraphImageEncoder) -> None:
    assert [report.fault for report in graphs.manager.reports] == [None] * len(graphs.manager.reports)
    assert graphs.manager.backend_name == "cuda_graph"


@pytest.mark.parametrize("seed", range(20))
def test_random_batches_agree_with_eager_within_twice_the_error_of_plain_torch(
    vlm: VLM, graphs: GraphImageEncoder, reference: VLM, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = random_batch(vlm, 1 + (seed * 7) % 40, seed)
    ours = joined(graphs.encode(batch).features).float()
    exact = joined(EagerImageEncoder(reference.model.encoder).encode(batch).features)
    with monkeypatch.context() as patch:
        patch.setattr(vision, "attention", plain_attention)
        patch.setattr(vision, "linear_gelu_tanh", plain_gelu)
        plain = joined(EagerImageEncoder(vlm.model.encoder).encode(batch).features).float()
    assert (ours - exact).norm() <= 2 * (plain - exact).norm()


def plain_attention(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, _longest: int) -> Tensor:
    return packed_attention_reference(query, key, value, bounds)


def plain_gelu(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(rows, weight, bias), approximate="tanh")


@pytest.fixture(scope="module")
def reference() -> VLM:
    """The same weights, rounded to bfloat16 and then held in float32."""
    low = random_vlm("LFM2.5-VL-450M", device="cuda", dtype="bfloat16", compilation_config=EAGER)
    low.model.float()
    return low


def test_pitfall_1_01_small_large_small_gives_the_same_bits_with_nan_between(
    vlm: VLM, graphs: GraphImageEncoder
) -> None:
    small, large = random_batch(vlm, 1, 3), random_batch(vlm, 9, 4)
    first = joined(graphs.encode(small).features)
    graphs.encode(large)
    graphs.manager._buffers.poison()
    again = joined(graphs.encode(small).features)
    assert torch.equal(bits(first), bits(again))


def test_pitfall_1_03_the_same_total_in_another_segmentation_is_another_result_each_time_right(
    graphs: GraphImageEncoder, vlm: VLM
) -> None:
    eager = EagerImageEncoder(vlm.model.encoder)
    for sides in ([(16, 16), (24, 16), (32, 16)], [(20, 16), (24, 16), (28, 16)], [(24, 16)] * 3):
        batch = batch_of([(TileShape(*side),) for side in sides], seed=1)
        ours, exact = joined(graphs.encode(batch).features).float(), joined(eager.encode(batch).features).float()
        assert (ours - exact).norm() <= 2e-2 * exact.norm()


def test_pitfall_1_04_two_outputs_are_kept(graphs: GraphImageEncoder) -> None:
    one, two = (batch_of([(TileShape(16, 16),)], seed) for seed in (1, 2))
    first = graphs.encode(one).features[0]
    kept = first.clone()
    second = graphs.encode(two).features[0]
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_pitfall_1_14_the_replay_path_never_waits_for_the_device(vlm: VLM, graphs: GraphImageEncoder) -> None:
    on_device, on_host = random_batch(vlm, 3, 5), random_batch(vlm, 3, 5, device="cpu")
    with errors_on_sync():
        results = [graphs.encode(batch).features for batch in (on_device, on_host, on_device, on_host)]
    assert all(torch.equal(joined(result), joined(results[0])) for result in results)


def test_rows_are_scattered_into_the_callers_embeddings(vlm: VLM, graphs: GraphImageEncoder) -> None:
    batch = random_batch(vlm, 4, 6)
    expected = joined(graphs.encode(batch).features)
    embeddings = torch.zeros(expected.shape[0] + 10, expected.shape[1], dtype=torch.bfloat16, device="cuda")
    rows = torch.randperm(embeddings.shape[0], device="cuda")[: expected.shape[0]]
    assert graphs.manager.execute(batch, OutputRows(embeddings, rows)) == []
    assert torch.equal(embeddings[rows], expected)


def test_costs_are_measured_at_the_first_start_and_loaded_at_the_next(vlm: VLM, tmp_path: Path) -> None:
    starts = [captured(vlm, EncoderGraphSettings(), CostStore(tmp_path, {"card": "here"})).manager for _ in range(2)]
    assert [manager.start_up.cost_source for manager in starts] == ["measured", "kept"]
    costs = starts[1].costs
    assert isinstance(costs, MeasuredCosts)
    assert 0 < costs.replay_ms(64) < costs.replay_ms(2816) < 1000
    assert 0 < costs.eager_ms(64) < costs.eager_ms(11264) < 1000
    assert starts[0].start_up.costs_s < 3


def test_a_picture_has_the_same_bits_in_any_company_with_fixed_plans(vlm: VLM) -> None:
    fixed = captured(vlm, EncoderGraphSettings(encoder_plan="fixed"))
    for seed in range(10):
        alone = random_batch(vlm, 1, seed)
        others = random_batch(vlm, 1 + seed, 100 + seed)
        company = ImageBatch(
            torch.cat([others.patches, alone.patches, others.patches]),
            (*others.tiles, *alone.tiles, *others.tiles),
            (*others.tiles_per_image, *alone.tiles_per_image, *others.tiles_per_image),
        )
        in_company = fixed.encode(company).features[len(others.tiles_per_image)]
        assert torch.equal(bits(in_company), bits(fixed.encode(alone).features[0]))


def captured(vlm: VLM, settings: EncoderGraphSettings, store: CostStore | None = None) -> GraphImageEncoder:
    graphs = Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config)
    manager = EncoderCudaGraphManager(graphs, vlm.model.device, settings, cost_store=store, strict=True)
    manager.capture()
    return GraphImageEncoder(manager)


def test_pitfall_1_02_no_buffer_that_a_graph_recorded_ever_moves_or_is_regrown(
    vlm: VLM, graphs: GraphImageEncoder
) -> None:
    before = addresses(graphs)
    for seed in range(5):
        graphs.encode(random_batch(vlm, 1 + 3 * seed, seed, device="cpu" if seed % 2 else "cuda"))
    assert addresses(graphs) == before


def addresses(graphs: GraphImageEncoder) -> list[int]:
    manager = graphs.manager
    capacities = [report.capacity for report in manager.reports]
    inputs = [buffer.data_ptr() for each in capacities for buffer in manager._buffers.inputs(each).values()]
    return [*inputs, *(manager._buffers.output(each.tokens).data_ptr() for each in capacities)]


def test_pitfall_1_05_two_streams_in_turn_on_one_graph_get_what_each_gets_alone(graphs: GraphImageEncoder) -> None:
    batches = [batch_of([(TileShape(32, 32),)] * 3, seed) for seed in (1, 2)]
    expected = [joined(graphs.encode(batch).features) for batch in batches]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    wrong = torch.zeros(2, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    for step in range(200):
        turn = step % 2
        with torch.cuda.stream(streams[turn]):
            features = joined(graphs.encode(batches[turn]).features)
            wrong[turn] += (features != expected[turn]).sum()
    torch.cuda.synchronize()
    assert wrong.tolist() == [0, 0]


def test_pitfall_1_05_eight_threads_on_streams_of_their_own_get_what_each_gets_alone(
    vlm: VLM, graphs: GraphImageEncoder
) -> None:
    batches = [random_batch(vlm, 1 + seed % 3, seed, device="cpu" if seed % 2 else "cuda") for seed in range(8)]
    expected = [joined(graphs.encode(batch).features) for batch in batches]
    torch.cuda.synchronize()

    def wrong_values(index: int) -> int:
        stream, wrong = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                wrong += (joined(graphs.encode(batches[index]).features) != expected[index]).sum()
        stream.synchronize()
        return int(wrong)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(wrong_values, range(8))) == [0] * 8


@pytest.mark.parametrize("side", [2, 4])
def test_pitfall_1_06_more_tiles_than_slots_are_cut_and_every_one_is_counted(
    vlm: VLM, graphs: GraphImageEncoder, side: int
) -> None:
    batch = batch_of([(TileShape(side, side),)] * 100, seed=side)
    before = graphs.manager.stats.tiles
    encoded = graphs.encode(batch)
    exact = joined(EagerImageEncoder(vlm.model.encoder).encode(batch).features).float()
    assert len(encoded.report.replays) > 1
    assert encoded.report.eager_runs == {}
    assert graphs.manager.stats.tiles == before + 100
    assert (joined(encoded.features).float() - exact).norm() <= 2e-2 * exact.norm()


def test_pitfall_1_09_graph_memory_is_counted_by_the_allocator_and_the_largest_graph_takes_most_of_it(
    graphs: GraphImageEncoder,
) -> None:
    memory, reports = graphs.manager.memory, graphs.manager.reports
    assert memory.pool_bytes == sum(report.pool_bytes for report in reports)
    assert reports[0].pool_bytes >= memory.pool_bytes / 2 > 0
    assert memory.total_bytes < 2 * 2**30


def test_pitfall_1_10_nothing_is_captured_after_the_start(vlm: VLM, graphs: GraphImageEncoder) -> None:
    backend = graphs.manager._backend
    assert isinstance(backend, CudaGraphBackend)
    assert len(backend._graphs) == len(graphs.manager.reports) <= 24
    for seed in range(10):
        graphs.encode(random_batch(vlm, 1 + seed, seed))
    assert len(backend._graphs) == len(graphs.manager.reports)


def test_pitfall_1_11_what_must_not_happen_inside_a_capture_happens_in_the_warm_ups() -> None:
    calls: list[int] = []
    source, target = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")

    def work() -> None:
        if not calls:
            torch.cuda.synchronize()  # as compiling a kernel does on its first call; inside a capture it is an error
        calls.append(1)
        target.copy_(source * 2)

    replay = CudaGraphBackend(torch.device("cuda")).capture(work)
    source.fill_(3.0)
    replay()
    assert target.tolist() == [6.0] * 8
    assert len(calls) == CudaGraphBackend.WARM_UPS + 1


class PaddingIsRead(Lfm2VlEncoderGraphs):
    """Planted fault: a value that lies in the padding gets into every row."""

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        return super().encoder_cudagraph_forward(buffers) + buffers["patches"].mean() * 0


def test_pitfall_1_13_a_planted_fault_is_found_at_the_start_and_everything_still_runs(vlm: VLM) -> None:
    manager = EncoderCudaGraphManager(
        PaddingIsRead(vlm.model.encoder, vlm.model.config),
        torch.device("cuda"),
        EncoderGraphSettings(True, (128, 320)),
    )
    manager.capture()
    batch = batch_of([(TileShape(16, 16), TileShape(20, 16))], seed=3)
    features = joined(manager.execute(batch)).float()
    exact = joined(EagerImageEncoder(vlm.model.encoder).encode(batch).features).float()
    assert manager.stats.graphs_switched_off == 2
    assert manager.stats.eager_tiles_by_reason == {"graphs_switched_off": 2}
    assert (features - exact).norm() <= 1e-2 * exact.norm()


def test_pitfall_1_16_a_thousand_encodes_beside_decodes_equal_serial_ones(vlm: VLM, graphs: GraphImageEncoder) -> None:
    batches = [random_batch(vlm, 1, seed) for seed in range(4)]
    expected = [joined(graphs.encode(batch).features) for batch in batches]
    decode = DecodeGraph()
    alone = decode.run()
    encode_stream, decode_stream = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    torch.cuda.synchronize()
    wrong_encodes, wrong_decodes = torch.zeros(2, dtype=torch.int64, device="cuda").unbind()
    for step in range(1000):
        with torch.cuda.stream(encode_stream):
            features = joined(graphs.encode(batches[step % 4]).features)
            wrong_encodes += (features != expected[step % 4]).sum()
        with torch.cuda.stream(decode_stream):
            decode.graph.replay()
            wrong_decodes += (decode.output != alone).sum()
    torch.cuda.synchronize()
    assert (int(wrong_encodes), int(wrong_decodes)) == (0, 0)


class DecodeGraph:
    """Matrix products as a decode step has them, captured on a stream and in a pool of their own."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.weights = [torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) / 32 for _ in range(16)]
        self.start = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)
        self.output = torch.empty_like(self.start)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._work()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self._work()

    def _work(self) -> None:
        rows = self.start
        for weight in self.weights:
            rows = torch.nn.functional.silu(rows @ weight)
        self.output.copy_(rows)

    def run(self) -> Tensor:
        self.graph.replay()
        torch.cuda.synchronize()
        return self.output.clone()
