"""Decode steps run by hand, without an engine around them."""

from collections.abc import Callable

import torch

import foveate
from foveate.config import SamplingParams
from foveate.engine.caches import SequenceMemory
from foveate.engine.decoder import Decoder, DirectBackend
from foveate.engine.memory import EngineMemory, allocate
from foveate.engine.prefill import Chunk, Prefill
from foveate.engine.sampler import SamplingKind
from foveate.engine.settings import EngineSettings

RUNNING = 9
PROMPTS = [[1, 500 + number, *range(900, 905 + 11 * number)] for number in range(RUNNING)]
STEPS = 70
"""Enough to pass the end of a page."""


class RecordingBackend:
    """Calls the work itself, and remembers what was captured and replayed; numbered in order."""

    name = "recording"

    def __init__(self) -> None:
        self.captures = 0
        self.replays: list[int] = []

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        number, self.captures = self.captures, self.captures + 1

        def replay() -> None:
            self.replays.append(number)
            work()

        return replay


class Running:
    """Some prompts that have been prefilled, and what decodes them."""

    def __init__(self, vlm: foveate.VLM, *, held_before: float = 0.0, backend: object | None = None) -> None:
        settings = EngineSettings(max_running=RUNNING, cache_megabytes=64)
        self.memory: EngineMemory = allocate(vlm.model, settings)
        pool, slots = self.memory.pool, self.memory.slots
        for tensor in (pool.tensors.keys, pool.tensors.values, pool.tensors.states):
            tensor.fill_(held_before)
        self.decoder = Decoder(vlm.model, pool.tensors, slots, backend or DirectBackend())
        self.decoder.record()
        self.first: list[int] = []
        self.slots: list[int] = []
        prefill = Prefill(vlm.model, pool, slots)
        for ids in PROMPTS:
            own: SequenceMemory = pool.open(len(ids) + STEPS)
            slots.set(own, SamplingParams(), ids)
            result = prefill.run([Chunk(own, torch.tensor(ids), None, True)], SamplingKind.GREEDY)
            assert result is not None
            self.first.append(int(result.tokens))
            self.slots.append(own.slot)

    def decode(self, batches: list[list[int]], kind: SamplingKind = SamplingKind.GREEDY) -> dict[int, list[int]]:
        """Run each sequence of each batch one token further; returns the tokens of each."""
        tokens = {number: [first] for number, first in enumerate(self.first)}
        for batch in batches:
            new = self.decoder.launch([self.slots[number] for number in batch], kind).tolist()
            for number, token in zip(batch, new, strict=True):
                tokens[number].append(token)
        return tokens
