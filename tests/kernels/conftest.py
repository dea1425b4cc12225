"""The kernels' tests run on the GPU where there is one, and in Triton's interpreter elsewhere."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def device() -> Iterator[torch.device]:
    """Where kernels run: the GPU, or the CPU with an interpreter whose bfloat16 and float8 are mended."""
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    with pytest.MonkeyPatch.context() as patch:
        mend_low_precision(patch)
        yield torch.device("cpu")


def mend_low_precision(patch: pytest.MonkeyPatch) -> None:
    """Makes the interpreter's bfloat16 and float8 (e4m3) those of a GPU.

    Up to Triton 3.8 at least it multiplies matrices of bit patterns, cuts float32 to bfloat16 where a GPU rounds to the
    nearest, and gets some float8 wrong by a factor of two (31.87 becomes 16).
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    interpreted_dot, interpreted_cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl
    interpreted_fp_to_fp = InterpreterBuilder.create_fp_to_fp

    def widened(operand: TensorHandle) -> TensorHandle:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        return TensorHandle((operand.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return interpreted_dot(self, widened(a), widened(b), *rest)

    def cast_impl(self, operand, target):
        if operand.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            rounded = torch.tensor(operand.data).to(torch.bfloat16).view(torch.uint16)
        else:
            return interpreted_cast(self, operand, target)
        return TensorHandle(rounded.numpy(), target.scalar)

    def create_fp_to_fp(self, operand, target, rounding_mode):
        if operand.dtype.scalar != tl.float32 or target.scalar != tl.float8e4nv:
            return interpreted_fp_to_fp(self, operand, target, rounding_mode)
        rounded = torch.tensor(operand.data).to(torch.float8_e4m3fn).view(torch.uint8)
        return TensorHandle(rounded.numpy(), target.scalar)

    patch.setattr(InterpreterBuilder, "create_dot", create_dot)
    patch.setattr(InterpreterBuilder, "cast_impl", cast_impl)
    patch.setattr(InterpreterBuilder, "create_fp_to_fp", create_fp_to_fp)
