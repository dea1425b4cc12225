"""Launches that overlap the one before: what they are launched with, and that no kernel touches anything too early."""

import ast
from pathlib import Path

import pytest
import torch

from foveate import kernels
from foveate.kernels import availability
from foveate.kernels.availability import can_overlap, launch_options

CONSTANTS = {"weight", "bias"}
"""Pointers to what no launch writes: the parameters of a model."""
NUMBERS = {"num_rows"}
"""Arguments that are no pointers and no compile-time numbers, and take part in an address."""
READERS = {"tl.load", "load_pieces", "_weights"}
PURE = {"tl.program_id", "tl.num_programs", "tl.arange", "tl.broadcast_to", "row_pieces", "to"}


def launched_kernels() -> list[ast.FunctionDef]:
    """Every kernel of the package, as source."""
    paths = sorted(Path(kernels.__file__).parent.glob("*_kernel.py"))
    nodes = [node for path in paths for node in ast.parse(path.read_text()).body]
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")]


def where(body: list[ast.stmt], call: str) -> list[int]:
    """The statements that are `if overlaps: call()`."""
    return [number for number, each in enumerate(body) if ast.unparse(each) == f"if overlaps:\n    {call}()"]


def too_early(kernel: ast.FunctionDef, before: list[ast.stmt]) -> list[str]:
    """What the statements before a wait do beyond computing addresses and reading constants."""
    origins = {name.arg: {name.arg} for name in kernel.args.args if name.annotation is None}
    wrong = [ast.unparse(each) for each in before if not isinstance(each, ast.Assign | ast.AnnAssign)]
    for each in before:
        for call in (node for node in ast.walk(each) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            used = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
            pointers = set().union(*(origins.get(one, set()) for one in used)) - NUMBERS
            is_read = name in READERS and pointers <= CONSTANTS
            if not is_read and name not in PURE and name.rpartition(".")[2] not in PURE:
                wrong.append(ast.unparse(call))
        if isinstance(each, ast.Assign):
            made_of = {node.id for node in ast.walk(each.value) if isinstance(node, ast.Name)}
            for target in (node for part in each.targets for node in ast.walk(part) if isinstance(node, ast.Name)):
                origins[target.id] = set().union(*(origins.get(one, set()) for one in made_of))
    return wrong


@pytest.mark.parametrize("kernel", launched_kernels(), ids=lambda kernel: kernel.name)
def test_every_kernel_lets_the_next_launch_begin_and_waits_before_it_reads_writes_or_returns(kernel):
    body = kernel.body[1:] if ast.get_docstring(kernel) else kernel.body
    begins, waits = where(body, "gdc_launch_dependents"), where(body, "gdc_wait")
    assert begins == [0]
    assert len(waits) == 1, "the wait must be on every path"
    assert ast.unparse(kernel).count("gdc_") == 2
    assert too_early(kernel, body[1 : waits[0]]) == []


@pytest.mark.parametrize(
    ("statement", "is_early"),
    [
        ("factor = tl.load(weight + tl.arange(0, 4))", False),
        ("gate = tl.load(rows + tl.arange(0, 4))", True),
        ("source = weight + rows\ngate = tl.load(source)", True),
        ("tl.store(weight, 0)", True),
        ("if rows:\n    return", True),
        ("begin = own_rows(weight)", True),
    ],
)
def test_what_is_too_early_is_found(statement, is_early):
    kernel = ast.parse("def some_kernel(rows, weight, width: tl.constexpr): ...").body[0]
    assert bool(too_early(kernel, ast.parse(statement).body)) is is_early


def test_launches_of_few_rows_overlap_where_the_device_can_unless_they_are_told_not_to(monkeypatch):
    device = torch.device("cpu")
    most = availability.MOST_OVERLAPPED_ROWS
    assert launch_options(device, 1) == launch_options(device, 1, overlaps=False) == {"overlaps": False}
    monkeypatch.setattr(availability, "can_overlap", lambda _: True)
    assert launch_options(device, 1) == launch_options(device, most) == {"overlaps": True, "launch_pdl": True}
    assert launch_options(device, most + 1) == launch_options(device, 1, overlaps=False) == {"overlaps": False}
    assert launch_options(device, most + 1, overlaps=True) == {"overlaps": True, "launch_pdl": True}


@pytest.mark.parametrize(
    ("cuda", "capability", "expected"), [("12.8", (9, 0), True), ("12.8", (8, 9), False), (None, (9, 4), False)]
)
def test_launches_overlap_on_nvidia_s_devices_from_compute_capability_9_on(monkeypatch, cuda, capability, expected):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert can_overlap.__wrapped__(torch.device("cuda:0")) is expected
    assert not can_overlap.__wrapped__(torch.device("cpu"))
