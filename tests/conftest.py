"""Without a GPU, Triton's kernels run in its interpreter. Triton reads the choice once, when it is first imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
