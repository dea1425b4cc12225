"""`foveate new-checkpoint`."""

from pathlib import Path

import pytest

from foveate.checkpoints import LAYOUT_NAMES


def test_it_makes_a_folder_that_describe_can_load(foveate, picture, tmp_path):
    made = foveate("new-checkpoint", tmp_path / "made")
    assert (made.code, made.err) == (0, "")
    assert str(tmp_path / "made") in made.out
    assert "its words mean nothing" in made.out
    assert foveate("describe", picture, "--model", tmp_path / "made", "--max-tokens", 1).code == 0


def test_the_seed_decides_the_weights(foveate, tmp_path):
    def weights(name: str, seed: int) -> bytes:
        assert foveate("new-checkpoint", tmp_path / name, "--seed", seed).code == 0
        return (tmp_path / name / "model.safetensors").read_bytes()

    assert weights("first", 1) == weights("again", 1) != weights("other", 2)


def test_an_unknown_layout_is_told_which_there_are(complaint, tmp_path):
    line = complaint("new-checkpoint", tmp_path / "made", "--like", "LFM9")
    assert "'LFM9'" in line
    assert all(name in line for name in LAYOUT_NAMES)
    assert not (tmp_path / "made").exists()


def test_a_folder_that_holds_something_is_left_alone(complaint, tmp_path):
    (tmp_path / "thesis.txt").write_text("chapter one")
    assert "is not empty" in complaint("new-checkpoint", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["picture.jpg", "picture.jpg/made"])
def test_a_place_that_cannot_be_written_is_named(complaint, tmp_path, name):
    Path(tmp_path / "picture.jpg").write_bytes(b"a file, not a folder")
    assert name in complaint("new-checkpoint", tmp_path / name)
    assert (tmp_path / "picture.jpg").read_bytes() == b"a file, not a folder"


def test_it_needs_to_know_where_to(complaint):
    assert "OUT" in complaint("new-checkpoint")
