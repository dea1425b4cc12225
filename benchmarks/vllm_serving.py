"""vLLM on the work of `engine.py`: the same JPEG bytes, the same loads, its decoding of the files counted.

    python benchmarks/pictures_for_vllm.py FOLDER
    VLLM_PYTHON benchmarks/vllm_serving.py MODEL FOLDER OUT.json [--mode eager|graph|tuned|reference] [--rounds 8]

The first line writes the JPEGs of `engine.py` as files, so the second needs vLLM and Pillow but not Foveate. MODEL is a
checkpoint folder, such as one of `foveate new-checkpoint`. `graph` is vLLM's automatic budgets; `tuned` has budgets
that fit LFM2-VL; `reference` has those of the pull request that brought the graphs, 64 to 4096 tokens, at most 16
pictures.
"""

import argparse
import importlib
import io
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "HF_HUB_OFFLINE": "1",
}
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "graph": {"cudagraph_mm_encoder": True},
    "tuned": {
        "cudagraph_mm_encoder": True,
        "encoder_cudagraph_token_budgets": [64, 128, 192, *range(256, 2817, 256)],
    },
    "reference": {
        "cudagraph_mm_encoder": True,
        "encoder_cudagraph_token_budgets": [64, 256, 512, 1024, 2048, 4096],
        "encoder_cudagraph_max_vision_items_per_batch": 16,
    },
}
PROMPT = "<|startoftext|><|im_start|>user\n<image>What is this?<|im_end|>\n<|im_start|>assistant\n"
WARM_UPS = 2


def ask(llm: Any, params: Any, files: Sequence[bytes]) -> None:
    """Decode the files and have all of them answered."""
    prompts = [
        {"prompt": PROMPT, "multi_modal_data": {"image": Image.open(io.BytesIO(data)).convert("RGB")}} for data in files
    ]
    llm.generate(prompts, params, use_tqdm=False)


def summary(times_ms: list[float]) -> dict[str, float]:
    """Return median and least."""
    return {"median_ms": round(statistics.median(times_ms), 3), "min_ms": round(min(times_ms), 3)}


def main() -> None:
    """Measure every load and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mode", default="graph", choices=list(MODES))
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    told = arguments.pictures / "loads.json"
    if not told.is_file():
        raise SystemExit(
            f"There is no {told}: make it with python benchmarks/pictures_for_vllm.py {arguments.pictures}"
        )
    loads = json.loads(told.read_text(encoding="utf-8"))
    try:
        vllm = importlib.import_module("vllm")
    except ImportError as error:
        raise SystemExit(f"This benchmark needs a Python that has vLLM: {error}") from None
    start = time.perf_counter()
    llm = vllm.LLM(
        model=str(arguments.model),
        max_model_len=8192,
        gpu_memory_utilization=0.4,
        mm_processor_cache_gb=0,
        enable_prefix_caching=False,
        limit_mm_per_prompt={"image": 4},
        max_num_seqs=64,
        compilation_config=MODES[arguments.mode],
    )
    report: dict[str, Any] = {"vllm": vllm.__version__, "mode": arguments.mode, "model": arguments.model.name}
    report |= {"start_s": round(time.perf_counter() - start, 1), "rows": []}
    for load in loads:
        files = [(arguments.pictures / name).read_bytes() for name in load["files"]]
        params = vllm.SamplingParams(max_tokens=load["output_tokens"], ignore_eos=True, temperature=0)
        times = []
        for number in range(WARM_UPS + arguments.rounds):
            shown = [files[(number * load["at_once"] + index) % len(files)] for index in range(load["at_once"])]
            begun = time.perf_counter()
            ask(llm, params, shown)
            if number >= WARM_UPS:
                times.append((time.perf_counter() - begun) * 1e3)
        report["rows"].append({**load, "round_ms": summary(times)})
        print(arguments.mode, load["pictures"], load["output_tokens"], load["at_once"], summary(times), flush=True)
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
