"""Does Foveate give transformers' numbers at the true sizes, on this card, in bfloat16?

    python benchmarks/parity.py OUT.json [--sizes 450M 3B] [--pictures examples/pictures]

Random weights of the true sizes. Truth is transformers in float32 with TF32 off, from the same bfloat16 weights; the
yardstick is transformers' own error in bfloat16. Then the repository's photographs are described as `foveate
describe` would.
"""

import argparse
import gc
from pathlib import Path
from typing import Any

import torch
from common import SIZES, need_gpu, relative_error, write_report
from PIL import Image
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

from foveate import VLM, SamplingParams
from foveate.checkpoints import layout, random_tensors
from foveate.engine.settings import EngineSettings
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.processing import Prompt
from foveate.testing import random_vlm
from foveate.vlm import question

PROMPT = "What is in this picture?"


def reference_model(name: str, dtype: torch.dtype) -> Lfm2VlForConditionalGeneration:
    """Return transformers' model with the same weights."""
    config = Lfm2VlConfig(**{key: value for key, value in dict(layout(name).config).items() if key != "model_type"})
    with torch.device("cuda"):
        model = Lfm2VlForConditionalGeneration(config).eval()
    own = model.state_dict()
    for tensor_name, tensor in random_tensors(layout(name), device="cuda", names="transformers"):
        own[tensor_name].copy_(tensor)
    model.tie_weights()
    return model.to(dtype)


@torch.no_grad()
def reference_numbers(
    model: Lfm2VlForConditionalGeneration, prompts: list[Prompt], tokens: int
) -> list[dict[str, Any]]:
    """Return image features, last logits and greedy tokens of each prompt, by transformers."""
    return [_reference_prompt(model, prompt, tokens) for prompt in prompts]


