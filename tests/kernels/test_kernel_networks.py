"""Small networks with every kernel in its place, interpreted, against the same networks on the twins."""

import sys

import pytest
import torch

import foveate
from foveate.models.caches import DecodeBatch, SequencePlaces, sequence_batch
from foveate.models.lfm2_vl.fp8_layers import fp8_layers
from tests.folded_tower import in_bfloat16, random_tower, run_tower, tower_config
from tests.kernels.comparing import relative_error

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux"),
    pytest.mark.usefixtures("device"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs whole networks where there is a GPU"),
]

TEXT_KERNELS = (
    "norm",
    "rotary_cache",
    "prefill_attention",
    "decode_attention",
    "packed_convolution",
    "short_convolution_step",
    "gated",
)
PAGE_TOKENS = 16
CONFIG = tower_config(hidden_size=48, intermediate_size=64, num_layers=2, num_heads=2)


def use_kernels(patch, *modules):
    """Have these modules run their kernels; returns the names of those that were asked."""
    asked = set()

    def always(name):
        def runs_triton(*_):
            asked.add(name)
            return True

        return runs_triton

    for name in modules:
        patch.setattr(f"foveate.kernels.{name}.runs_triton", always(name))
    return asked


@pytest.fixture(scope="module")
def language():
    return foveate.load(device="cpu", compilation_config={"cudagraph_mm_encoder": False}).model.language


@torch.inference_mode()
def prompt_and_steps(language):
    """Two prompts of 5 and 20 tokens, prefilled together, and two decode steps; the rows after each, and the caches."""
    lengths, pages = [5, 20], [[3], [1, 2]]
    caches = language.new_caches(pages=4, page_tokens=PAGE_TOKENS, slots=2)
    caches.keys.zero_()
    caches.values.zero_()
    generator = torch.Generator().manual_seed(0)

    def embeddings(count):
        return torch.randn(count, language.config.hidden_size, generator=generator)

    def row(sequence, token):
        return pages[sequence][token // PAGE_TOKENS] * PAGE_TOKENS + token % PAGE_TOKENS

    tables = torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    bounds, slots = torch.tensor([0, 5, 25], dtype=torch.int32), torch.tensor([1, 0])
    places = SequencePlaces(bounds, torch.zeros(2, dtype=torch.int32), tables, slots)
    prompts = sequence_batch(places, sum(lengths), PAGE_TOKENS, dummy_page=0)
    results = [language(embeddings(sum(lengths)), prompts, caches)]
    for _ in range(2):
        step = DecodeBatch(
            positions=torch.tensor(lengths),
            write_rows=torch.tensor([row(index, length) for index, length in enumerate(lengths)]),
            page_tables=tables,
            lengths=torch.tensor(lengths, dtype=torch.int32) + 1,
            slots=slots,
        )
        results.append(language(embeddings(2), step, caches))
        lengths = [length + 1 for length in lengths]
    return [*results, caches.keys, caches.values, caches.states]


def test_the_language_model_on_its_kernels_is_that_on_the_twins(language, monkeypatch):
    twins = prompt_and_steps(language)
    asked = use_kernels(monkeypatch, *TEXT_KERNELS)
    ours = prompt_and_steps(language)
    assert asked == set(TEXT_KERNELS)
    for kernel, twin in zip(ours, twins, strict=True):
        assert relative_error(kernel, twin) <= 1e-5
    assert not all(torch.equal(kernel, twin) for kernel, twin in zip(ours, twins, strict=True))


@pytest.mark.parametrize("use_fp8", [False, True], ids=["bfloat16", "fp8"])
def test_the_tower_on_its_kernels_is_that_on_the_twins(monkeypatch, use_fp8):
    """In float8 one value that rounds the other way moves a result by a few thousandths."""
    tower = in_bfloat16(random_tower(CONFIG, bias_scale=0.3))
    shapes = torch.tensor([[2, 4], [4, 4]])
    patches = torch.randn(24, 48, generator=torch.Generator().manual_seed(0))
    tower.fp8_layers = fp8_layers(list(tower.layers)) if use_fp8 else []
    twin = run_tower(tower, patches, shapes)
    asked = use_kernels(monkeypatch, "layer_norm", "fp8")
    ours = run_tower(tower, patches, shapes)
    assert asked == ({"layer_norm", "fp8"} if use_fp8 else {"layer_norm"})
    assert relative_error(ours, twin) <= 2e-2
