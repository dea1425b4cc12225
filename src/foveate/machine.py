"""The machine card: what this machine is, as a flat record that benchmarks keep beside their figures.

This is also the one module that goes by what people set in the environment.
"""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

LIBRARIES = ("torch", "torchvision", "transformers", "tokenizers", "triton", "safetensors", "Pillow", "numpy")


@dataclass(frozen=True)
class CudaDevice:
    """One CUDA device."""

    name: str
    """What the driver calls it."""
    capability: str
    """Compute capability, such as 9.0."""
    memory_bytes: int
    """Memory in all."""
    multiprocessors: int
    """Streaming multiprocessors."""


@dataclass(frozen=True)
class MachineCard:
    """What this machine is."""

    python: str
    """Version of Python."""
    system: str
    """Operating system and processor architecture."""
    processor_cores: int
    """Cores that this process may use."""
    libraries: dict[str, str]
    """Versions of the libraries that matter; missing ones are left out."""
    cuda: str | None
    """Version of CUDA that torch was built for."""
    driver: str | None
    """Version of the NVIDIA driver."""
    devices: tuple[CudaDevice, ...]
    """CUDA devices that torch can use."""


def machine_card() -> MachineCard:
    """Look at this machine."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return MachineCard(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        processor_cores=_usable_cores(),
        libraries={name: found for name in LIBRARIES if (found := _version(name))},
        cuda=torch.version.cuda,
        driver=driver_version(),
        devices=tuple(_cuda_device(index) for index in range(count)),
    )


def _cuda_device(index: int) -> CudaDevice:
    properties = torch.cuda.get_device_properties(index)
    return CudaDevice(
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        memory_bytes=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
    )


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver; None if there is none."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), None)


def cache_folder() -> Path | None:
    """Return the folder for what can be made again: `foveate` in XDG_CACHE_HOME or in ~/.cache; None without a home.

    It may not exist yet. A relative XDG_CACHE_HOME is ignored, as its specification demands.
    """
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(folder):
        return Path(folder) / "foveate"
    try:
        return Path.home() / ".cache" / "foveate"
    except RuntimeError:
        return None
