"""Norm, rotation and cache write in one, against the twin."""

import sys
from dataclasses import replace

import pytest
import torch

from foveate.errors import DeviceError
from foveate.kernels.rotary import kept_rotary_table, rotary_angles
from foveate.kernels.rotary_cache import (
    CacheRows,
    HeadNorms,
    rotate_and_cache,
    rotate_and_cache_reference,
    rotate_and_cache_triton,
)
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

ROWS = 40
MOST_POSITIONS = 32768


def arguments(tokens, heads, key_heads, head_size, dtype, device, seed=0):
    """A projection, positions up to 32,768, norms, and a cache of sevens."""
    qkv = random(tokens, (heads + 2 * key_heads) * head_size, dtype=dtype, device=device, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randint(0, MOST_POSITIONS, (tokens,), generator=generator).to(device)
    weights = (random(head_size, dtype=dtype, device=device, seed=seed + part) for part in (1, 2))
    norms = HeadNorms(*weights, eps=1e-5, theta=1e6, most_positions=MOST_POSITIONS)
    keys, values = (torch.full((ROWS, key_heads, head_size), 7.0, dtype=dtype, device=device) for _ in range(2))
    return qkv, positions, norms, CacheRows(keys, values, torch.randperm(ROWS, generator=generator)[:tokens].to(device))


def copied(cache):
    return replace(cache, keys=cache.keys.clone(), values=cache.values.clone())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "key_heads", "head_size"), [(1, 1, 16), (4, 2, 64), (16, 8, 64), (6, 3, 24), (32, 8, 64)]
)
@pytest.mark.parametrize("tokens", [1, 5])
def test_queries_keys_and_values_are_those_of_plain_torch(device, tokens, heads, key_heads, head_size, dtype):
    qkv, positions, norms, cache = arguments(tokens, heads, key_heads, head_size, dtype, device)
    twin_cache = copied(cache)
    query = rotate_and_cache_triton(qkv, positions, norms, cache)
    twin = rotate_and_cache_reference(qkv, positions, norms, twin_cache)
    wide_norms = replace(norms, query=norms.query.float(), key=norms.key.float())
    wide_cache = CacheRows(twin_cache.keys.float(), twin_cache.values.float(), cache.write_rows)
    exact = rotate_and_cache_reference(qkv.float(), positions, wide_norms, wide_cache)
    if dtype == torch.float32:
        assert relative_error(query, twin) <= 1e-6
        assert relative_error(cache.keys, twin_cache.keys) <= 1e-6
    else:
        assert is_as_right(query, twin, exact)
        assert is_as_right(cache.keys, twin_cache.keys, wide_cache.keys)
    assert torch.equal(cache.values, twin_cache.values)


def test_rows_that_no_token_names_keep_what_they_had(device):
    qkv, positions, norms, cache = arguments(5, 4, 2, 16, torch.float32, device)
    rotate_and_cache_triton(qkv, positions, norms, cache)
    others = torch.ones(ROWS, dtype=torch.bool, device=device).index_fill(0, cache.write_rows, value=False)
    assert (cache.keys[others] == 7).all()
    assert (cache.values[others] == 7).all()
    assert not (cache.values[cache.write_rows] == 7).any()


def test_almost_all_values_have_the_bits_of_plain_torch_in_bfloat16(device):
    """The roundings are the twin's, one by one; only sums in another order may move a last bit."""
    qkv, positions, norms, cache = arguments(8, 4, 2, 64, torch.bfloat16, device)
    twin_cache = copied(cache)
    query = rotate_and_cache_triton(qkv, positions, norms, cache)
    twin = rotate_and_cache_reference(qkv, positions, norms, twin_cache)
    assert (query != twin).float().mean() < 0.02
    assert (cache.keys != twin_cache.keys).float().mean() < 0.02


def test_no_tokens_give_no_queries(device):
    assert rotate_and_cache_triton(*arguments(0, 4, 2, 16, torch.float32, device)).shape == (0, 4, 16)


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    qkv, positions, norms, cache = arguments(3, 4, 2, 16, torch.float32, device)
    chosen = rotate_and_cache_triton if device.type == "cuda" else rotate_and_cache_reference
    expected = chosen(qkv, positions, norms, copied(cache))
    assert torch.equal(rotate_and_cache(qkv, positions, norms, cache), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_size", [24, 64])
def test_the_kept_angles_have_the_bits_of_the_twin_s_at_every_position(device, head_size, dtype):
    table = kept_rotary_table(head_size, 1e6, 128000, dtype, device)
    positions = torch.arange(0, 128000, 7, device=device)
    for kept, angles in zip(table.unbind(1), rotary_angles(positions, head_size, 1e6, dtype), strict=True):
        assert torch.equal(torch.cat((kept, kept), -1)[positions], angles[:, 0])


def test_a_position_outside_the_table_reads_the_nearest_inside(device):
    qkv, _, norms, cache = arguments(4, 4, 2, 16, torch.float32, device)
    norms = replace(norms, most_positions=100)
    inside, outside = (torch.tensor(each, device=device) for each in ([99, 99, 0, 0], [100, 2**40, -1, -(2**40)]))
    nearest = rotate_and_cache_triton(qkv, inside, norms, copied(cache))
    assert torch.equal(rotate_and_cache_triton(qkv, outside, norms, cache), nearest)


def test_the_angles_are_made_once_and_not_inside_a_capture(monkeypatch):
    kept_rotary_table.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(DeviceError, match="run the model once before it is captured"):
        kept_rotary_table(64, 1e6, 100, torch.bfloat16, torch.device("cuda"))
    wanted = (64, 1e6, 100, torch.bfloat16, torch.device("cpu"))
    assert kept_rotary_table(*wanted) is kept_rotary_table(*wanted)


WRONG = {
    "an odd projection": (lambda a: {"qkv": a["qkv"][:, 1:].contiguous()}, r"qkv must be .*got \[3, 127\]"),
    "a strided projection": (lambda a: {"qkv": a["qkv"].T.contiguous().T}, "strides"),
    "other values": (lambda a: {"cache": replace(a["cache"], values=a["cache"].values[1:])}, "of one shape"),
    "too few rows": (lambda a: {"cache": replace(a["cache"], write_rows=a["cache"].write_rows[1:])}, "write_rows must"),
    "fractions": (lambda a: {"positions": a["positions"].float()}, "positions must be.*float32"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(wrong):
    change, message = WRONG[wrong]
    names = ("qkv", "positions", "norms", "cache")
    given = dict(zip(names, arguments(3, 4, 2, 16, torch.float32, torch.device("cpu")), strict=True))
    with pytest.raises(ValueError, match=message):
        rotate_and_cache_triton(**(given | change(given)))
