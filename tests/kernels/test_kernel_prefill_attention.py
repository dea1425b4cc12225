"""Causal attention of packed new tokens over pages, against its twin and a softmax in float64."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.kernels.attention_tiles import AttentionTiles
from foveate.kernels.prefill_attention import (
    prefill_attention,
    prefill_attention_reference,
    prefill_attention_triton,
    prefill_tiles,
)
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

SMALL = AttentionTiles(16, 16, warps=4, stages=2)
NAMES = ("query", "key_pages", "value_pages", "page_tables", "bounds", "cached")


def packed(new, cached, shape, dtype, device, *, page_tokens=64, unused=0, padding=0, seed=0):
    """Sequences of these new and cached tokens and a shuffled cache; everything that must not be read is NaN."""
    heads, key_heads, head_size = shape
    lengths = [old + more if more else 0 for old, more in zip(cached, new, strict=True)]
    table_pages = max(-(-length // page_tokens) for length in lengths) + 1
    pages = (len(new) + unused) * table_pages
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randperm(pages, generator=generator).view(-1, table_pages)
    caches = [
        random(pages * page_tokens, key_heads, head_size, dtype=dtype, device=device, seed=seed + part)
        for part in (1, 2)
    ]
    is_owned = torch.zeros(pages * page_tokens, dtype=torch.bool, device=device)
    for table, length in zip(tables, lengths, strict=False):
        rows = (table[:, None] * page_tokens + torch.arange(page_tokens)).flatten()
        is_owned[rows[:length].to(device)] = True
    for cache in caches:
        cache[~is_owned] = float("nan")
    query = random(sum(new) + padding, heads, head_size, dtype=dtype, device=device, seed=seed)
    query[sum(new) :] = float("nan")
    bounds = torch.tensor([0, *new] + [0] * unused, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    old = torch.tensor([*cached] + [0] * unused, dtype=torch.int32)
    key_pages, value_pages = (cache.unflatten(0, (pages, page_tokens)) for cache in caches)
    return query, key_pages, value_pages, tables.to(device, torch.int32), bounds.to(device), old.to(device)


def exact(query, key_pages, value_pages, tables, bounds, cached):
    out = torch.zeros(query.shape, dtype=torch.float64, device=query.device)
    groups = query.shape[1] // key_pages.shape[2]
    edges = bounds.tolist()
    for sequence, old in enumerate(cached.tolist()):
        rows = slice(edges[sequence], edges[sequence + 1])
        new = rows.stop - rows.start
        keys, values = (
            pages[tables[sequence].long()].flatten(0, 1)[: old + new].double().repeat_interleave(groups, 1)
            for pages in (key_pages, value_pages)
        )
        scores = torch.einsum("qhd,thd->hqt", query[rows].double(), keys) * query.shape[2] ** -0.5
        hidden = torch.ones(new, old + new, dtype=torch.bool, device=query.device).triu(old + 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        out[rows] = torch.einsum("hqt,thd->qhd", weights, values)
    return out.flatten(1)


@given(
    chunks=st.lists(st.tuples(st.integers(0, 70), st.sampled_from([0, 1, 63, 64, 65, 130])), min_size=1, max_size=4),
    page_tokens=st.sampled_from([4, 16, 64]),
    shape=st.sampled_from([(2, 2, 16), (4, 2, 64), (4, 1, 24), (3, 1, 16)]),
    unused=st.integers(0, 2),
    padding=st.integers(0, 40),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_any_chunks_pages_and_padding_give_the_causal_softmax(device, chunks, page_tokens, shape, unused, padding):
    new, cached = zip(*chunks, strict=True)
    arguments = packed(
        new, cached, shape, torch.float32, device, page_tokens=page_tokens, unused=unused, padding=padding
    )
    out = prefill_attention_triton(*arguments)
    assert relative_error(out, exact(*arguments)) <= 1e-6
    assert not out[sum(new) :].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(2, 2, 64), (4, 2, 64), (8, 2, 64)], ids=["group 1", "group 2", "group 4"])
def test_the_error_is_at_most_twice_that_of_plain_torch(device, shape, dtype):
    arguments = packed([70, 1, 1, 33, 5, 1], [0, 0, 63, 64, 65, 200], shape, dtype, device, unused=2, padding=9)
    out, twin = prefill_attention_triton(*arguments), prefill_attention_reference(*arguments)
    assert is_as_right(out, twin, exact(*arguments))
    assert not out[111:].any()


@pytest.mark.parametrize(
    "tiles",
    [SMALL, AttentionTiles(32, 64, 4, 3), AttentionTiles(16, 128, 8, 2), AttentionTiles(128, 32, 8, 2)],
    ids=lambda tiles: f"{tiles.block_rows}x{tiles.block_columns}",
)
def test_blocks_of_any_size_give_the_causal_softmax(device, tiles):
    arguments = packed([70, 3, 33], [0, 63, 130], (8, 2, 64), torch.float32, device, padding=20)
    assert relative_error(prefill_attention_triton(*arguments, tiles=tiles), exact(*arguments)) <= 1e-6


def test_more_heads_of_a_group_than_rows_of_a_block_are_one_query_a_program(device):
    arguments = packed([5, 2], [3, 20], (32, 1, 16), torch.float32, device, padding=3)
    assert relative_error(prefill_attention_triton(*arguments, tiles=SMALL), exact(*arguments)) <= 1e-6


@pytest.mark.parametrize("run", [prefill_attention_reference, prefill_attention_triton])
def test_without_any_sequence_in_use_all_rows_are_zeros(device, run):
    arguments = packed([0], [0], (4, 2, 16), torch.float32, device, unused=3, padding=50)
    assert torch.equal(run(*arguments), torch.zeros(50, 64, device=device))


@pytest.mark.parametrize("run", [prefill_attention_reference, prefill_attention_triton])
def test_no_tokens_give_no_rows(device, run):
    assert run(*packed([0], [0], (4, 2, 16), torch.float32, device)).shape == (0, 64)


def test_a_sequence_gets_the_same_bits_in_any_company_with_the_same_tiles(device):
    query, keys, values, tables, bounds, cached = packed(
        [21, 40, 33], [5, 64, 0], (4, 2, 64), torch.float32, device, padding=7
    )
    together = prefill_attention_triton(query, keys, values, tables, bounds, cached, tiles=SMALL)
    own = torch.tensor([0, 40], dtype=torch.int32, device=device)
    alone = prefill_attention_triton(query[21:61], keys, values, tables[1:2], own, cached[1:2], tiles=SMALL)
    assert torch.equal(alone, together[21:61])


def test_a_broken_sequence_does_not_reach_its_neighbours(device):
    query, keys, values, tables, *rest = packed([20, 20, 20], [3, 4, 5], (4, 2, 16), torch.float32, device)
    clean = prefill_attention_triton(query, keys, values, tables, *rest)
    values[tables[1, 0].item(), 0] = float("nan")
    out = prefill_attention_triton(query, keys, values, tables, *rest)
    assert out[20:40].isnan().all()
    assert torch.equal(out[:20], clean[:20])
    assert torch.equal(out[40:], clean[40:])


def test_a_later_token_does_not_reach_an_earlier_one(device):
    query, keys, values, tables, bounds, cached = packed([50], [20], (4, 2, 64), torch.float32, device)
    out = prefill_attention_triton(query, keys, values, tables, bounds, cached, tiles=SMALL)
    page = tables[0, 0].item()
    keys[page, 60], values[page, 60] = 100.0, 100.0  # New token 40.
    changed = prefill_attention_triton(query, keys, values, tables, bounds, cached, tiles=SMALL)
    is_changed = (changed != out).any(1)
    assert not is_changed[:40].any()
    assert is_changed[40:].all()


def test_a_prompt_in_chunks_is_the_prompt_at_once(device):
    query, keys, values, tables, _, cached = packed([100], [0], (4, 2, 64), torch.float32, device)
    whole = exact(query, keys, values, tables, torch.tensor([0, 100]), cached)
    for begin, end in ((0, 1), (1, 64), (64, 65), (65, 100)):
        bounds = torch.tensor([0, end - begin], dtype=torch.int32, device=device)
        out = prefill_attention_triton(query[begin:end], keys, values, tables, bounds, cached + begin)
        assert relative_error(out, whole[begin:end]) <= 1e-6


def test_large_scores_do_not_overflow(device):
    query, keys, *rest = packed([40], [9], (2, 1, 16), torch.float32, device)
    arguments = (query * 100, keys * 100, *rest)
    assert relative_error(prefill_attention_triton(*arguments), exact(*arguments)) <= 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_twin_is_the_causal_softmax_with_zeros_in_the_padding(device, dtype):
    arguments = packed([70, 1, 33, 9], [0, 5, 64, 65], (4, 2, 64), dtype, device, unused=1, padding=5)
    out = prefill_attention_reference(*arguments)
    assert relative_error(out, exact(*arguments)) <= (1e-6 if dtype == torch.float32 else 1e-2)
    assert not out[113:].any()


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    arguments = packed([70, 1], [0, 65], (4, 2, 64), torch.float32, device, padding=5)
    chosen = prefill_attention_triton if device.type == "cuda" else prefill_attention_reference
    assert torch.equal(prefill_attention(*arguments), chosen(*arguments))


def test_float32_takes_smaller_blocks_and_wide_heads_fewer_stages():
    assert prefill_tiles(64, torch.float32).block_rows == 32
    assert prefill_tiles(64, torch.bfloat16).stages == 3
    assert prefill_tiles(128, torch.float16).stages == 2


WRONG = {
    "strided queries": (lambda a: {"query": a["query"].mT.contiguous().mT}, "query must be contiguous"),
    "other values": (lambda a: {"value_pages": a["value_pages"][1:]}, "of one shape"),
    "three heads": (lambda a: {"query": a["query"][:, :3].contiguous()}, r"of 2 heads, 16\]: got \[14, 3, 16\]"),
    "mixed types": (lambda a: {"query": a["query"].half()}, "one type: got torch.float16, torch.float32"),
    "strided tables": (lambda a: {"page_tables": a["page_tables"].t().contiguous().t()}, "rows contiguous"),
    "long tables": (lambda a: {"page_tables": a["page_tables"].long()}, "must be int32.*torch.int64"),
    "too few tables": (lambda a: {"page_tables": a["page_tables"][1:]}, r"bounds must be int32 \[2\]: got.*\[3\]"),
    "long bounds": (lambda a: {"bounds": a["bounds"].long()}, r"bounds must be int32 \[3\]: got torch.int64"),
    "long cached": (lambda a: {"cached": a["cached"].long()}, r"cached must be int32 \[2\]: got torch.int64"),
    "bounds as cached": (lambda a: {"cached": a["bounds"]}, r"cached must be int32 \[2\]: got torch.int32 \[3\]"),
    "two devices": (lambda a: {"bounds": a["bounds"].to("meta")}, "on one device: got .*cpu.*meta"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(wrong):
    change, message = WRONG[wrong]
    shape, device = (4, 2, 16), torch.device("cpu")
    right = dict(zip(NAMES, packed([5, 9], [3, 0], shape, torch.float32, device, page_tokens=4), strict=True))
    with pytest.raises(ValueError, match=message):
        prefill_attention_triton(**(right | change(right)))
