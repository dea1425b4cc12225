"""All commands as one typer application."""

import typer

from foveate.commands.bench_encoder import encoder
from foveate.commands.bench_serving import latency, throughput
from foveate.commands.describe import describe
from foveate.commands.doctor import doctor
from foveate.commands.evaluate import evaluation
from foveate.commands.new_checkpoint import new_checkpoint
from foveate.commands.tune import tune

app = typer.Typer(
    name="foveate",
    help="Serve LFM2-VL, LiquidAI's small vision-language models.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(describe)
app.command()(doctor)
app.command(name="eval")(evaluation)
app.command(name="new-checkpoint")(new_checkpoint)
app.command()(tune)

bench = typer.Typer(help="Time a part of Foveate on this machine.", add_completion=False, rich_markup_mode=None)
bench.command()(encoder)
bench.command()(latency)
bench.command()(throughput)
app.add_typer(bench, name="bench")
