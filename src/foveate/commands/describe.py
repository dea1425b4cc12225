"""`foveate describe`: a question about one or more pictures."""

import dataclasses
import time
from typing import Annotated, Any

import typer

from foveate.commands.model_choice import ModelOption, model_name
from foveate.commands.output import write_json, write_text
from foveate.commands.progress import stages_bar
from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.images import load_image
from foveate.loading import load
from foveate.vlm import DEFAULT_PROMPT, VLM, question

DEFAULTS = SamplingParams()


def describe(
    pictures: Annotated[list[str], typer.Argument(metavar="PICTURE", help="Files to look at, in this order.")],
    prompt: Annotated[str, typer.Option(help="What to ask.")] = DEFAULT_PROMPT,
    model: ModelOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    max_tokens: Annotated[int, typer.Option(help="Most tokens of the answer.")] = DEFAULTS.max_tokens,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = DEFAULTS.temperature,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = DEFAULTS.seed,
    compilation_config: Annotated[
        str | None,
        typer.Option(help="JSON with the encoder graphs' switches, or @FILE; graphs are on by default on CUDA."),
    ] = None,
    image_decoder: Annotated[
        str, typer.Option(help="auto (JPEGs on the GPU where the extra cuda is installed), cpu or gpu.")
    ] = "auto",
    encoder_dtype: Annotated[
        str, typer.Option(help="auto, or fp8: the vision encoder in float8, not verified on released checkpoints.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the text.")] = False,
) -> None:
    """Answer a question about pictures."""
    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    for picture in pictures:
        load_image(picture)  # a picture that cannot be read is told before the model is loaded, not after
    start = time.perf_counter()
    with stages_bar() as progress:
        vlm = load(
            model,
            device=device,
            dtype=dtype,
            compilation_config=compilation_config,
            image_decoder=image_decoder,
            encoder_dtype=encoder_dtype,
            progress=progress,
        )
    load_ms = (time.perf_counter() - start) * 1e3
    stream = vlm.stream([question(pictures, prompt)], sampling)
    if as_json:
        write_json(_report(vlm, model_name(model), stream.answer, load_ms))
        return
    for piece in stream:
        write_text(piece)
    write_text("\n")


def _report(vlm: VLM, model: str, answer: Answer, load_ms: float) -> dict[str, Any]:
    stages_ms = {"load": load_ms, **answer.stages_ms}
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "stages_ms": {stage: round(value, 3) for stage, value in stages_ms.items()},
        "encoder": dataclasses.asdict(answer.encoder) if answer.encoder else None,
        "model": model,
        "device": str(vlm.model.device),
        "dtype": str(vlm.model.dtype).removeprefix("torch."),
    }
