"""`foveate tune`: budgets for one's own pictures, from a list of sizes or a folder."""

import json
from pathlib import Path

import pytest
from PIL import Image

BUDGETS = "encoder_cudagraph_token_budgets"
SIZES = {(1024, 1024): 2, (512, 512): 3, (640, 480): 1}

FORMS = {
    "text": "# sizes\n1024 1024 2\n\n512 512 3\n640\t480\n",
    "CSV": "width,height,count\n1024,1024,2\n512, 512, 3\n640,480,1\n",
    "CSV without counts": "width,height\n1024,1024\n1024,1024\n512,512\n512,512\n512,512\n640,480\n",
    "JSONL": '{"width": 1024, "height": 1024, "count": 2}\n[512, 512, 3]\n{"height": 480, "width": 640}\n',
}


@pytest.fixture
def tuned(foveate, model, tmp_path):
    """Run the command on a trace; returns what it printed and the switches that it wrote."""

    def command(trace: Path, *options: object) -> tuple[str, dict[str, list[int]]]:
        out = tmp_path / "switches.json"
        result = foveate("tune", trace, "--model", model, "--device", "cpu", "--out", out, *options)
        assert (result.code, result.err) == (0, "")
        return result.out, json.loads(out.read_text())

    return command


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_every_form_of_a_list_gives_the_same_budgets(tuned, tmp_path, text):
    trace = tmp_path / "sizes"
    trace.write_text(text)
    printed, switches = tuned(trace)
    assert switches == {BUDGETS: [240, 256, 1280]}
    assert "6 pictures" in printed
    assert "No CUDA here" in printed


def test_a_folder_of_pictures_is_counted_upright_and_other_files_are_passed_over(tuned, tmp_path):
    folder = tmp_path / "pictures"
    (folder / "below").mkdir(parents=True)
    (folder / "notes.txt").write_text("no picture")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (480, 640)).save(folder / "turned.jpg", exif=exif)
    Image.new("RGB", (512, 512)).save(folder / "below" / "square.png")
    printed, switches = tuned(folder)
    assert switches == {BUDGETS: [240, 256]}
    assert "2 pictures" in printed


def test_bounds_on_graphs_and_memory_are_kept(tuned, tmp_path):
    trace = tmp_path / "sizes"
    trace.write_text("1920 1080\n640 480\n512 512\n300 300\n")
    assert len(tuned(trace, "--graphs", 2)[1][BUDGETS]) == 2
    unbounded = tuned(trace)[1][BUDGETS]
    bounded = tuned(trace, "--memory-mb", 40)[1][BUDGETS]
    assert bounded[-1] < unbounded[-1]


def test_what_it_writes_is_what_describe_takes(tuned, foveate, model, picture, tmp_path):
    trace = tmp_path / "sizes"
    trace.write_text("160 120\n")
    tuned(trace)
    switches = tmp_path / "switches.json"
    on = json.loads(switches.read_text()) | {"cudagraph_mm_encoder": True}
    (tmp_path / "on.json").write_text(json.dumps(on))
    for name, mode in (("switches.json", "eager"), ("on.json", "eager_buffers")):
        options = ("--compilation-config", f"@{tmp_path / name}", "--max-tokens", 1, "--json")
        result = foveate("describe", picture, "--model", model, *options)
        assert result.code == 0, result.err
        assert json.loads(result.out)["encoder"]["mode"] == mode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no picture"),
        ("# nothing\n", "holds no picture"),
        ("512 512\n512\n", "line 2 of sizes is not a size"),
        ("512 wide\n", "line 1 of sizes is not a size"),
        ("512 512 1 1\n", "line 1 of sizes is not a size"),
        ("512 0\n", "each number is at least 1"),
        ("-5 5\n", "each number is at least 1"),
        ("[512, 512.5]\n", "line 1 of sizes is not a size"),
        ("[512, true]\n", "line 1 of sizes is not a size"),
        ('{"w": 512}\n', "line 1 of sizes is not a size"),
        ("{\n", "line 1 of sizes is not a size"),
        ("100000 1\n", "too thin for the model"),
    ],
)
def test_a_trace_that_cannot_be_used_is_told_why(complaint, model, tmp_path, text, words):
    trace = tmp_path / "sizes"
    trace.write_text(text)
    assert words in complaint("tune", trace, "--model", model, "--device", "cpu", "--out", tmp_path / "out")


def test_a_trace_that_is_not_there_and_one_that_is_no_text_are_told(complaint, model, tmp_path):
    assert "cannot be read" in complaint("tune", tmp_path / "none", "--model", model, "--device", "cpu")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in complaint("tune", tmp_path / "bytes", "--model", model, "--device", "cpu")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--graphs", 0), "graphs is 0; give 1 to 64"),
        (("--graphs", 65), "graphs is 65; give 1 to 64"),
        (("--memory-mb", 0.001), "give at least that"),
        (("--memory-mb", "nan"), "give at least that"),
        (("--memory-mb", -5), "give at least that"),
        (("--out", "/"), "cannot be written"),
    ],
)
def test_bounds_that_cannot_be_kept_are_told(complaint, model, tmp_path, options, words):
    trace = tmp_path / "sizes"
    trace.write_text("512 512\n")
    out = () if "--out" in options else ("--out", tmp_path / "out")
    assert words in complaint("tune", trace, "--model", model, "--device", "cpu", *out, *options)


def test_a_compilation_config_file_that_is_not_there_is_told(complaint, picture, model, tmp_path):
    line = complaint("describe", picture, "--model", model, "--compilation-config", f"@{tmp_path / 'none.json'}")
    assert "none.json" in line
    assert "cannot be read" in line
