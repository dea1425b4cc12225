"""Plans that do not depend on company: `encoder_plan="fixed"`."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from foveate.graphs.plan import Plan
from foveate.graphs.protocol import EncoderItemSpec

PLANS_KEPT = 1024
"""Plans of items that are remembered; another size is planned again, to the same plan."""

PlanBatch = Callable[[Sequence[EncoderItemSpec]], Plan]


class ItemByItem:
    """Runs each item alone, by the plan that it would have in a batch of its own.

    An item of one size then always takes the same graphs and the same slots in them, which gives the same bits.
    """

    def __init__(self, plan_batch: PlanBatch) -> None:
        """`plan_batch` must give the same plan whenever it is asked for the same items."""

        @lru_cache(maxsize=PLANS_KEPT)
        def plan_item(spec: EncoderItemSpec) -> Plan:
            return plan_batch([spec])

        self._plan_item = plan_item

    def __call__(self, specs: Sequence[EncoderItemSpec]) -> Plan:
        """Plan a batch."""
        runs, tiles = [], 0
        for spec in specs:
            runs += [run.behind(tiles) for run in self._plan_item(spec).runs]
            tiles += len(spec.tiles)
        return Plan(tuple(runs))
