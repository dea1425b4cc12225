"""What is trained is what is served: one set of weights, two ways to run it."""

import json
import math
from pathlib import Path

import pytest
import torch

import foveate
from foveate.engine.caches import CachePool
from foveate.evaluation.skills import draw
from foveate.evaluation.splits import Split
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor
from foveate.vlm import question

SKILLS = ("shapes", "printed_text", "pairs", "forms")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lfm2VlModel, Processor]:
    from train import build

    model, processor = build(tmp_path_factory.mktemp("demo"), seed=3)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            # What starts at zero would hide a difference.
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model, processor


def test_the_demo_weights_fit_ten_megabytes_in_bfloat16(built: tuple[Lfm2VlModel, Processor]) -> None:
    parameters = sum(parameter.numel() for parameter in built[0].parameters())
    assert 2 * parameters < 9_950_000


def test_the_training_forward_gives_the_rows_of_the_served_model(built: tuple[Lfm2VlModel, Processor]) -> None:
    from network import encode, understand
    from stream import pack, prepare

    model, processor = built
    examples = [prepare(draw(skill, 5, Split.TRAINING), processor) for skill in SKILLS]
    batch = pack(examples, processor.config)
    pixels = (batch.patches.float() - 127.5) / 127.5
    with torch.no_grad():
        features = encode(model.encoder, pixels, batch.tile_shapes)
        served = model.encoder(pixels, batch.tile_shapes)
        assert (features - served).norm() <= 1e-5 * served.norm()
        embeddings = model.language.embedding(batch.token_ids).index_copy(0, batch.feature_rows, features)
        pool = CachePool(model.language.new_caches(pages=128, page_tokens=64, slots=len(examples)), 3)
        sequences = [(pool.open(), len(example.token_ids)) for example in examples]
        expected = model.language(embeddings, pool.append(sequences), pool.tensors)
        hidden = understand(model.language, embeddings, batch)
    assert (hidden - expected).norm() <= 1e-5 * expected.norm()


def test_only_the_answer_and_its_end_are_learned(built: tuple[Lfm2VlModel, Processor]) -> None:
    from stream import pack, prepare

    processor = built[1]
    drawn = [draw(skill, 6, Split.TRAINING) for skill in SKILLS]
    batch = pack([prepare(example, processor) for example in drawn], processor.config)
    learned = batch.labels[batch.labels >= 0].tolist()
    answers = [processor.prompts.tokenizer(example.answer)["input_ids"][1:] for example in drawn]
    assert learned == [token for answer in answers for token in (*answer, 7)]


def test_the_prompt_that_is_learned_from_is_the_prompt_that_is_served(built: tuple[Lfm2VlModel, Processor]) -> None:
    from stream import prepare

    processor = built[1]
    example = draw("pairs", 7, Split.TRAINING)
    prepared = prepare(example, processor)
    messages = [question(example.pictures, example.question)]
    images = processor.patches(processor.load_images(messages))
    served = processor.encode(messages, images)
    assert prepared.token_ids[: prepared.answer_from] == served.token_ids
    pixels = (prepared.patches.float() - 127.5) / 127.5
    assert torch.equal(pixels, torch.cat([image.patches for image in images]))


def test_a_run_goes_on_where_it_stopped_and_exports_a_checkpoint_that_loads(tmp_path: Path) -> None:
    from export import export
    from train import main_with

    arguments = ["--patch-rows", "600", "--workers", "0", "--log-every", "1", "--minutes", "5"]
    main_with([str(tmp_path), "--until-step", "2", *arguments])
    main_with([str(tmp_path), "--until-step", "3", *arguments])
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == [1, 2, 3]
    assert all(math.isfinite(value) for line in lines for value in line.values())
    export(tmp_path / "state.pt", tmp_path / "demo")
    vlm = foveate.load(tmp_path / "demo", device="cpu")
    example = draw("shapes", 1, Split.TEST)
    assert vlm.describe(*example.pictures, sampling=foveate.SamplingParams(max_tokens=3)).completion_tokens <= 3
