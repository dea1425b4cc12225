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
    from lessons import draw_lesson
    from network import encode, understand
    from stream import pack, prepare

    model, processor = built
    examples = [prepare(draw_lesson(skill, 5), processor) for skill in SKILLS]
    batch = pack(examples, processor.config)
    pixels = (batch.patches.float() - 127.5) / 127.5
    with torch.no_grad():
        features = encode(model.encoder, pixels, batch.tile_shapes)
        served = model.encoder(pixels, batch.tile_shapes)
        assert (features - served).norm() <= 1e-5 * served.norm()
        embeddings = model.language.embedding(batch.token_ids).index_copy(0, batch.feature_rows, features)
        pool = CachePool(model.language.new_caches(pages=128, page_tokens=64, slots=len(examples)))
        sequences = [(pool.open(), len(example.token_ids)) for example in examples]
        expected = model.language(embeddings, pool.append(sequences), pool.tensors)
        hidden = understand(model.language, embeddings, batch)
    assert (hidden - expected).norm() <= 1e-5 * expected.norm()


def test_only_the_answers_and_their_ends_are_learned(built: tuple[Lfm2VlModel, Processor]) -> None:
    from lessons import draw_lesson
    from stream import pack, prepare

    processor = built[1]
    lessons = [draw_lesson(kind, 6) for kind in (*SKILLS, "read_form")]
    batch = pack([prepare(lesson, processor) for lesson in lessons], processor.config)
    learned = batch.labels[batch.labels >= 0].tolist()
    answers = [processor.prompts.tokenizer(turn[1])["input_ids"][1:] for lesson in lessons for turn in lesson.turns]
    assert len(answers) == len(SKILLS) + 5
    assert learned == [token for answer in answers for token in (*answer, 7)]
    counted = batch.weights[batch.labels >= 0].tolist()
    assert counted == pytest.approx([(len(a) + 1) ** -0.5 for a in answers for _ in range(len(a) + 1)])


def test_the_prompt_that_is_learned_from_is_the_prompt_that_is_served(built: tuple[Lfm2VlModel, Processor]) -> None:
    from lessons import draw_lesson
    from stream import prepare

    processor = built[1]
    for kind in ("pairs", "read_form"):
        lesson = draw_lesson(kind, 7)
        prepared = prepare(lesson, processor)
        messages = [question(lesson.pictures, lesson.turns[0][0])]
        for (_, answer), (asked, _) in zip(lesson.turns[:-1], lesson.turns[1:], strict=True):
            messages += [{"role": "assistant", "content": answer}, question([], asked)]
        images = processor.patches(processor.load_images(messages))
        served = processor.encode(messages, images)
        assert prepared.token_ids[: len(served.token_ids)] == served.token_ids
        assert prepared.weights[len(served.token_ids) - 1] == 0 < prepared.weights[len(served.token_ids)]
        pixels = (prepared.patches.float() - 127.5) / 127.5
        assert torch.equal(pixels, torch.cat([image.patches for image in images]))


def test_filling_a_batch_up_changes_no_loss_and_no_gradient(built: tuple[Lfm2VlModel, Processor]) -> None:
    from glyphs import CLASSES, SLOTS
    from lessons import draw_lesson
    from network import losses_of
    from padding import Capacity, padded
    from stream import pack, prepare

    model, processor = built
    batch = pack([prepare(draw_lesson(kind, 8), processor) for kind in ("read_lines", "digits")], processor.config)
    rows = len(batch.patches)
    head = torch.nn.Linear(model.config.language.hidden_size, SLOTS * CLASSES)
    found = []
    for one in (batch, padded(batch, Capacity(rows + 1024 + 64 + 12, len(batch.token_ids) + 300))):
        model.zero_grad()
        losses = losses_of(model, head, one)
        (losses.answers + losses.glyphs).backward()
        gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
        found.append((torch.stack(list(vars(losses.detached()).values())), torch.cat(gradients)))
    (plain, plain_gradient), (filled, filled_gradient) = found
    torch.testing.assert_close(filled, plain, rtol=1e-5, atol=1e-6)
    assert (filled_gradient - plain_gradient).norm() <= 1e-4 * plain_gradient.norm()


def test_batches_of_one_capacity_have_one_size(built: tuple[Lfm2VlModel, Processor]) -> None:
    from padding import Capacity
    from stream import ExampleStream

    stream = iter(ExampleStream(built[1], {"digits": 1.0, "shapes": 1.0}, Capacity(4096, 4096), start=5))
    first, second = ({name: getattr(batch, name) for name in vars(batch)} for batch in (next(stream), next(stream)))
    sizes = [{name: getattr(value, "shape", value) for name, value in batch.items()} for batch in (first, second)]
    assert sizes[0] == sizes[1]
    assert not torch.equal(first["patches"], second["patches"])
    assert int(first["tile_shapes"].prod(1).sum()) == len(first["patches"]) == 4096
    assert int(first["bounds"][-1]) == len(first["token_ids"])


def test_what_exceeds_the_capacity_is_told(built: tuple[Lfm2VlModel, Processor]) -> None:
    from padding import Capacity
    from stream import ExampleStream

    stream = ExampleStream(built[1], {"read_page": 1.0}, Capacity(4096, 4096), start=1)
    with pytest.raises(ValueError, match="exceeds Capacity"):
        next(iter(stream))


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 12, 8), (2, 8, 20)])
def test_muon_moves_along_nearly_orthogonal_matrices(shape: tuple[int, int, int]) -> None:
    from muon import orthogonal

    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(matrices).float())
    assert values.min() > 0.4
    assert values.max() < 1.4
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    alike = torch.cosine_similarity(orthogonal(matrices).float().flatten(1), (left @ right).flatten(1))
    assert alike.min() > 0.9


def test_muon_agrees_with_the_one_in_torch() -> None:
    from muon import Muon

    generator = torch.Generator().manual_seed(2)
    ours = [torch.nn.Parameter(torch.randn(12, 8, generator=generator)) for _ in range(2)]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    muon, reference = Muon(ours, 0.02), torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.02)
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(12, 8, generator=generator)
            other.grad = one.grad.clone()
        muon.step(torch.ones(()))
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= 2e-3 * one.norm()


def test_a_run_goes_on_where_it_stopped_and_exports_a_checkpoint_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from export import export
    from train import main_with

    arguments = ["--patch-rows", "2048", "--workers", "0", "--log-every", "1", "--minutes", "5"]
    monkeypatch.setattr("train.MIXTURE", {"digits": 1.0, "shapes": 1.0})
    main_with([str(tmp_path), "--until-step", "2", *arguments])
    main_with([str(tmp_path), "--until-step", "3", *arguments])
    main_with([str(tmp_path), "--until-step", "3", *arguments])  # nothing is left to do
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == [1, 2, 3]
    assert all(math.isfinite(value) for line in lines for value in line.values())
    export(tmp_path / "state.pt", tmp_path / "demo")
    vlm = foveate.load(tmp_path / "demo", device="cpu")
    example = draw("shapes", 1, Split.TEST)
    assert vlm.describe(*example.pictures, sampling=foveate.SamplingParams(max_tokens=3)).completion_tokens <= 3


@pytest.mark.parametrize(
    "wrong", [("--uses", "0"), ("--log-every", "0"), ("--patch-rows", "5"), ("--rate", "-1"), ("--minutes", "nan")]
)
def test_what_no_run_can_do_is_told_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: tuple[str, str]
) -> None:
    from train import main_with

    with pytest.raises(SystemExit):
        main_with([str(tmp_path / "work"), *wrong])
    assert wrong[0] in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
