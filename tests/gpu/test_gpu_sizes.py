"""The largest public size on the card: every graph passes its check, and answers do not change with graphs."""

import pytest
import torch

from foveate import SamplingParams
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import GraphImageEncoder, capture_encoder
from foveate.graphs import EncoderGraphSettings
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape
from foveate.testing import random_vlm
from foveate.vlm import VLM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def vlm() -> VLM:
    return random_vlm(
        "LFM2.5-VL-3B", device="cuda", dtype="bfloat16", compilation_config={"cudagraph_mm_encoder": False}
    )


@pytest.fixture(scope="module")
def graphs(vlm: VLM) -> GraphImageEncoder:
    return capture_encoder(vlm.model, EncoderGraphSettings(), strict=True)


def noise(width: int, height: int, seed: int) -> object:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy()


@pytest.mark.parametrize(
    "tiles", [[(16, 16)], [(32, 32)] * 5, [(32, 32)] * 10 + [(26, 38)], [(2, 512), (32, 32), (8, 10)]]
)
def test_features_of_a_replay_agree_with_eager(
    vlm: VLM, graphs: GraphImageEncoder, tiles: list[tuple[int, int]]
) -> None:
    shapes = tuple(TileShape(*tile) for tile in tiles)
    rows = sum(shape.num_patches for shape in shapes)
    patches = torch.rand(rows, 768, generator=torch.Generator().manual_seed(rows)) * 2 - 1
    batch = ImageBatch(patches.to("cuda", torch.bfloat16), shapes, (len(shapes),))
    ours = graphs.encode(batch).features[0].float()
    eager = EagerImageEncoder(vlm.model.encoder).encode(batch).features[0].float()
    assert (ours - eager).norm() <= 1e-2 * eager.norm()


def test_greedy_answers_are_the_same_with_graphs_and_without(vlm: VLM, graphs: GraphImageEncoder) -> None:
    pictures = [noise(640, 480, 1), noise(1300, 700, 2)]
    sampling = SamplingParams(max_tokens=24)
    eager = vlm.describe(*pictures, sampling=sampling)
    replayed = VLM(vlm.model, vlm.processor, graphs).describe(*pictures, sampling=sampling)
    assert replayed.encoder is not None
    assert replayed.encoder.mode == "cuda_graph"
    assert replayed.token_ids == eager.token_ids