def _reference_prompt(model: Lfm2VlForConditionalGeneration, prompt: Prompt, tokens: int) -> dict[str, Any]:
    tiles = [tile for image in prompt.images for tile in image.tiles]
    patches = torch.cat([image.patches for image in prompt.images]).split([tile.num_patches for tile in tiles])
    pixels = torch.zeros(len(tiles), 1024, patches[0].shape[1])
    mask = torch.zeros(len(tiles), 1024, dtype=torch.int32)
    for index, rows in enumerate(patches):
        pixels[index, : rows.shape[0]], mask[index, : rows.shape[0]] = rows, 1
    inputs = {
        "input_ids": torch.tensor([prompt.token_ids], device="cuda"),
        "attention_mask": torch.ones(1, len(prompt.token_ids), dtype=torch.int64, device="cuda"),
        "pixel_values": pixels.cuda().to(model.dtype),
        "pixel_attention_mask": mask.cuda(),
        "spatial_shapes": torch.tensor([[tile.rows, tile.columns] for tile in tiles], device="cuda"),
    }
    features = model.model.get_image_features(
        inputs["pixel_values"], inputs["spatial_shapes"], inputs["pixel_attention_mask"]
    ).pooler_output
    made = model.generate(
        **inputs,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return {
        "features": torch.cat(list(features)).float(),
        "logits": made.logits[0][0].float(),
        "tokens": made.sequences[0, len(prompt.token_ids) :].tolist(),
    }


@torch.inference_mode()
def our_numbers(vlm: VLM, pictures: list[Path], tokens: int) -> list[dict[str, Any]]:
    """Return the same by Foveate."""
    sampling = SamplingParams(max_tokens=tokens, ignore_stop_tokens=True)
    results = []
    for picture in pictures:
        features = torch.cat(vlm.encoder.encode(ImageBatch.of(prompt_about(vlm, picture).images)).features)
        generation = vlm.start([[question([picture], PROMPT)]], sampling)
        for _ in generation:
            pass
        assert generation.first_logits is not None
        (answer,) = generation.answers()
        results.append(
            {"features": features.float(), "logits": generation.first_logits[0], "tokens": list(answer.token_ids)}
        )
    return results


def prompt_about(vlm: VLM, picture: Path) -> Prompt:
    """Return the prompt and the patches of a question about a picture."""
    messages = [question([picture], PROMPT)]
    return vlm.processor.encode(messages, vlm.processor.patches(vlm.processor.load_images(messages)))


def compare(ours: list[dict[str, Any]], peer: list[dict[str, Any]], truth: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the relative errors of both against the truth, and how many greedy tokens agree."""
    report: dict[str, Any] = {}
    for key in ("features", "logits"):
        report[key] = {
            "ours": [relative_error(a[key], t[key]) for a, t in zip(ours, truth, strict=True)],
            "transformers": [relative_error(a[key], t[key]) for a, t in zip(peer, truth, strict=True)],
        }
        pairs = zip(report[key]["ours"], report[key]["transformers"], strict=True)
        report[key]["within_twice"] = all(mine <= 2 * theirs for mine, theirs in pairs)
    report["greedy_tokens_equal_to_float32"] = {
        "ours": [_agreeing(a["tokens"], t["tokens"]) for a, t in zip(ours, truth, strict=True)],
        "transformers": [_agreeing(a["tokens"], t["tokens"]) for a, t in zip(peer, truth, strict=True)],
    }
    return report


def _agreeing(tokens: list[int], truth: list[int]) -> int:
    return next((index for index, pair in enumerate(zip(tokens, truth, strict=True)) if pair[0] != pair[1]), len(truth))


def measure(size: str, pictures: list[Path], tokens: int) -> dict[str, Any]:
    """Compare one size and describe the pictures with it."""
    name = SIZES[size]
    vlm = random_vlm(name, device="cuda", dtype="bfloat16", engine=EngineSettings(image_cache_megabytes=0))
    prompts = [prompt_about(vlm, picture) for picture in pictures]
    ours = our_numbers(vlm, pictures, tokens)
    described = {}
    for picture in pictures:
        vlm.describe(picture, sampling=SamplingParams(max_tokens=32))
        answer = vlm.describe(picture, sampling=SamplingParams(max_tokens=32))
        width, height = Image.open(picture).size
        stages = {stage: round(value, 3) for stage, value in answer.stages_ms.items()}
        described[picture.name] = {
            "pixels": f"{width}x{height}",
            "prompt_tokens": answer.prompt_tokens,
            "text": answer.text,
            "stages_ms": stages,
            "replays": list(answer.encoder.replays) if answer.encoder else [],
        }
    truth = reference_numbers(model := reference_model(name, torch.float32), prompts, tokens)
    peer = reference_numbers(model.to(torch.bfloat16), prompts, tokens)
    del model
    float32_report = None
    if size == "450M":
        exact = random_vlm_in_float32(name)
        float32_report = compare(our_numbers(exact, pictures, tokens), peer, truth)
    gc.collect()
    torch.cuda.empty_cache()
    return {"layout": name, "bfloat16": compare(ours, peer, truth), "float32": float32_report, "described": described}


def random_vlm_in_float32(name: str) -> VLM:
    """Return Foveate's model with the bfloat16 weights held in float32."""
    vlm = random_vlm(name, device="cuda", dtype="bfloat16", compilation_config={"cudagraph_mm_encoder": False})
    vlm.model.float()
    return vlm


def main() -> None:
    """Compare and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--pictures", type=Path, default=Path("examples/pictures"))
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    need_gpu()
    pictures = sorted(arguments.pictures.glob("*.jpg"))
    results = {size: measure(size, pictures, arguments.tokens) for size in arguments.sizes}
    for size, result in results.items():
        for key in ("features", "logits"):
            print(size, key, result["bfloat16"][key])
        print(size, result["bfloat16"]["greedy_tokens_equal_to_float32"], result["float32"])
        for name, told in result["described"].items():
            print(size, name, told["prompt_tokens"], told["stages_ms"], told["text"][:60])
    write_report(
        arguments.out, "Does Foveate give transformers' numbers at the true sizes in bfloat16?", {"sizes": results}
    )


if __name__ == "__main__":
    main()
