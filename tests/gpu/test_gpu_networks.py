"""Whole networks at true sizes on the kernels: the tower, the tower in float8, and a captured decode step."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.errors import ConfigurationError
from foveate.kernels import availability
from foveate.kernels.attention import packed_attention_reference
from foveate.kernels.fp8 import Fp8Rows, quantise_reference
from foveate.models.caches import CacheTensors, DecodeBatch
from foveate.models.lfm2_vl.config import VisionConfig
from foveate.models.lfm2_vl.fp8_layers import fp8_layers
from foveate.models.lfm2_vl.language import LanguageModel
from foveate.models.lfm2_vl.layout import packed_layout
from foveate.models.lfm2_vl.vision import VisionTower
from foveate.testing import random_vlm
from tests.folded_tower import in_bfloat16, plain_tower, random_tower, run_tower

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

TOWERS = {"base": (768, 3072, 12, 12), "so400m": (1152, 4304, 27, 16)}
"""Width, FFN width, layers, heads."""
EAGER = {"cudagraph_mm_encoder": False}
BATCHES = {
    "a thumbnail": [(16, 16)],
    "a tile": [(32, 32)],
    "three tiles": [(32, 32), (32, 32), (24, 32)],
    "eleven tiles": [(32, 32)] * 11,
}


def tower_of(name: str, bias_scale: float = 0.3) -> VisionTower:
    width, inner, layers, heads = TOWERS[name]
    config = VisionConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=heads,
        patch_size=16,
        num_channels=3,
        position_grid=16,
        norm_eps=1e-6,
        activation="gelu_pytorch_tanh",
    )
    return random_tower(config, bias_scale=bias_scale, device="cuda")


def batch_of(name: str) -> tuple[Tensor, Tensor]:
    shapes = torch.tensor(BATCHES[name], device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    rows = int(shapes.prod(-1).sum())
    return torch.rand(rows, 768, device="cuda", generator=generator).bfloat16().float() * 2 - 1, shapes


def error(out: Tensor, exact: Tensor) -> float:
    return float((out.float() - exact).norm() / exact.norm())


@pytest.fixture(autouse=True)
def exact_float32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("tower", TOWERS)
@torch.inference_mode()
def test_the_tower_in_bfloat16_is_at_most_twice_as_far_from_float32_as_plain_torch(tower: str, batch: str) -> None:
    """The biases are as large as a third of what they are added to."""
    high, (patches, shapes) = tower_of(tower), batch_of(batch)
    exact, low = plain_tower(high, patches, shapes), in_bfloat16(high)
    ours, plain = (error(run(low, patches, shapes), exact) for run in (run_tower, plain_tower))
    assert 0 < ours <= 2 * plain


def library_fp8_tower(tower: VisionTower, patches: Tensor, tile_shapes: Tensor) -> Tensor:
    """The plain tower with its layers' products by torch's own float8, scales as ours, nothing fused."""
    layout = packed_layout(tile_shapes, patches.shape[0], 2)
    hidden = tower.patch_embedding(patches.bfloat16()) + tower.position(layout.patch_grid)

    def product(linear: torch.nn.Linear, rows: Tensor) -> Tensor:
        left, right = quantise_reference(rows), quantise_reference(linear.weight)
        return scaled_product(left, right, linear.bias)

    for layer in tower.layers:
        qkv = product(layer.qkv, layer.attention_norm(hidden)).unflatten(-1, (3, layer.num_heads, layer.head_size))
        hidden = hidden + product(layer.out, packed_attention_reference(*qkv.unbind(1), layout.bounds))
        inner = F.gelu(product(layer.fc1, layer.mlp_norm(hidden)), approximate="tanh")
        hidden = hidden + product(layer.fc2, inner)
    return tower.norm(hidden)


def scaled_product(left: Fp8Rows, right: Fp8Rows, bias: Tensor) -> Tensor:
    return torch._scaled_mm(
        left.values,
        right.values.t(),
        scale_a=left.scales,
        scale_b=right.scales.t(),
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs compute capability 9.0"
)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("tower", TOWERS)
@torch.inference_mode()
def test_float8_is_no_further_from_float32_than_torch_s_own_with_the_same_scales(tower: str, batch: str) -> None:
    high, (patches, shapes) = tower_of(tower), batch_of(batch)
    exact, low = plain_tower(high, patches, shapes), in_bfloat16(high)
    library = error(library_fp8_tower(low, patches, shapes), exact)
    low.fp8_layers = fp8_layers(list(low.layers))
    assert 0 < error(run_tower(low, patches, shapes), exact) <= 1.2 * library


def test_float8_of_a_float32_model_is_refused_on_a_gpu() -> None:
    with pytest.raises(ConfigurationError, match=r"the model is torch\.float32"):
        fp8_layers(list(tower_of("base").layers))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs compute capability 9.0"
)
@torch.inference_mode()
def test_captured_graphs_follow_weights_that_are_loaded_in_place_in_both_types() -> None:
    model = random_vlm("LFM2.5-VL-450M", device="cuda", compilation_config=EAGER).model
    patches, shapes = batch_of("a tile")
    encoder = model.encoder
    for use_fp8 in (False, True):
        if use_fp8:
            encoder.use_fp8()
        encoder(patches, shapes)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = encoder(patches, shapes)
        graph.replay()
        before = out.clone()
        encoder.load_state_dict({name: 1.1 * weight for name, weight in encoder.state_dict().items()})
        encoder.refresh()
        graph.replay()
        assert torch.equal(out, encoder(patches, shapes))
        assert not torch.equal(out, before)


@pytest.fixture(scope="module", params=["LFM2.5-VL-450M", "LFM2.5-VL-3B"])
def language(request: pytest.FixtureRequest) -> LanguageModel:
    return random_vlm(request.param, device="cuda", compilation_config=EAGER).model.language


class Decoding:
    """A decode step over fixed buffers, sequences of `lengths` tokens so far, in pages of 64."""

    def __init__(self, language: LanguageModel, lengths: list[int], seed: int = 0) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        self.language, size = language, len(lengths)
        most_pages = max(lengths) // 64 + 1
        caches = language.new_caches(pages=size * most_pages, page_tokens=64, slots=size)
        for tensor in (caches.keys, caches.values, caches.states):
            tensor.normal_(generator=generator)
        self.caches: CacheTensors = caches
        positions = torch.tensor(lengths, device="cuda")
        tables = torch.arange(size * most_pages, device="cuda", dtype=torch.int32).view(size, most_pages)
        pages = tables.gather(1, positions[:, None] // 64)[:, 0].long()
        self.embeddings = torch.randn(
            size, language.config.hidden_size, device="cuda", generator=generator, dtype=torch.bfloat16
        )
        self.batch = DecodeBatch(
            positions=positions,
            write_rows=pages * 64 + positions % 64,
            page_tables=tables,
            lengths=(positions + 1).int(),
            slots=torch.arange(size, device="cuda"),
        )

    def run(self) -> Tensor:
        return self.language(self.embeddings, self.batch, self.caches)


@pytest.mark.parametrize("lengths", [[10], [1000, 1, 64, 63], [700] * 32], ids=["one", "four", "thirty-two"])
@torch.inference_mode()
def test_a_decode_step_on_the_kernels_is_as_near_to_float32_as_on_the_twins(
    language: LanguageModel, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Decoding(language, lengths).run()
    for module in ("norm", "rotary_cache", "decode_attention", "short_convolution_step", "gated"):
        monkeypatch.setattr(f"foveate.kernels.{module}.runs_triton", lambda *_: False)
    low, wide = Decoding(language, lengths), Decoding(copy.deepcopy(language).float(), lengths)
    for name in ("keys", "values", "states"):
        getattr(wide.caches, name).copy_(getattr(low.caches, name))
    wide.embeddings = low.embeddings.float()
    twins, exact = low.run(), wide.run()
    assert not torch.equal(ours, twins), "the twins were not taken"
    assert 0 < error(ours, exact) <= 2 * error(twins, exact)


@pytest.mark.parametrize("size", [1, 8, 32])
@torch.inference_mode()
def test_a_captured_decode_step_gives_the_bits_of_a_direct_one(language: LanguageModel, size: int) -> None:
    step = Decoding(language, [100 * (row % 7) + row for row in range(size)])
    before = [tensor.clone() for tensor in (step.caches.keys, step.caches.values, step.caches.states)]

    def rewind() -> None:
        for tensor, old in zip((step.caches.keys, step.caches.values, step.caches.states), before, strict=True):
            tensor.copy_(old)

    direct = step.run().clone()
    rewind()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step.run()
    rewind()
    graph.replay()
    assert torch.equal(out, direct)
    rewind()
    step.embeddings.mul_(0.5)
    graph.replay()
    assert not torch.equal(out, direct)


def test_kernels_run_here() -> None:
    """What the tests above compare with the twins is Triton's work."""
    assert availability.runs_triton(torch.zeros(1, device="cuda"))
