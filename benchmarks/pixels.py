"""How long from the bytes of a JPEG to its image features, stage by stage, and how long with the CPU's pixels?

    python benchmarks/pixels.py OUT.json [--sizes 450M 3B] [--rounds 20]

Random weights of the true sizes, encoder graphs, bfloat16; a photograph with grain at quality 92. Each row first checks
the pixels against the CPU's; then all ways are timed in turn, host work included, waiting for the device after every
call. At the end, what nvImageCodec's backends take for the same files.
"""

import argparse
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SIZES, need_gpu, relative_error, time_interleaved, write_report
from PIL import Image

from foveate import VLM
from foveate.images import ImageLimits, NvImageCodec, load_image, read_header
from foveate.models.lfm2_vl.device_pictures import DevicePictures
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.pictures import HostPictures, Pictures
from foveate.testing import random_vlm

GPU = torch.device("cuda", 0)
PICTURES = {"512x512": (512, 512), "1920x1080": (1920, 1080)}
SUBSAMPLING = {"4:2:0": 2, "4:2:2": 1, "4:4:4": 0}
MOST_MS = {
    ("450M", "512x512"): 2.5,
    ("3B", "512x512"): 4.5,
    ("450M", "1920x1080"): 9.0,
    ("3B", "1920x1080"): 23.0,
}
"""What the whole way is to take at most, with 4:2:0 chroma."""
BACKENDS: dict[str, dict[str, Any]] = {
    "as chosen": {},
    "hardware": {"backends": ("HW_GPU_ONLY",)},
    "hybrid": {"backends": ("HYBRID_CPU_GPU",)},
    "hybrid, Huffman on the GPU": {
        "backends": ("HYBRID_CPU_GPU",),
        "options": ":fancy_upsampling=1 nvjpeg_cuda_decoder:hybrid_huffman_threshold=0",
    },
    "hybrid, Huffman on the CPU": {
        "backends": ("HYBRID_CPU_GPU",),
        "options": ":fancy_upsampling=1 nvjpeg_cuda_decoder:hybrid_huffman_threshold=1000000000",
    },
}


def photograph(size: tuple[int, int], subsampling: int) -> bytes:
    """Return a JPEG of a photograph at this size, with the grain that enlarging it took away."""
    path = Path(__file__).parents[1] / "examples" / "pictures" / "rocket-on-launch-pad.jpg"
    image = Image.open(path).convert("RGB").resize(size, Image.Resampling.LANCZOS)
    grain = np.random.default_rng(0).normal(0, 3, (size[1], size[0], 1))
    file = io.BytesIO()
    pixels = (np.asarray(image) + grain).round().clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=92, subsampling=subsampling)
    return file.getvalue()


def features(vlm: VLM, pictures: Pictures, file: bytes) -> torch.Tensor:
    """Go the whole way from bytes to image features."""
    return vlm.encoder.encode(ImageBatch.of(pictures.patches(pictures.decode([file])))).features[0]


@torch.inference_mode()
def measure(vlm: VLM, file: bytes, rounds: int) -> dict[str, Any]:
    """Check one file and time all ways to take it."""
    settings, limits = vlm.model.config.images, ImageLimits()
    gpu, cpu = vlm.processor.pictures, HostPictures(settings, limits)
    pillow = DevicePictures(settings, limits, GPU, torch.bfloat16)
    decoded, decoded_cpu = gpu.decode([file]), cpu.decode([file])
    patches = gpu.patches(decoded)
    checks = {
        "decoded_levels_apart": int((decoded[0].cpu().int() - host_tensor(file).int()).abs().max()),
        "patches_levels_apart": levels_apart(pillow.patches(pillow.decode([file])), cpu.patches(decoded_cpu)),
        "features_error": relative_error(features(vlm, gpu, file), features(vlm, cpu, file)),
    }
    calls: dict[str, Callable[[], Any]] = {
        "header": partial(read_header, file),
        "decode": partial(gpu.decode, [file]),
        "pixels": partial(gpu.patches, decoded),
        "encode": partial(vlm.encoder.encode, ImageBatch.of(patches)),
        "bytes to features": partial(features, vlm, gpu, file),
        "bytes to features, Pillow decodes": partial(features, vlm, pillow, file),
        "decode on the CPU": partial(cpu.decode, [file]),
        "pixels on the CPU": partial(cpu.patches, decoded_cpu),
        "bytes to features, pixels on the CPU": partial(features, vlm, cpu, file),
    }
    return {"file_bytes": len(file), "checks": checks, "times": time_interleaved(calls, rounds=rounds)}


