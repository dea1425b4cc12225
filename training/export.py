"""Turn a training run's averaged weights into a checkpoint folder.

python training/export.py WORK_FOLDER/state.pt src/foveate/demo
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from train import write_settings_of_demo

from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.weights import weight_targets


def export(state: Path, out: Path) -> Path:
    """Write the folder `out` with the official tensor names, in bfloat16; returns the weights' file."""
    out.mkdir(parents=True, exist_ok=True)
    write_settings_of_demo(out)
    average = torch.load(state, map_location="cpu", weights_only=True)["average"]
    tensors = {}
    for name, target in weight_targets(read_model_config(out)).items():
        rows = average[target.parameter].narrow(0, target.first_row, target.num_rows)
        official = name.replace("vision_tower.", "vision_tower.vision_model.", 1)
        tensors[f"model.{official}"] = rows.reshape(target.shape).to(torch.bfloat16).contiguous()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # safetensors writes it for its owner alone, and a wheel keeps that
    return out / "model.safetensors"


def main() -> None:
    """Read the arguments and export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    weights = export(arguments.state, arguments.out)
    print(f"{weights}: {weights.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
