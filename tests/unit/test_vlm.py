"""What the public face adds to the parts behind it."""

import pytest

from foveate import VLM, SamplingParams
from foveate.errors import CheckpointError, ImageError
from foveate.loading import find_folder


def test_an_error_in_a_batch_names_the_conversation(tiny_vlm: VLM):
    good = [{"role": "user", "content": "Hello."}]
    bad = [{"role": "user", "content": [{"type": "image", "image": b"not a picture"}]}]
    with pytest.raises(ImageError) as caught:
        tiny_vlm.generate([good, bad], SamplingParams(max_tokens=1))
    assert caught.value.__notes__ == ["in conversation 1 of 2, counted from 0"]


def test_an_empty_name_is_not_the_current_folder():
    with pytest.raises(CheckpointError, match="name is empty"):
        find_folder("")
