"""The JSON that a benchmark leaves: its question, the machine, the day, and what was measured."""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foveate.machine import machine_card


def report(question: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results with the question, the day in UTC and the machine card in front."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"question": question, "date": today, "machine": dataclasses.asdict(machine_card()), **results}


def write_report(path: Path, question: str, results: Mapping[str, Any]) -> None:
    """Write a report to a file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report(question, results), indent=1) + "\n", encoding="utf-8")
