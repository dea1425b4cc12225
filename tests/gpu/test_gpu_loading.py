"""Weights go from the file straight to the device."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from foveate.checkpoints import new_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

PROBE = """
import json, sys, threading, time
import torch
import foveate

KINDS = ("RssAnon", "RssFile", "RssShmem")

def resident():
    with open("/proc/self/status") as file:
        sizes = dict(line.split()[:2] for line in file if line.startswith(KINDS))
    return [int(sizes[f"{kind}:"]) * 1024 for kind in KINDS]

# A small model first: what importing and a CUDA context take is not what is measured.
foveate.load(sys.argv[2], device="cuda", compilation_config={"cudagraph_mm_encoder": False})
before, peak, done = resident(), [0, 0, 0], threading.Event()

def watch():
    while not done.is_set():
        peak[:] = max(peak, resident(), key=sum)
        time.sleep(0.002)

watcher = threading.Thread(target=watch)
watcher.start()
vlm = foveate.load(sys.argv[1], device="cuda", compilation_config={"cudagraph_mm_encoder": False})
done.set()
watcher.join()
growth = {kind: after - earlier for kind, earlier, after in zip(KINDS, before, peak)}
print(json.dumps({"growth": growth, "device": str(vlm.model.device), "dtype": str(vlm.model.dtype)}))
"""


@pytest.mark.parametrize("max_shard_bytes", [None, 300_000_000])
def test_loading_takes_host_memory_of_at_most_1_3_times_the_largest_shard(
    tmp_path: Path, max_shard_bytes: int | None
) -> None:
    folder = new_checkpoint(tmp_path / "model", "LFM2.5-VL-450M", max_shard_bytes=max_shard_bytes)
    small = new_checkpoint(tmp_path / "small")
    largest = max(file.stat().st_size for file in folder.glob("*.safetensors"))
    run = subprocess.run(
        [sys.executable, "-c", PROBE, str(folder), str(small)], capture_output=True, text=True, check=True
    )
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen["device"] == "cuda:0"
    assert seen["dtype"] == "torch.bfloat16"
    # Pages of the mapped file itself (RssFile) are the system's cache, dropped whenever somebody needs the memory.
    taken = seen["growth"]["RssAnon"] + seen["growth"]["RssShmem"]
    assert taken <= 1.3 * largest, f"{seen['growth']} bytes for a largest shard of {largest}"
