"""The kernels' tests run on the GPU where there is one, and in Triton's interpreter elsewhere."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def device() -> Iterator[torch.device]:
    """Where kernels run: the GPU, or the CPU with an interpreter whose bfloat16 is mended."""
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    with pytest.MonkeyPatch.context() as patch:
        mend_bfloat16(patch)
        yield torch.device("cpu")


def mend_bfloat16(patch: pytest.MonkeyPatch) -> None:
    """Makes the interpreter's bfloat16 that of a GPU.

    Up to Triton 3.8 at least it multiplies matrices of bit patterns, and cuts float32 to bfloat16 where a GPU rounds to
    the nearest.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    interpreted_dot, interpreted_cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def widened(operand: TensorHandle) -> TensorHandle:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        return TensorHandle((operand.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return interpreted_dot(self, widened(a), widened(b), *rest)

    def cast_impl(self, operand, target):
        if operand.dtype.scalar != tl.float32 or target.scalar != tl.bfloat16:
            return interpreted_cast(self, operand, target)
        rounded = torch.tensor(operand.data).to(torch.bfloat16)
        return TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)

    patch.setattr(InterpreterBuilder, "create_dot", create_dot)
    patch.setattr(InterpreterBuilder, "cast_impl", cast_impl)
