"""Plans that are remembered, and plans that do not depend on company: `encoder_plan="fixed"`."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from foveate.graphs.plan import Plan
from foveate.graphs.protocol import EncoderItemSpec

PLANS_KEPT = 1024
"""Plans that are remembered; other sizes are planned again, to the same plan."""

PlanBatch = Callable[[Sequence[EncoderItemSpec]], Plan]


def keep_plans(plan_batch: PlanBatch) -> PlanBatch:
    """Return what plans as `plan_batch` does, and remembers the plans of the sizes that came last.

    `plan_batch` must give the same plan whenever it is asked for the same items.
    """
    remembered = lru_cache(maxsize=PLANS_KEPT)(plan_batch)
    return lambda specs: remembered(tuple(specs))


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
