"""What transformers says with a random checkpoint: something readable that depends on the picture and the question."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoProcessor,
    AutoTokenizer,
    Lfm2VlConfig,
    Lfm2VlForConditionalGeneration,
    Lfm2VlImageProcessor,
    Lfm2VlProcessor,
)

from foveate.checkpoints import LAYOUT_NAMES, CheckpointLayout, layout, new_checkpoint, shrunk

TOKENS = 16
QUESTION = "What is in the picture?"


def pictures() -> dict[str, Image.Image]:
    """Two of noise, and a gradient and its mirror image: pairs with equal averages."""
    noise = np.random.default_rng(7).integers(0, 256, (2, 256, 256, 3), np.uint8)
    gradient = np.zeros((256, 320, 3), np.uint8)
    gradient[..., 0] = np.linspace(0, 255, 320)
    gradient[..., 2] = np.linspace(0, 255, 256)[:, None]
    arrays = {"noise": noise[0], "other noise": noise[1], "gradient": gradient, "mirrored": gradient[:, ::-1].copy()}
    return {name: Image.fromarray(array) for name, array in arrays.items()}


def load_processor(folder: Path, chosen: CheckpointLayout) -> Lfm2VlProcessor:
    """The reference processor; the first revision's files name one without tiles, so its settings are handed over."""
    if chosen.preprocessor is None or chosen.processor is None:
        return AutoProcessor.from_pretrained(folder)
    others = ("processor_class", "use_image_special_tokens")
    settings = {key: value for key, value in chosen.processor.items() if key not in others}
    template = (folder / "chat_template.jinja").read_text()
    return Lfm2VlProcessor(
        Lfm2VlImageProcessor(**settings), AutoTokenizer.from_pretrained(folder), chat_template=template
    )


class Reference:
    """A checkpoint of one layout in transformers, in float32."""

    def __init__(self, folder: Path, chosen: CheckpointLayout) -> None:
        config = Lfm2VlConfig.from_pretrained(folder)
        config.vision_config.num_hidden_layers = chosen.vision_layers_stored
        self.model, self.report = Lfm2VlForConditionalGeneration.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True
        )
        self.processor = load_processor(folder, chosen)

    def inputs(self, picture: Image.Image, question: str) -> dict[str, Any]:
        content = [{"type": "image", "image": picture}, {"type": "text", "text": question}]
        return self.processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )

    def answer(self, picture: Image.Image, question: str = QUESTION) -> tuple[int, ...]:
        inputs = self.inputs(picture, question)
        with torch.no_grad():
            tokens = self.model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        return tuple(tokens[0, inputs["input_ids"].shape[1] :].tolist())


@pytest.fixture(scope="module", params=[name for name in LAYOUT_NAMES if name != "tiny"])
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    chosen = shrunk(layout(request.param))
    return Reference(new_checkpoint(tmp_path_factory.mktemp("checkpoint") / "out", chosen), chosen)


def test_no_tensor_is_missing_or_left_over(reference: Reference) -> None:
    """The loading report of transformers names no missing, unexpected or mismatched tensor."""
    assert not any(reference.report.values()), reference.report


def test_answers_depend_on_the_picture_and_do_not_repeat_themselves(reference: Reference) -> None:
    """Four pictures get four answers by greedy decoding, none of which is one token over and over."""
    answers = {name: reference.answer(picture) for name, picture in pictures().items()}
    for first, second in itertools.combinations(answers, 2):
        assert answers[first] != answers[second], f"{first} and {second} have the same answer"
    for tokens in answers.values():
        assert len(set(tokens)) >= 2 * len(tokens) // 3
        assert len(set(tokens[:4])) > 1


def test_answers_depend_on_the_question(reference: Reference) -> None:
    """Another question about the same picture gets another answer."""
    picture = pictures()["gradient"]
    assert reference.answer(picture, QUESTION) != reference.answer(picture, "Count the dogs.")


def test_answers_are_words(reference: Reference) -> None:
    """An answer decodes to letters and spaces."""
    text = reference.processor.decode(reference.answer(pictures()["noise"]), skip_special_tokens=True)
    assert text.replace(" ", "").isalpha()


def test_activations_stay_sane(reference: Reference) -> None:
    """Image features and hidden states stay below 100 and logits below 30: no type overflows, none vanishes."""
    inputs = reference.inputs(pictures()["gradient"], QUESTION)
    with torch.no_grad():
        output = reference.model(**inputs, output_hidden_states=True)
    assert 0.05 < torch.cat(list(output.image_hidden_states)).abs().max() < 100
    assert all(0.05 < state.abs().max() < 100 for state in output.hidden_states[1:])
    assert 1 < output.logits[0, -1].std() < 4
    assert output.logits.abs().max() < 30
