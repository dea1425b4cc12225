"""How long from starting Python to being ready to serve, and to the first words, with everything on disk?

    python benchmarks/start_up.py OUT.json [--sizes 450M 3B]

Writes a checkpoint of random weights of each true size, then starts a fresh process twice: the first compiles kernels
and measures costs, the second finds both on disk. Each loads the checkpoint in bfloat16, captures and checks every
graph, and answers one question about a JPEG.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import SIZES, need_gpu, write_report

PROCESS = """
import json, sys, time
start = time.perf_counter()
import foveate
from foveate.bench.serving_pictures import drawn_jpegs
imported = time.perf_counter()
parts, last = {}, [None, imported]

def told(part, done, total):
    now = time.perf_counter()
    parts[part] = parts.get(part, 0.0) + now - last[1]
    last[:] = part, now

vlm = foveate.load(sys.argv[1], device="cuda", dtype="bfloat16", progress=told)
ready = time.perf_counter()
vlm.describe(drawn_jpegs(512, 512)[0], sampling=foveate.SamplingParams(max_tokens=1))
first = time.perf_counter()
seconds = {"import": imported - start, "load": ready - imported, "first_words": first - ready, **parts}
print(json.dumps({name: round(value, 2) for name, value in seconds.items()}))
"""


def start_once(folder: Path) -> dict[str, Any]:
    """Start one process; returns its seconds by stage, and in all."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PROCESS, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the process failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    ready = found["import"] + found["load"]
    return {**found, "ready": round(ready, 2), "process": round(time.perf_counter() - start, 2)}


def measure(size: str) -> dict[str, Any]:
    """Write a checkpoint and start twice."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        command = [sys.executable, "-m", "foveate", "new-checkpoint", str(folder), "--like", SIZES[size]]
        subprocess.run(command, check=True, capture_output=True)
        result = {"first_start_s": start_once(folder), "second_start_s": start_once(folder)}
    print(size, result, flush=True)
    return result


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    arguments = parser.parse_args()
    need_gpu()
    results = {size: measure(size) for size in arguments.sizes}
    write_report(arguments.out, "How long from starting Python to being ready to serve?", {"sizes": results})


if __name__ == "__main__":
    main()
