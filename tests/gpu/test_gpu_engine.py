"""The engine on a GPU: captured decode steps, and the encoder beside them, change no answer and wait for nothing."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

import foveate
from foveate.checkpoints import layout, shrunk
from foveate.engine.caches import SequenceMemory
from foveate.engine.decoder import DirectBackend, step_backend
from foveate.engine.engine import Engine
from foveate.engine.memory import allocate
from foveate.engine.noise import exponential_noise
from foveate.engine.prefill import Chunk, Prefill
from foveate.engine.prefill_graphs import PrefillGraphs
from foveate.engine.request import TextPiece
from foveate.engine.sampler import SamplingKind
from foveate.engine.settings import EngineSettings
from foveate.graphs.backends import CudaGraphBackend
from foveate.testing import random_vlm
from tests.engine.driving import ask, is_all_free, on_and_on, show, text
from tests.engine.stepping import RUNNING, Running

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

DEVICE = torch.device("cuda", 0)
Picture = Callable[[int], np.ndarray]


@pytest.fixture(scope="module")
def exact() -> foveate.VLM:
    """A small model in float32, with encoder graphs."""
    return random_vlm(
        shrunk(layout("LFM2.5-VL-1.6B")),
        device="cuda",
        dtype="float32",
        compilation_config={"cudagraph_mm_encoder": True, "encoder_cudagraph_token_budgets": [64, 256, 1024]},
    )


@pytest.fixture(scope="module")
def large() -> foveate.VLM:
    """The 450M model in bfloat16."""
    return random_vlm("LFM2.5-VL-450M", device="cuda", dtype="bfloat16")


@pytest.fixture(scope="module")
def picture() -> Picture:
    def make(number: int) -> np.ndarray:
        sides = random.Random(number)
        shape = (sides.randint(40, 900), sides.randint(40, 900), 3)
        return np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)

    return make


def test_a_gpu_captures_its_decode_steps():
    assert isinstance(step_backend(DEVICE), CudaGraphBackend)


def test_answers_in_company_are_those_that_each_gets_alone_without_graphs(exact: foveate.VLM, picture: Picture):
    conversations = [show(picture(n)) if n % 3 else text(f"Tell me of the sea, part {n}.") for n in range(24)]
    alone_engine = Engine(
        exact.model, exact.processor, exact.encoder, EngineSettings(max_running=1), backend=DirectBackend()
    )
    with alone_engine as engine:
        alone = [ask(engine, each, on_and_on(24)).answer().token_ids for each in conversations]
    chosen = EngineSettings(max_running=12, prefill_tokens_per_step=300, cache_megabytes=64)
    with Engine(exact.model, exact.processor, exact.encoder, chosen) as engine:
        heard = [ask(engine, each, on_and_on(24)) for each in conversations]
        together = [each.answer().token_ids for each in heard]
        assert is_all_free(engine)
    assert together == alone


@pytest.mark.parametrize("kind", SamplingKind)
def test_a_replay_has_the_bits_of_the_same_kernels_launched_one_by_one(large: foveate.VLM, kind: SamplingKind):
    """Tokens and all pages and states, after steps of every size, padded and not."""
    batches = [list(range(1 + step % RUNNING)) for step in range(40)]
    direct, replayed = (Running(large, backend=each) for each in (DirectBackend(), CudaGraphBackend(DEVICE)))
    assert replayed.decode(batches, kind) == direct.decode(batches, kind)
    for one, other in zip(
        (direct.memory.pool.tensors.keys, direct.memory.pool.tensors.values, direct.memory.pool.tensors.states),
        (replayed.memory.pool.tensors.keys, replayed.memory.pool.tensors.values, replayed.memory.pool.tensors.states),
        strict=True,
    ):
        # The last page and the last slot are the padding's, which several rows write at a time.
        assert torch.equal(one[:, :-1], other[:, :-1])


def test_what_nobody_wrote_is_never_read(large: foveate.VLM):
    batches = [list(range(5))] * 70
    clean, poisoned = (Running(large, held_before=each, backend=CudaGraphBackend(DEVICE)) for each in (0, torch.nan))
    assert poisoned.decode(batches) == clean.decode(batches)


@torch.inference_mode()
def test_a_launch_waits_for_nothing(large: foveate.VLM):
    """Neither a decode step, nor letting a request in, nor a chunk of its prompt."""
    running = Running(large, backend=CudaGraphBackend(DEVICE))
    pool, slots = running.memory.pool, running.memory.slots
    graphs = PrefillGraphs(large.model, pool.tensors, slots, CudaGraphBackend(DEVICE), 128)
    graphs.record()
    plain, prefill = Prefill(large.model, pool, slots), Prefill(large.model, pool, slots, graphs)
    params = foveate.SamplingParams(repetition_penalty=1.1)
    tokens, features = torch.tensor([396, *range(900, 1000)]), torch.zeros(1, 1024, device="cuda", dtype=torch.bfloat16)
    pool.close(SequenceMemory(running.slots.pop()))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for count in (1, 3, 8, 3):
            for kind in SamplingKind:
                running.decoder.launch(running.slots[:count], kind)
        own = pool.open(200)
        slots.set(own, params, tokens.tolist())
        for way in (prefill, plain):
            pool.restart(own)
            way.run([Chunk(own, tokens[:40], features, False)], SamplingKind.DRAWN)
            way.run([Chunk(own, tokens[40:], None, True)], SamplingKind.DRAWN)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_requests_of_all_kinds_are_answered_and_leave_nothing(large: foveate.VLM, picture: Picture):
    """Pictures are encoded while others decode; some are cancelled, one is no picture."""
    with Engine(large.model, large.processor, large.encoder, EngineSettings(cache_megabytes=2000)) as engine:
        sampling = [
            {},
            {"temperature": 0.1, "min_p": 0.15, "repetition_penalty": 1.05},
            {"temperature": 1, "top_p": 0.9},
        ]
        heard = [ask(engine, show(picture(n)), on_and_on(40, **sampling[n % 3])) for n in range(40)]
        bad = ask(engine, show(b"not a picture"))
        assert isinstance(heard[0].next(), TextPiece)
        for each in heard[::7]:
            engine.cancel(each.request)
        for n, each in enumerate(heard):
            if n % 7:
                answer = each.answer()
                assert answer.completion_tokens == 40
                assert {"encode", "prefill", "decode"} <= answer.stages_ms.keys()
        assert bad.error()
        assert is_all_free(engine)


@torch.inference_mode()
@pytest.mark.parametrize("on_graphs", [False, True], ids=["kernels", "graphs"])
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_a_prompt_in_chunks_has_the_logits_of_one_in_one_piece(dtype: str, bound: float, on_graphs: bool):
    """Kernel by kernel and on graphs with padding."""
    vlm = random_vlm(shrunk(layout("LFM2.5-VL-1.6B")), device="cuda", dtype=dtype)
    memory = allocate(vlm.model, EngineSettings(max_running=1, cache_megabytes=64))
    graphs, ids = None, torch.tensor([1, *range(900, 1300)])
    if on_graphs:
        graphs = PrefillGraphs(vlm.model, memory.pool.tensors, memory.slots, CudaGraphBackend(DEVICE), 512)
        graphs.record()
    prefill, plain = (Prefill(vlm.model, memory.pool, memory.slots, each) for each in (graphs, None))

    def run(prefill: Prefill, chunk_tokens: int) -> torch.Tensor:
        own = memory.pool.open(len(ids) + 1)
        memory.slots.set(own, foveate.SamplingParams(), ids.tolist())
        for first in range(0, len(ids), chunk_tokens):
            end = min(first + chunk_tokens, len(ids))
            result = prefill.run([Chunk(own, ids[first:end], None, end == len(ids))], SamplingKind.GREEDY)
        memory.pool.close(own)
        assert result is not None
        return result.logits[0].double()

    whole = run(plain, len(ids))
    for chunk_tokens in (1, 2, 64, 150, len(ids)):
        assert (run(prefill, chunk_tokens) - whole).norm() <= bound * whole.norm()


def test_noise_on_the_gpu_is_that_of_the_cpu():
    seed, position = torch.tensor([[0], [7], [2**63 - 1]]), torch.tensor([[0], [1], [1000]])
    on_cpu = exponential_noise(seed, position, 5000)
    on_gpu = exponential_noise(seed.cuda(), position.cuda(), 5000).cpu()
    torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-5, atol=1e-7)
