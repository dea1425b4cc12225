"""Which graphs there are: token budgets and what else fits into each."""

from foveate.errors import ConfigurationError
from foveate.graphs.protocol import BudgetRange, GraphCapacity
from foveate.graphs.settings import EncoderGraphSettings

MOST_AUTOMATIC_BUDGETS = 24
FINENESS = 4
"""Automatic budgets grow by a doubled spacing once they are this many spacings large."""
LARGEST_MULTIPLE = 8
"""A budget of one's own may be this many times the model's largest item."""


def automatic_budgets(span: BudgetRange) -> tuple[int, ...]:
    """Return budgets from the smallest tile to the largest item: multiples of the smallest tile, then of twice that and
    so on, up to half a full tile.

    Coarser ones lose to eager where an item is large: at 2,083 tokens of the 3B sizes, a budget of 2,304 took 8 %
    longer than exact rows. An item of a single tile has at most a full tile's tokens, and one of several at least twice
    that, so in between there are few.
    """
    budgets, spacing = [span.smallest], span.smallest
    while budgets[-1] < span.largest:
        if 2 * spacing <= span.step // 2 and budgets[-1] >= FINENESS * spacing:
            spacing *= 2
        budgets.append(min(budgets[-1] + spacing, span.largest))
    while len(budgets) > MOST_AUTOMATIC_BUDGETS:
        budgets = budgets[::-2][::-1]
    return tuple(budgets)


def graph_capacities(
    settings: EncoderGraphSettings, span: BudgetRange, *, inputs_per_token: int, frames_per_video: int
) -> tuple[GraphCapacity, ...]:
    """Return the capacity of every graph, smallest first; raises ConfigurationError on a setting out of bounds."""
    budgets = settings.encoder_cudagraph_token_budgets or automatic_budgets(span)
    limit = LARGEST_MULTIPLE * span.largest
    for budget in budgets:
        if not span.smallest <= budget <= limit:
            raise ConfigurationError(
                f"encoder_cudagraph_token_budgets holds {budget}; here budgets go from {span.smallest} to {limit}"
            )
    items = _max_items(settings, span, budgets[-1])
    frames = _max_frames(settings, items, frames_per_video)
    tiles = {budget: budget // span.smallest for budget in budgets}
    return tuple(
        GraphCapacity(budget, budget * inputs_per_token, tiles[budget], min(items, tiles[budget]), frames)
        for budget in budgets
    )


def _max_items(settings: EncoderGraphSettings, span: BudgetRange, largest_budget: int) -> int:
    most = largest_budget // span.smallest
    items = settings.encoder_cudagraph_max_vision_items_per_batch or most
    if items > most:
        raise ConfigurationError(
            f"encoder_cudagraph_max_vision_items_per_batch is {items}; the largest budget, {largest_budget} tokens,"
            f" holds at most {most} images of {span.smallest} tokens"
        )
    return items


def _max_frames(settings: EncoderGraphSettings, items: int, frames_per_video: int) -> int:
    frames, most = settings.encoder_cudagraph_max_frames_per_batch, items * frames_per_video
    if frames is not None and frames > most:
        bound = f"{items} videos have at most {most} frames" if most else "this model takes no video: leave it out"
        raise ConfigurationError(f"encoder_cudagraph_max_frames_per_batch is {frames}; {bound}")
    return most if frames is None else frames
