"""The seeded values: reproducible one by one, sane in size, and shaped so that words are said."""

import itertools
from dataclasses import replace

import pytest
import torch

from foveate.checkpoints import CheckpointLayout, layout, random_tensors, shrunk
from foveate.checkpoints.tokenizer import spoken_ids
from foveate.errors import ConfigurationError

SMALL = [layout("tiny"), shrunk(layout("LFM2-VL-1.6B")), shrunk(layout("LFM2.5-VL-3B"))]


def values(chosen: CheckpointLayout, **settings) -> dict[str, torch.Tensor]:
    return dict(random_tensors(chosen, **settings))


@pytest.mark.parametrize("chosen", SMALL, ids=lambda chosen: chosen.name)
def test_the_same_seed_gives_the_same_bits(chosen: CheckpointLayout) -> None:
    """Two generations with one seed are equal bit for bit; with another seed every tensor differs."""
    first, again, other = values(chosen, seed=5), values(chosen, seed=5), values(chosen, seed=6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_a_tensor_depends_on_its_own_name_only() -> None:
    """A layout with other tensors around it, and other naming, leaves a tensor of the same name and shape as it is."""
    tiny = layout("tiny")
    fewer = replace(tiny, config={**tiny.config, "vision_config": {**tiny.vision, "num_hidden_layers": 1}})
    all_of_it, part, renamed = values(tiny), values(fewer), values(tiny, names="transformers")
    assert part.keys() < all_of_it.keys()
    assert all(torch.equal(part[name], all_of_it[name]) for name in part)
    assert all(torch.equal(a, b) for a, b in zip(all_of_it.values(), renamed.values(), strict=True))
    assert not any("vision_model" in name for name in renamed)


def test_types_differ_by_rounding_only() -> None:
    """The bfloat16 and float16 values are the float32 values, rounded."""
    exact, short, half = (values(layout("tiny"), dtype=dtype) for dtype in ("float32", "bfloat16", "float16"))
    for name, tensor in exact.items():
        assert torch.equal(short[name], tensor.bfloat16())
        # Quiet rows are quartered after rounding, which below float16's normal numbers costs another half step.
        torch.testing.assert_close(half[name], tensor.half(), rtol=0, atol=2**-24)


def test_values_have_a_sane_size() -> None:
    """Nothing is zero, infinite or huge: each tensor's root mean square lies between 0.001 and 20."""
    for chosen in SMALL:
        for name, tensor in random_tensors(chosen, dtype="float32"):
            assert 1e-3 < tensor.square().mean().sqrt() < 20, name


def test_only_words_and_the_end_of_the_answer_are_loud() -> None:
    """Rows of the tied head for bytes, pieces and special tokens are a quarter as large as those for words."""
    for chosen in SMALL:
        head = values(chosen, dtype="float32")["model.language_model.embed_tokens.weight"]
        sizes = head.square().mean(dim=1).sqrt()
        loud = torch.zeros(chosen.vocabulary_tokens, dtype=torch.bool)
        loud[[*spoken_ids(chosen), chosen.special_tokens.end_id]] = True
        assert 0.018 < sizes[loud].mean() < 0.022
        assert 0.0045 < sizes[~loud].mean() < 0.0055
        assert loud.sum() > 800


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "int8"}, r"unknown dtype 'int8'.*bfloat16, float16, float32"),
        ({"names": "mlx"}, r"unknown tensor names 'mlx'.*official or transformers"),
    ],
)
def test_unknown_settings_are_refused_at_once(settings: dict[str, str], message: str) -> None:
    """A wrong setting raises when the function is called, not when the first tensor is taken."""
    with pytest.raises(ConfigurationError, match=message):
        random_tensors(layout("tiny"), **settings)  # type: ignore[arg-type]


def test_large_tensors_are_drawn_in_chunks_without_a_seam() -> None:
    """A tensor of four chunks does not repeat itself where chunks begin."""
    name, head = next(random_tensors(layout("LFM2.5-VL-450M")))
    assert (name, head.shape) == ("model.language_model.embed_tokens.weight", (65536, 1024))
    signs_at_chunk_starts = head[:: head.shape[0] // 4].sign()
    for first, second in itertools.combinations(signs_at_chunk_starts, 2):
        assert not torch.equal(first, second)
