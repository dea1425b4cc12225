"""Attention of one new token a sequence over pages, against its twin and a softmax in float64."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.kernels.decode_attention import (
    decode_attention,
    decode_attention_reference,
    decode_attention_triton,
    split_count,
)
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")


def paged(lengths, page_tokens, heads, key_heads, head_size, dtype, device, seed=0):
    """Queries and a shuffled cache for sequences of these lengths; everything that must not be read is NaN."""
    table_pages = max(-(-length // page_tokens) for length in lengths) + 1
    pages = len(lengths) * table_pages
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randperm(pages, generator=generator).view(len(lengths), table_pages).to(device, torch.int32)
    caches = [
        random(pages, page_tokens, key_heads, head_size, dtype=dtype, device=device, seed=seed + part)
        for part in (1, 2)
    ]
    for table, length in zip(tables.tolist(), lengths, strict=True):
        for token in range(length, table_pages * page_tokens):
            for cache in caches:
                cache[table[token // page_tokens], token % page_tokens] = float("nan")
    query = random(len(lengths), heads, head_size, dtype=dtype, device=device, seed=seed)
    return query, *caches, tables, torch.tensor(lengths, dtype=torch.int32, device=device)


def exact(query, key_pages, value_pages, tables, lengths):
    outputs, groups = [], query.shape[1] // key_pages.shape[2]
    for part, table, length in zip(query, tables.long(), lengths.tolist(), strict=True):
        keys, values = (pages[table].flatten(0, 1)[:length].double() for pages in (key_pages, value_pages))
        keys, values = (heads.repeat_interleave(groups, 1) for heads in (keys, values))
        scores = torch.einsum("hd,thd->ht", part.double(), keys) * query.shape[2] ** -0.5
        outputs.append(torch.einsum("ht,thd->hd", scores.softmax(-1), values).flatten())
    return torch.stack(outputs)


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    page_tokens=st.sampled_from([4, 16, 64]),
    shape=st.sampled_from([(2, 2, 16), (4, 2, 64), (4, 1, 24), (8, 2, 64)]),
    splits=st.sampled_from([1, 2, 8, None]),
)
@settings(max_examples=15, deadline=None, derandomize=True)
def test_any_lengths_pages_and_splits_give_the_softmax(device, lengths, page_tokens, shape, splits):
    arguments = paged(lengths, page_tokens, *shape, torch.float32, device)
    out = decode_attention_triton(*arguments, splits=splits)
    assert relative_error(out, exact(*arguments)) <= 1e-6


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(4, 2, 64), (8, 2, 64), (2, 2, 16)])
def test_the_error_in_low_precision_is_at_most_twice_that_of_plain_torch(device, shape, dtype, splits):
    arguments = paged([200, 1, 64, 65], 64, *shape, dtype, device)
    out, twin = decode_attention_triton(*arguments, splits=splits), decode_attention_reference(*arguments)
    assert is_as_right(out, twin, exact(*arguments))


@pytest.mark.parametrize("splits", [1, 4])
def test_a_row_without_tokens_gets_zeros(device, splits):
    *rest, lengths = paged([40, 30], 16, 4, 2, 16, torch.float32, device)
    out = decode_attention_triton(*rest, torch.tensor([40, 0], dtype=torch.int32, device=device), splits=splits)
    assert not out[1].any()
    assert torch.equal(out[0], decode_attention_triton(*rest, lengths, splits=splits)[0])


@pytest.mark.parametrize("length", [1, 64, 65, 200])
def test_a_context_of_fewer_blocks_than_splits_is_as_right_as_any(device, length):
    query, keys, values, tables, lengths = paged([length], 64, 4, 2, 64, torch.float32, device)
    long_table = torch.cat((tables, tables.new_zeros(1, 100)), 1)
    out = decode_attention_triton(query, keys, values, long_table, lengths, splits=64)
    assert relative_error(out, exact(query, keys, values, tables, lengths)) <= 1e-6


@pytest.mark.parametrize("page_tokens", [64, 128])
@pytest.mark.parametrize("splits", [1, 4])
def test_a_page_asked_for_one_block_before_is_the_right_one(device, page_tokens, splits):
    arguments = paged([300, 1, 64, 65, 256], page_tokens, 4, 2, 64, torch.float32, device)
    out = decode_attention_triton(*arguments, splits=splits, carries_page=True)
    assert relative_error(out, exact(*arguments)) <= 1e-6


def test_a_sequence_gets_the_same_bits_in_any_company_with_the_same_splits(device):
    query, keys, values, tables, lengths = paged([70, 200, 3], 16, 4, 2, 64, torch.float32, device)
    together = decode_attention_triton(query, keys, values, tables, lengths, splits=4)
    alone = decode_attention_triton(query[1:2], keys, values, tables[1:2], lengths[1:2], splits=4)
    assert torch.equal(alone[0], together[1])


def test_the_twin_is_the_softmax(device):
    arguments = paged([70, 1, 33], 16, 4, 2, 64, torch.float32, device)
    assert relative_error(decode_attention_reference(*arguments), exact(*arguments)) <= 1e-6


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    arguments = paged([70, 1, 33], 16, 4, 2, 64, torch.float32, device)
    chosen = decode_attention_triton if device.type == "cuda" else decode_attention_reference
    assert torch.equal(decode_attention(*arguments), chosen(*arguments))


@pytest.mark.parametrize(
    ("sequences", "key_heads", "most_tokens", "splits"),
    [
        (1, 8, 128000, 32),
        (4, 8, 32768, 8),
        (8, 8, 32768, 4),
        (31, 8, 32768, 2),
        (32, 8, 32768, 1),
        (64, 8, 32768, 1),
        (1, 8, 100, 2),
        (1, 1, 32768, 64),
        (0, 8, 0, 1),
    ],
)
def test_splits_fill_the_gpu_and_are_no_more_than_the_context_has_blocks(sequences, key_heads, most_tokens, splits):
    assert split_count(sequences, key_heads, most_tokens) == splits


WRONG = {
    "strided queries": (lambda a: {"query": a["query"].mT.contiguous().mT}, "query must be contiguous"),
    "other values": (lambda a: {"value_pages": a["value_pages"][1:]}, "of one shape"),
    "three heads": (
        lambda a: {"query": a["query"][:, :3].contiguous()},
        r"of 2 heads, 16\]: got \[2, 3, 16\]",
    ),
    "mixed types": (lambda a: {"query": a["query"].half()}, "one type: got torch.float16, torch.float32"),
    "too few tables": (lambda a: {"page_tables": a["page_tables"][1:]}, r"page_tables must be \[2, pages\]"),
    "long tables": (lambda a: {"page_tables": a["page_tables"].long()}, "must be int32.*torch.int64"),
    "long lengths": (lambda a: {"lengths": a["lengths"].long()}, "must be int32.*torch.int64"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(wrong):
    change, message = WRONG[wrong]
    names = ("query", "key_pages", "value_pages", "page_tables", "lengths")
    right = dict(zip(names, paged([5, 9], 4, 4, 2, 16, torch.float32, torch.device("cpu")), strict=True))
    with pytest.raises(ValueError, match=message):
        decode_attention_triton(**(right | change(right)))


def test_pages_smaller_than_a_block_cannot_be_asked_for_one_block_before():
    with pytest.raises(ValueError, match="multiple of 64 tokens: got 16"):
        decode_attention_triton(*paged([5], 16, 4, 2, 16, torch.float32, torch.device("cpu")), carries_page=True)
