"""From what somebody asks to the report of the serving benchmarks: the model, its engines, the rows."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from foveate.bench.report import report
from foveate.bench.serving import Load, measure_load
from foveate.bench.serving_pictures import drawn_jpegs, pictures_in
from foveate.bench.serving_question import ServingQuestion
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.settings import EngineSettings
from foveate.errors import ConfigurationError
from foveate.loading import LoadProgress, choose_device, choose_dtype, load
from foveate.testing import random_vlm
from foveate.vlm import VLM

CACHE_FRACTION = 0.4
"""Of the memory that is free, for the caches of each of the two engines."""
CPU_BUDGETS = [64, 256, 768]


def serving_report(question: ServingQuestion, progress: LoadProgress) -> dict[str, Any]:
    """Measure, and return the report as its JSON holds it.

    `progress` is told what is being done, how many are done, and of how many. Raises what `foveate.load` raises.
    """
    device, loads = choose_device(question.device), _loads(question)
    settings = EngineSettings(max_running=max(question.at_once), image_cache_megabytes=0, cache_fraction=CACHE_FRACTION)
    start = time.perf_counter()
    vlm = _model(question, device, settings, progress)
    load_s = time.perf_counter() - start
    if "graph" in question.ways and isinstance(vlm.encoder, EagerImageEncoder):
        raise ConfigurationError(
            "the compilation config leaves the encoder graphs off here; set cudagraph_mm_encoder to true, or measure"
            " without graphs (--graphs off)"
        )
    with ExitStack() as engines:
        vlms, start_s = {}, {}
        for way in question.ways:
            plain = EagerImageEncoder(vlm.model.encoder)
            own = VLM(vlm.model, vlm.processor, plain, settings=settings) if way == "eager" else vlm
            vlms[way] = engines.enter_context(own)
            start = time.perf_counter()
            own.start_engine(partial(progress, "decode steps"))
            start_s[way] = round(time.perf_counter() - start, 2)
        rounds, rows = question.rounds_on(device), []
        for done, each in enumerate(loads):
            progress(f"{each.name}, {each.output_tokens} tokens, {each.at_once} at once", done, len(loads))
            rows.append(measure_load(vlms, each, rounds))
    measured = {
        "model": question.model or f"{question.layout_on(device)}, random weights",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": str(vlm.model.dtype).removeprefix("torch."),
        "rounds": rounds,
        "load_s": round(load_s, 2),
        "engine_start_s": start_s,
        "rows": rows,
    }
    return report("How long from the bytes of a picture to the words about it?", measured)


def _loads(question: ServingQuestion) -> list[Load]:
    shown: list[tuple[str, Sequence[bytes]]]
    if question.pictures is not None:
        shown = [(question.pictures.name or "pictures", pictures_in(question.pictures))]
    else:
        shown = [(f"{width}x{height}", drawn_jpegs(width, height)) for width, height in question.sizes]
    return [
        Load(name, pictures, tokens, at_once)
        for name, pictures in shown
        for tokens in question.output_tokens
        for at_once in question.at_once
    ]


def _model(question: ServingQuestion, device: torch.device, settings: EngineSettings, progress: LoadProgress) -> VLM:
    graphs: Any = question.compilation_config or {"cudagraph_mm_encoder": "graph" in question.ways}
    if device.type == "cpu" and question.compilation_config is None:
        graphs["encoder_cudagraph_token_budgets"] = CPU_BUDGETS  # All automatic ones would be checked for a minute.
    if question.model is not None:
        return load(
            question.model,
            device=question.device,
            dtype=question.dtype,
            compilation_config=graphs,
            engine=settings,
            progress=progress,
        )
    dtype = str(choose_dtype(question.dtype, device, "bfloat16")).removeprefix("torch.")
    return random_vlm(
        question.layout_on(device), device=question.device, dtype=dtype, compilation_config=graphs, engine=settings
    )
