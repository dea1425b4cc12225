"""Links between documents lead somewhere, and the map of modules is complete."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for place in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "src/**/*.md")
    for path in PROJECT.glob(place)
)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_links_within_the_project_lead_to_files_and_headings(document):
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{document.name} links to {target}"
        assert file.is_relative_to(PROJECT), f"{document.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{document.name} links to {target}"


def test_every_document_is_in_the_index():
    index = (PROJECT / "docs" / "README.md").read_text(encoding="utf-8")
    documents = {path.name for path in (PROJECT / "docs").glob("*.md")} - {"README.md"}
    assert documents <= set(LINK.findall(index))


def test_the_map_of_modules_names_every_module_and_nothing_else():
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([^`]+)` \|", text, re.M))
    source = PROJECT / "src" / "foveate"
    assert [name for name in listed if not (source / name).exists()] == []
    folders = tuple(name for name in listed if name.endswith("/"))
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if path.name != "__init__.py"}
    assert {name for name in modules if not name.startswith(folders)} == listed - set(folders)
