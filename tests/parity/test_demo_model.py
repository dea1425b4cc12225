"""The model that ships with Foveate is an ordinary checkpoint: transformers opens its folder and answers alike."""

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

import foveate
from foveate.evaluation.predictors import FoveatePredictor, TransformersPredictor
from foveate.evaluation.runner import compare, evaluate
from foveate.loading import DEMO_MODEL

SKILLS = ("shapes", "printed_text", "pairs", "pages")
EACH = 3
MOST_BYTES = 10_000_000


def test_transformers_opens_the_folder_with_no_tensor_missing_or_left_over():
    model, report = AutoModelForImageTextToText.from_pretrained(DEMO_MODEL, output_loading_info=True)
    assert {name: list(found) for name, found in report.items() if found} == {}
    assert model.config.model_type == AutoConfig.from_pretrained(DEMO_MODEL).model_type == "lfm2_vl"
    assert AutoProcessor.from_pretrained(DEMO_MODEL).image_processor is not None


def test_a_dozen_questions_get_the_answers_of_transformers_in_float32():
    """From pictures of one tile, of two pictures, and of many tiles; greedy, on a CPU."""
    ours = FoveatePredictor(foveate.load(device="cpu"), "foveate")
    reference = TransformersPredictor(DEMO_MODEL, torch.device("cpu"), torch.float32)
    first, second = evaluate([ours, reference], limit=EACH, skills=SKILLS)
    assert len(first.predictions) == 12
    assert [given.text for given in first.predictions] == [given.text for given in second.predictions]
    assert compare(first, second).mean_logit_norm_difference < 1e-4


def test_the_packaged_files_are_small_and_hold_bfloat16():
    assert sum(path.stat().st_size for path in DEMO_MODEL.iterdir()) < MOST_BYTES
    with safe_open(DEMO_MODEL / "model.safetensors", "pt") as tensors:
        assert {tensors.get_tensor(name).dtype for name in tensors.keys()} == {torch.bfloat16}  # noqa: SIM118


@pytest.mark.parametrize("name", ["config.json", "processor_config.json", "tokenizer.json", "chat_template.jinja"])
def test_the_folder_is_whole(name):
    assert (DEMO_MODEL / name).is_file()
