"""Which model a command runs."""

from foveate.errors import ConfigurationError


def chosen_model(model: str | None) -> str:
    """Return the model that was named; raises ConfigurationError when none was."""
    if model is None:
        raise ConfigurationError(
            "no model was given; use --model with a checkpoint folder or a hub name such as LiquidAI/LFM2.5-VL-1.6B"
            " (`foveate new-checkpoint OUT` makes a small one whose words are random)"
        )
    return model