def host_tensor(file: bytes) -> torch.Tensor:
    """Return Pillow's pixels, `[height, width, 3]`."""
    return torch.from_numpy(np.array(load_image(file)))


def levels_apart(ours: list[Any], reference: list[Any]) -> dict[str, float]:
    """Return how far two sets of patches are apart, to the rounding of bfloat16."""
    exact = reference[0].patches
    apart = (ours[0].patches.cpu().float() - exact.to(torch.bfloat16).float()).abs() * 127.5
    return {"most": round(float(apart.max()), 2), "share": round(float((apart > 0).float().mean()), 4)}


class ReusingNvImageCodec(NvImageCodec):
    """Decodes into the memory of its last picture, which would have to be copied out before the next."""

    def decode(self, files: Sequence[bytes], stream: int) -> Sequence[Any]:
        """Decode one file."""
        streams = [self._codec.CodeStream(file) for file in files]
        kept = getattr(self, "_kept", None)
        self._kept = self._decoder.decode(streams, images=kept, params=self._params, cuda_stream=stream)
        return list(self._kept)


def measure_backends(rounds: int) -> dict[str, Any]:
    """Time each of nvImageCodec's backends on each file; None where it does not decode it."""
    decoders: dict[str, NvImageCodec] = {}
    for name, options in BACKENDS.items():
        try:
            decoders[name] = NvImageCodec(0, **options)
        except ImportError as error:
            print(f"{name}: {error}", flush=True)
    decoders["as chosen, memory reused"] = ReusingNvImageCodec(0)
    stream, results = torch.cuda.current_stream().cuda_stream, {}
    for picture, size in PICTURES.items():
        for chroma, subsampling in SUBSAMPLING.items():
            data = read_header(photograph(size, subsampling)).data
            expected, calls, apart = host_tensor(data).int(), {}, {}
            for name, decoder in decoders.items():
                made = decoder.decode([data], stream)[0]
                if made is not None:
                    apart[name] = int((torch.from_dlpack(made).cpu().int() - expected).abs().max())
                    calls[name] = partial(decoder.decode, [data], stream)
            times = time_interleaved(calls, rounds=rounds)
            results[f"{picture} {chroma}"] = {name: {**times[name], "levels_apart": apart[name]} for name in calls}
            shown = ", ".join(f"{name} {times[name]['median_ms']:.3f} ms ({apart[name]} apart)" for name in calls)
            print(f"{picture} {chroma}: {shown}", flush=True)
    return results


def measure_size(size: str, rounds: int) -> dict[str, Any]:
    """Measure every file with one size of model."""
    vlm = random_vlm(SIZES[size], device="cuda", dtype="bfloat16", image_decoder="gpu")
    rows = {}
    for picture, pixels in PICTURES.items():
        for chroma, subsampling in SUBSAMPLING.items():
            row = measure(vlm, photograph(pixels, subsampling), rounds)
            rows[f"{picture} {chroma}"] = row
            print(f"{size} {picture} {chroma}, {row['file_bytes']:,} bytes: {row['checks']}")
            for name, times in row["times"].items():
                print(f"    {name}: {times['median_ms']:.3f} ms, p95 {times['p95_ms']:.3f}", flush=True)
        row, most = rows[f"{picture} 4:2:0"], MOST_MS[size, picture]
        row["most_ms"] = most
        is_met = row["times"]["bytes to features"]["median_ms"] <= most
        print(f"{size} {picture}: bytes to features at most {most} ms: {'met' if is_met else 'NOT MET'}", flush=True)
    return {"layout": SIZES[size], "rows": rows}


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    need_gpu()
    results = {size: measure_size(size, arguments.rounds) for size in arguments.sizes}
    write_report(
        arguments.out,
        "How long from the bytes of a JPEG to its image features?",
        {"sizes": results, "backends": measure_backends(arguments.rounds)},
    )


if __name__ == "__main__":
    main()
