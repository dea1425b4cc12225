"""`foveate bench encoder` where CUDA is: captured graphs, and transformers compiled."""

import json

import pytest
import torch

from foveate.cli import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # a compiler's warning, made an error, would have its way left out
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_every_way_of_this_process_is_right_and_timed(capsys):
    ways = "eager,graph,transformers,transformers-compile"
    code = run(["bench", "encoder", "--layout", "tiny", "--tiles", "1,3", "--rounds", "5", "--with", ways, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["left_out"] == {}
    assert report["graphs"]["backend"] == "cuda_graph"
    assert [list(row["ways"]) for row in report["rows"]] == [ways.split(",")] * 2
    assert all(way["is_right"] for row in report["rows"] for way in row["ways"].values())
    assert code == 0
