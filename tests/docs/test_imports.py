"""Imports point down: errors ← config ← models ← engine ← vlm ← loading ← commands ← cli; the rest are leaves."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "foveate"
MODULES = sorted(SOURCE.rglob("*.py"))

LEAF = {"errors"}
MODELS = {"config", "errors", "graphs", "images", "kernels"}
ENGINE = MODELS | {"machine", "models"}
VLM = ENGINE | {"engine"}
LOADING = VLM | {"garbage", "vlm"}
COMMANDS = LOADING | {"bench", "checkpoints", "evaluation", "loading"}
ALLOWED = {
    "errors": set(),
    "garbage": set(),
    "config": LEAF,
    "machine": LEAF,
    "checkpoints": LEAF,
    "graphs": LEAF,
    "images": LEAF,
    "kernels": LEAF,
    "models": MODELS,
    "engine": ENGINE,
    "vlm": VLM,
    "evaluation": VLM | {"vlm"},
    "loading": LOADING,
    "testing": LOADING | {"checkpoints", "loading"},
    "bench": LOADING | {"checkpoints", "loading", "testing"},
    "commands": COMMANDS,
    "cli": COMMANDS | {"commands"},
    "__main__": {"cli"},
    "__init__": LOADING | {"loading"},
}
LIBRARIES = {
    "graphs": {"torch"},
    "kernels": {"torch", "triton"},
    "images": {"PIL", "numpy"},
    "config": set(),
    "errors": set(),
    "garbage": set(),
}


def part_of(module: Path) -> str:
    """The part of Foveate that a file belongs to: a folder or a module directly below the package."""
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(module: Path) -> Iterator[tuple[str, int]]:
    """The full names of the modules that a file imports, anywhere in it, and the lines."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}:{node.lineno}: write the full name, not a relative import"
            assert node.module is not None
            is_package = node.module == "foveate"
            yield from ((f"foveate.{alias.name}" if is_package else node.module, node.lineno) for alias in node.names)


def test_every_part_of_foveate_has_its_place_in_the_order():
    """A new one gets it here and in docs/architecture.md."""
    assert {part_of(module) for module in MODULES} <= ALLOWED.keys()


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(part):
    for module in (module for module in MODULES if part_of(module) == part):
        for name, line in imports(module):
            root, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if root == "foveate":
                assert target == part or target in ALLOWED[part], f"{module}:{line} imports {name}"
            elif part in LIBRARIES and root not in sys.stdlib_module_names:
                assert root in LIBRARIES[part], f"{module}:{line} imports {name}"
