"""Measures vLLM's image encoder. Runs in a process of its own, with a Python that need not have Foveate.

python vllm_process.py JOB    # a folder: job.json and inputs.safetensors in, result.json and features.safetensors out
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "HF_HUB_OFFLINE": "1",
}
"""One process, so that the encoder can be called directly."""


def main() -> None:
    """Do the job."""
    folder = Path(sys.argv[1])
    job: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    inputs = load_file(folder / "inputs.safetensors")
    os.environ.update(SETTINGS)
    vllm = importlib.import_module("vllm")
    encode = encoder_of(vllm, job)
    features: dict[str, torch.Tensor] = {}
    times_ms: list[list[float]] = []
    with torch.inference_mode():
        for index in range(job["batches"]):
            batch = {name: inputs[f"{index}.{name}"] for name in ("pixel_values", "spatial_shapes", "num_patches")}
            batch["pixel_values"] = batch["pixel_values"].to("cuda" if torch.cuda.is_available() else "cpu")
            features[str(index)] = torch.cat(list(encode(batch))).cpu().contiguous()
            times_ms.append(time_ms(encode, batch, job["rounds"], job["warm_ups"]))
    save_file(features, folder / "features.safetensors")
    result = {"version": vllm.__version__, "times_ms": times_ms}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def encoder_of(vllm: Any, job: dict[str, Any]) -> Callable[[dict[str, torch.Tensor]], Any]:
    """Start vLLM, and return what encodes a batch: the manager of its encoder graphs, or the model itself."""
    engine = vllm.LLM(
        model=job["model"],
        dtype=job["dtype"],
        compilation_config=job["compilation_config"],
        max_model_len=8192,
        max_num_seqs=64,
        gpu_memory_utilization=0.4,
        mm_processor_cache_gb=0,
        enable_prefix_caching=False,
        limit_mm_per_prompt={"image": 4},
    )
    runner = engine.llm_engine.model_executor.driver_worker.worker.model_runner
    manager = getattr(runner, "encoder_cudagraph_manager", None)
    if job["compilation_config"] and manager is None:
        raise RuntimeError("this vLLM has no encoder graphs for LFM2-VL")

    def encode(batch: dict[str, torch.Tensor], _alive: Any = engine) -> Any:
        # The engine is held here: once nobody holds it, it shuts down and takes the model with it.
        return manager.execute(batch) if manager else runner.get_model().embed_multimodal(**batch)

    return encode


def time_ms(
    encode: Callable[[dict[str, torch.Tensor]], Any], batch: dict[str, torch.Tensor], rounds: int, warm_ups: int
) -> list[float]:
    """Time one batch as Foveate's own benchmark does: host work included, waiting for the device after every call."""
    times = []
    for index in range(warm_ups + rounds):
        start = time.perf_counter()
        encode(batch)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if index >= warm_ups:
            times.append((time.perf_counter() - start) * 1e3)
    return times


if __name__ == "__main__":
    main()
