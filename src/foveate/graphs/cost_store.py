"""Measured costs on disk, so that only the first start on a machine measures."""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from foveate.graphs.costs import MeasuredCosts

logger = logging.getLogger(__name__)


class CostStore:
    """One JSON file for each key. Nothing that is wrong with it is fatal: one warning, and costs are measured again.

    Files are written beside their place and moved there, so that another process reads an old one or a new one, and
    never half of one.
    """

    def __init__(self, folder: Path, key: Mapping[str, str], *, refresh: bool = False) -> None:
        """`key` is all that the costs depend on besides the budgets; `refresh` ignores what is on disk."""
        self._folder, self._key, self._refresh = folder, dict(key), refresh
        self._has_warned = False

    def path(self, budgets: Collection[int]) -> Path:
        """Return the file for graphs of these budgets."""
        text = json.dumps(self._whole_key(budgets), sort_keys=True)
        return self._folder / f"encoder-costs-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def load(self, budgets: Collection[int]) -> MeasuredCosts | None:
        """Return the costs that were kept for graphs of these budgets; None if there are none that can be used."""
        path = self.path(budgets)
        if self._refresh:
            return None
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["key"] != self._whole_key(budgets):
                raise ValueError("it was measured for something else")
            replays = {int(budget): float(ms) for budget, ms in record["replay_ms"].items()}
            if set(replays) != set(budgets):
                raise ValueError("it holds other budgets than its key says")
            return MeasuredCosts(replays, tuple((int(tokens), float(ms)) for tokens, ms in record["eager_ms"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"{path} cannot be read ({error.strerror}); encoder costs are measured again")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            self._warn(f"{path} is not a table of encoder costs ({error}); they are measured again")
        return None

    def save(self, costs: MeasuredCosts) -> None:
        """Keep the costs for the next start; a warning if they cannot be kept."""
        path = self.path(costs.replays)
        record = {
            "key": self._whole_key(costs.replays),
            "replay_ms": {str(budget): round(ms, 4) for budget, ms in sorted(costs.replays.items())},
            "eager_ms": [[tokens, round(ms, 4)] for tokens, ms in costs.eager],
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write_whole(path, json.dumps(record, indent=1) + "\n")
        except OSError as error:
            self._warn(f"{path} cannot be written ({error.strerror}); every start will measure encoder costs")

    def _whole_key(self, budgets: Collection[int]) -> dict[str, str]:
        return {**self._key, "budgets": " ".join(str(budget) for budget in sorted(budgets))}

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            logger.warning(message)
        self._has_warned = True


def _write_whole(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
