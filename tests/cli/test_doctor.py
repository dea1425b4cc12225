"""`foveate doctor`."""

import json
import platform

import torch


def test_it_names_the_machine_and_what_runs_where(foveate):
    result = foveate("doctor", "--device", "cpu")
    assert (result.code, result.err) == (0, "")
    assert platform.python_version() in result.out
    assert torch.__version__.split("+")[0] in result.out
    assert "vision encoder" in result.out


def test_json_is_exactly_one_line_with_the_versions_and_the_placement(foveate):
    out = foveate("doctor", "--device", "cpu", "--json").out
    assert out.count("\n") == 1
    record = json.loads(out)
    assert record["python"] == platform.python_version()
    assert {"torch", "transformers", "Pillow"} <= set(record["libraries"])
    assert "cpu" in record["placement"]["vision encoder"]
    assert len(record["devices"]) == torch.cuda.device_count()


def test_with_a_model_it_shows_what_the_start_up_check_of_its_encoder_graphs_found(foveate, model):
    config = json.dumps({"cudagraph_mm_encoder": True, "encoder_cudagraph_token_budgets": [64, 256]})
    arguments = ("doctor", "--device", "cpu", "--model", model, "--compilation-config", config)
    report = json.loads(foveate(*arguments, "--json").out)["encoder_graphs"]
    graphs = report["graphs"]
    assert report["start_up"]["cost_source"] == "fixed"
    assert report["start_up"]["check_s"] > 0
    assert [(graph["tokens"], graph["fault"]) for graph in graphs] == [(256, None), (64, None)]
    assert foveate(*arguments).out.count("passed") == 2


def test_a_device_that_is_not_there_is_named(complaint):
    assert "'cuda:99'" in complaint("doctor", "--device", "cuda:99")
