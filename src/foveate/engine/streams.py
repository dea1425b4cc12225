"""On which stream what runs: decoding on one of high priority, the encoder on one of its own beside it."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


class DeviceStreams:
    """The streams of an engine; without CUDA there are none, and everything runs where it is called."""

    def __init__(self, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self.decode_stream = torch.cuda.Stream(device, priority=-1) if is_cuda else None
        self.encode_stream = torch.cuda.Stream(device, priority=0) if is_cuda else None

    def decode(self) -> AbstractContextManager[object]:
        """Run what follows on the stream of decoding."""
        return torch.cuda.stream(self.decode_stream) if self.decode_stream is not None else nullcontext()

    def encode(self) -> AbstractContextManager[object]:
        """Run what follows on the stream of the encoder."""
        return torch.cuda.stream(self.encode_stream) if self.encode_stream is not None else nullcontext()

    def used_by_decode(self, tensor: Tensor) -> Tensor:
        """Keep the memory of a tensor of another stream until decoding has done with it."""
        if self.decode_stream is not None:
            tensor.record_stream(self.decode_stream)
        return tensor

    def used_by_encode(self, tensor: Tensor) -> Tensor:
        """Keep the memory of a tensor of another stream until the encoder has done with it."""
        if self.encode_stream is not None:
            tensor.record_stream(self.encode_stream)
        return tensor
