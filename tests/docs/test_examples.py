"""Every block of code in the documents runs.

```python    runs; the blocks of one document share their names, in order
```console   each line behind `$ ` is a foveate command; what follows is what it prints, where `…` stands for anything,
             and `[exit code N]` its exit code; a command with nothing behind it may print whatever it likes
```bash      cannot run here: the line above says why, as <!-- not run: … -->
```text      is no code
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from foveate.cli import run

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
NOT_RUN = {"README.md": 2, "docs/accuracy.md": 1, "docs/quickstart.md": 2}
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (?P<command>.+)\n(?P<output>(?:(?!\$ ).*\n)*)", re.M)
EXIT_CODE = re.compile(r"^\[exit code (\d+)\]\n", re.M)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int
    reason: str | None


def name_of(document: Path) -> str:
    return document.relative_to(PROJECT).as_posix()


def blocks(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(BLOCK.findall(text)), f"{name_of(document)}: a block is not closed"
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Block(match["language"], match["code"], line, match["reason"])


def run_python(block: Block, document: Path, names: dict[str, object]) -> None:
    # Blank lines in front make the line numbers of a trace those of the document.
    exec(compile("\n" * block.line + block.code, name_of(document), "exec"), names)


def run_console(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    commands = COMMAND.findall(block.code)
    assert commands, f"line {block.line}: no command in a console block"
    for command, expected in commands:
        program, *arguments = shlex.split(command)
        assert program == "foveate"
        capsys.readouterr()
        code = run(arguments)
        printed = "".join(capsys.readouterr())
        wanted_code = EXIT_CODE.search(expected)
        assert code == (int(wanted_code[1]) if wanted_code else 0), f"{command}: {printed}"
        wanted = EXIT_CODE.sub("", expected)
        pattern = ".*".join(map(re.escape, wanted.split("…")))
        assert not wanted or re.fullmatch(pattern, printed, re.S), f"{command}: {printed}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
@pytest.mark.usefixtures("reader")
def test_every_block_of_the_document_runs(document, capsys):
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(document):
        if block.reason or block.language == "text":
            continue
        if block.language == "python":
            run_python(block, document, names)
        else:
            assert block.language == "console", (
                f"{name_of(document)}, line {block.line}: nothing runs {block.language!r}"
            )
            run_console(block, capsys)


def test_few_blocks_are_not_run_and_each_says_why():
    reasons = {
        name_of(document): [block.reason for block in blocks(document) if block.reason] for document in DOCUMENTS
    }
    assert {name: len(found) for name, found in reasons.items() if found} == NOT_RUN
