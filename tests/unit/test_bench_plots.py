"""What the drawings of the benchmark show."""

import pytest

from foveate.bench.plots import PLACES, draw, padded_share, place_of

ROWS = [
    {"tokens": 64, "budgets": [64], "tiles": 1},
    {"tokens": 1000, "budgets": [256, 1024], "tiles": 4},
    {"tokens": 9000, "budgets": [None], "tiles": 40},
    {"tokens": 9000, "budgets": [2816, None], "tiles": 40},
    {"tokens": 64, "budgets": [], "tiles": 1},
]


def report() -> dict[str, object]:
    ways = {"eager": {"median_ms": 2.0}, "graph": {"median_ms": 1.0}, "vllm tuned": {"median_ms": 1.5}}
    return {
        "model": "a model <of mine>",
        "graphs": {},
        "rows": [{**row, "floor_ms": 0.5, "ways": ways} for row in ROWS],
    }


@pytest.mark.parametrize(
    ("row", "place", "share"),
    list(
        zip(
            ROWS,
            ["one graph", "several graphs", "eager", "eager", "eager"],
            [0, 280 / 1280, None, None, None],
            strict=True,
        )
    ),
)
def test_every_plan_has_a_place_and_padding_is_told_of_whole_replays_alone(row, place, share):
    assert place_of(row) == place
    assert place in PLACES
    assert padded_share(row) == share


def test_the_same_report_gives_the_same_drawings_with_text_that_can_be_searched(tmp_path):
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files = draw(report() | {"graphs": {"count": 2}}, tmp_path / name)
        made.append({file.name: file.read_bytes() for file in files})
    assert made[0] == made[1]
    assert set(made[0]) == {"times.svg", "padding.svg", "places.svg"}
    assert all(b"a model &lt;of mine&gt;" in text for text in made[0].values())
    assert b"Foveate graph" in made[0]["times.svg"]
    assert b"vllm tuned" in made[0]["times.svg"]


def test_without_graphs_there_is_nothing_to_say_of_plans(tmp_path):
    assert [file.name for file in draw(report(), tmp_path)] == ["times.svg"]
