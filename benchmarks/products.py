"""Would matrix products of our own make the encoder's small batches faster than the library's?

    python benchmarks/products.py OUT.json

The four products of a vision layer at one tile of 256 and of 1,024 patches, for both widths: cuBLAS with its epilogues
as the encoder calls it, and a Triton kernel with the same epilogues whose launches overlap: weights are prefetched
before the launch in front has ended, and blocks come through tensor descriptors or pointers. A number is one launch
inside a graph of many on several weights. The answer is no, so this kernel is here and not in the package.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton
from common import ceilings, need_gpu, relative_error, write_report
from product_kernel import described_product_kernel, product_kernel
from torch import Tensor
from torch.nn import functional
from triton.tools.tensor_descriptor import TensorDescriptor

from foveate.graphs.measuring import time_ms

ROUNDS, WEIGHTS, PROCESSES = 9, 12, 12
LARGEST_ERROR = 1e-2
WIDTHS = {768: 3072, 1152: 4304}
"""Width of a layer, and inside its MLP."""


@dataclass(frozen=True)
class Product:
    """One matrix product, and what follows it: `bias`, `gelu` (with a bias) or `add` (into what is there)."""

    rows: int
    outputs: int
    inputs: int
    kind: str


@dataclass(frozen=True)
class Form:
    """How the Triton kernel cuts its work."""

    block_rows: int
    block_outputs: int
    block_inputs: int
    stages: int
    warps: int
    has_descriptors: bool


def products() -> Iterator[Product]:
    """The products of a layer of both widths, at a small tile and at a full one."""
    for rows in (256, 1024):
        for width, inner in WIDTHS.items():
            yield Product(rows, 3 * width, width, "bias")
            yield Product(rows, width, width, "add")
            yield Product(rows, inner, width, "gelu")
            yield Product(rows, width, inner, "add")


def forms(rows: int) -> Iterator[Form]:
    """Those that could suit so many rows."""
    small = [(64, 32, 64, 6, 4), (64, 32, 128, 4, 4), (128, 32, 128, 4, 4)]
    middle = [(64, 64, 64, 6, 4), (64, 64, 128, 4, 4), (64, 128, 64, 4, 4), (64, 128, 128, 3, 4)]
    middle += [(128, 64, 64, 5, 4), (128, 64, 128, 3, 4), (128, 64, 128, 3, 8)]
    large = [(128, 128, 64, 4, 8), (128, 128, 64, 3, 4), (128, 256, 64, 3, 8)]
    for has_descriptors in (True, False):
        for sizes in [*(small if rows == 256 else []), *middle, *(large if rows > 256 and has_descriptors else [])]:
            yield Form(*sizes, has_descriptors)


def operands(product: Product, weights: int) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Rows, some weights, a bias, and what is there already."""
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", generator=generator).bfloat16()

    there, bias = normal(product.rows, product.outputs), normal(product.outputs)
    made = [normal(product.outputs, product.inputs) * product.inputs**-0.5 for _ in range(weights)]
    return normal(product.rows, product.inputs), made, bias, there


def library(product: Product, rows: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """The product as the encoder has it from cuBLAS."""
    if product.kind == "add":
        return out.addmm_(rows, weight.t())
    if product.kind == "gelu":
        return torch._addmm_activation(bias, rows, weight.t(), use_gelu=True)
    return functional.linear(rows, weight, bias)


def ours(product: Product, form: Form, rows: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """The same by the Triton kernel."""
    grid = (triton.cdiv(product.rows, form.block_rows) * triton.cdiv(product.outputs, form.block_outputs),)
    sizes = (product.rows, product.outputs, product.inputs, form.block_rows, form.block_outputs, form.block_inputs)
    options = {"kind": product.kind, "stages": form.stages, "num_warps": form.warps, "launch_pdl": True}
    if form.has_descriptors:
        blocks = TensorDescriptor.from_tensor(rows, [form.block_rows, form.block_inputs])
        weights = TensorDescriptor.from_tensor(weight, [form.block_outputs, form.block_inputs])
        described_product_kernel[grid](blocks, weights, weight, bias, out, *sizes, **options)
    else:
        product_kernel[grid](rows, weight, bias, out, *sizes, **options)
    return out


def compiled(job: tuple[Product, Form]) -> None:
    """Compile one form, in a process of its own; the kernel is on disk then."""
    product, form = job
    rows, (weight,), bias, there = operands(product, 1)
    ours(product, form, rows, weight, bias, there)
    torch.cuda.synchronize()


def microseconds(calls: list[Callable[[], Any]]) -> float:
    """One launch of a graph of these."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    device = torch.device("cuda")
    times = [time_ms(device, graph.replay) * 1e3 / len(calls) for _ in range(ROUNDS)]
    return round(statistics.median(times), 3)


def measure(product: Product) -> dict[str, Any]:
    """Check every form against float32, and time those that are right beside cuBLAS."""
    rows, weights, bias, there = operands(product, WEIGHTS)
    exact = functional.linear(rows.float(), weights[0].float())
    exact += there.float() if product.kind == "add" else bias.float()
    if product.kind == "gelu":
        exact = functional.gelu(exact, approximate="tanh")
    out = there.clone()
    times = {}
    for form in forms(product.rows):
        if relative_error(ours(product, form, rows, weights[0], bias, there.clone()), exact) <= LARGEST_ERROR:
            times[form] = microseconds(
                [lambda w=weight, f=form: ours(product, f, rows, w, bias, out) for weight in 2 * weights]  # type: ignore[misc]
            )
    theirs = microseconds([lambda w=weight: library(product, rows, w, bias, out) for weight in 2 * weights])  # type: ignore[misc]
    best = min(times, key=lambda form: times[form])
    print(f"{product}: cuBLAS {theirs:.2f} µs, ours {times[best]:.2f} µs with {best}", flush=True)
    return {
        **asdict(product),
        "cublas_us": theirs,
        "triton_us": [{**asdict(form), "us": us} for form, us in sorted(times.items(), key=lambda item: item[1])],
    }


@torch.inference_mode()
def main() -> None:
    """Compile, measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    need_gpu((9, 0))
    jobs = [(product, form) for product in products() for form in forms(product.rows)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as processes:
        list(processes.map(compiled, jobs, chunksize=4))
    question = "Would matrix products of our own make the encoder's small batches faster than the library's?"
    write_report(
        arguments.out, question, {"ceilings": ceilings(), "products": [measure(product) for product in products()]}
    )


if __name__ == "__main__":
    main()
