"""The shell: one verb a public function, options built from the same configuration class."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from acpl.config import Config
from acpl.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="acpl",
    help="Train accurate medical image classifiers from few labels and many unlabelled images.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Run = Annotated[Path, typer.Argument(help="A run folder, as `acpl train` made it.", show_default=False)]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, or cuda:N.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def main() -> None:
    """The command ``acpl``: a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        typer.echo(f"acpl: {error}", err=True)
        sys.exit(2)


def _train(
    context: typer.Context,
    preset: str | None,
    config: Path | None,
    out: Path | None,
    quiet: bool,
    log: str | None,
    **given: Any,
) -> None:
    """Train a model; without options, ACPL on phantom-chest.

    Settings of the method are options too: `acpl methods acpl` lists them.
    """
    from acpl import api
    from acpl.engine.monitor import Quiet, Terminal

    given |= _extra_options(context.args)
    monitor = Quiet() if quiet else Terminal(_console(stderr=False))
    trackers = [name.strip() for name in log.split(",")] if log else []
    run = api.train(preset=preset, file=config, out=out, monitor=monitor, log=trackers, **given)
    typer.echo(f"run: {run}\nreport: {run / 'report.html'}\nnext: acpl evaluate {run}")


def _check(preset: str | None, json: bool, **given: Any) -> None:
    """Say what would spoil a result, before any training; exit code 1 when something would."""
    import json as text

    from acpl import api
    from acpl.engine.monitor import Terminal
    from acpl.report.data_check import check_tables

    result = api.check_data(preset=preset, progress=Terminal(_console(stderr=True)).progress, **given)
    if json:
        typer.echo(text.dumps(result))
    else:
        for sentence in result["said"]:
            typer.echo(sentence)
        _console().print(check_tables(result))
    if result["spoils"]:
        raise typer.Exit(1)


@app.command()
def evaluate(
    run: Run,
    against: Annotated[
        Path | None, typer.Option(help="Another run on the same images to compare with.", show_default=False)
    ] = None,
    part: Annotated[str, typer.Option(help="What to judge on: test or validation.")] = "test",
    as_json: AsJson = False,
    device: DeviceOption = "auto",
    resamples: int = 2000,
) -> None:
    """Judge a run on the test part, with 95 % intervals by bootstrap over patients."""
    from acpl import api
    from acpl.engine.monitor import Terminal

    if resamples < 1:
        raise UserError(f"resamples should be at least 1, but it is {resamples}")
    judged: Any = part  # checked there, for Python's callers too
    progress = Terminal(_console(stderr=True)).progress
    result = api.evaluate(run, against=against, part=judged, resamples=resamples, device=device, progress=progress)
    if as_json:
        typer.echo(json.dumps(result))
        return
    from acpl.report.tables import evaluation_tables

    _console().print(evaluation_tables(result))
    if part == "test":
        typer.echo(f"report: {run / 'report.html'}")


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="A run folder, several to compare, or the folder of a comparison.", show_default=False),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Page of several runs (default: comparison.html).", show_default=False)
    ] = None,
    resamples: int = 2000,
) -> None:
    """Write the page about a run, or one that compares several; the test part is not opened."""
    from acpl import api
    from acpl.engine.monitor import Terminal

    progress = Terminal(_console(stderr=True)).progress
    typer.echo(f"report: {api.make_report(*runs, out=out, resamples=resamples, progress=progress)}")


@app.command()
def watch(
    run: Annotated[
        Path, typer.Argument(help="A run folder, also one that is still being written.", show_default=False)
    ],
    once: Annotated[bool, typer.Option(help="Show it as it is now and return.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 2.0,
) -> None:
    """Show a run in the terminal while it trains, here or on another machine's folder."""
    from acpl import api

    try:
        api.watch(run, once=once, every=every)
    except KeyboardInterrupt:
        raise typer.Exit from None


@app.command()
def predict(
    run: Run,
    paths: Annotated[
        list[Path], typer.Argument(help="Image files (DICOM too), folders of them, or zips.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; standard output without it.")] = None,
    bad: Annotated[Path | None, typer.Option(help="CSV file to list in what could not be read, and why.")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write a CSV of ids, probabilities and decisions at the model's thresholds."""
    import pandas as pd

    from acpl import api
    from acpl.engine.monitor import Terminal

    for option, target in (("out", out), ("bad", bad)):
        if target is not None and target.exists():
            raise UserError(f"{target} exists; choose another --{option}, nothing is ever written over")
        if target is not None and not target.parent.is_dir():
            raise UserError(f"{target} cannot be written: there is no folder {target.parent}")
    progress = Terminal(_console(stderr=True)).progress
    table, unreadable = api.predict(run, paths, device=device, progress=progress)
    table.to_csv(out if out is not None else sys.stdout, index=False)
    if bad is not None:
        pd.DataFrame(unreadable, columns=["id", "reason"]).to_csv(bad, index=False)
    for file in unreadable:
        typer.echo(f"not read: {file.name}: {file.reason}", err=True)


def _compare(
    preset: str | None,
    methods: str,
    fractions: str,
    seeds: int,
    steps: int | None,
    jobs: int,
    out: Path,
    **given: Any,
) -> None:
    """Which method is best on these data, and is the difference real?

    All get the same splits, network and gradient steps. A stopped comparison goes on where it was when it is called
    again.
    """
    from dataclasses import asdict

    from acpl.experiments.comparison import compare
    from acpl.report.comparison import comparison_table

    try:
        shares = [float(share) for share in fractions.split(",")]
    except ValueError:
        raise UserError(f"fractions should be numbers like 0.05,0.2, but they are '{fractions}'") from None
    entries = compare(
        out,
        methods=[name.strip() for name in methods.split(",")],
        fractions=shares,
        seeds=seeds,
        steps=steps,
        jobs=jobs,
        say=typer.echo,
        preset=preset,
        **{key: value for key, value in given.items() if value is not None},
    )
    _console().print(comparison_table([asdict(entry) for entry in entries]))
    typer.echo(f"tables: {out}/table.md, table.csv, table.tex")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method's settings.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or the settings of one."""
    from acpl import algorithms, api

    if name is None:
        rows = list(api.methods().items())
    else:
        fields = algorithms.find(name).Settings.model_fields
        rows = [(_flag(key), f"{field.description} [default: {field.default}]") for key, field in fields.items()]
    _print_rows(rows, as_json)


@app.command()
def presets(as_json: AsJson = False) -> None:
    """List the presets and what each sets."""
    from acpl.config import preset_names, read_preset

    if as_json:
        typer.echo(json.dumps({name: read_preset(name) for name in preset_names()}))
        return
    rows = []
    for name in preset_names():
        values = read_preset(name)
        shown = {k: v for k, v in values.items() if k != "settings"} | values.get("settings", {})
        rows.append((name, ", ".join(f"{key}={value}" for key, value in shown.items())))
    _print_rows(rows, as_json=False)


def _print_rows(rows: Sequence[tuple[str, str]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(dict(rows)))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for left, right in rows:
        table.add_row(Text(left, style="bold"), Text(right))
    _console().print(table)


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _extra_options(arguments: Sequence[str]) -> dict[str, str]:
    """Options that are no fields of ``Config``: settings of the method, as ``--k 20``, ``--k=20`` or ``--no-x``."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"unexpected argument '{word}'; options start with --")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif name.startswith("no-"):
                name, value = name.removeprefix("no-"), "false"
            else:
                value = "true"
        given[name.replace("-", "_")] = value
    return given


def _option(name: str, field: FieldInfo) -> Parameter:
    """A field of ``Config`` as an option; what is not given stays None, so that preset and file count."""
    group = field.json_schema_extra["group"] if isinstance(field.json_schema_extra, dict) else None
    is_switch = field.annotation is bool
    help_text = (field.description or "").replace("[", "\\[")
    if field.annotation is not None and get_origin(field.annotation) is Literal:
        help_text += f" ({' | '.join(map(str, get_args(field.annotation)))})"
    declared = f"{_flag(name)}/--no-{name.replace('_', '-')}" if is_switch else _flag(name)
    option = typer.Option(
        declared,
        help=help_text,
        rich_help_panel=str(group),
        show_default=False,
        metavar=None if is_switch else _metavar(field.annotation),
    )
    kind: Any = bool | None if is_switch else str | None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _metavar(annotation: Any) -> str:
    options = [part for part in get_args(annotation) if part is not NoneType]
    plain = options[0] if get_origin(annotation) in (UnionType, Union) and options else annotation
    if get_origin(plain) is tuple:
        return ",".join("NAME" if part is str else "NUMBER" for part in get_args(plain) if part is not Ellipsis)
    return {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}.get(plain, "NAME")


def _with_options(
    function: Callable[..., None], own: Sequence[Parameter], fields: Iterable[str]
) -> Callable[..., None]:
    """``function`` as a command with options of its own and one for each of these fields of ``Config``."""

    def command(**given: Any) -> None:
        function(**given)

    parameters = [*own, *(_option(name, Config.model_fields[name]) for name in fields)]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = function.__doc__
    command.__name__ = function.__name__.removeprefix("_")
    return command


def _own(name: str, kind: Any, default: Any, text: str) -> Parameter:
    option = typer.Option(f"--{name}", help=text, show_default=False, rich_help_panel="Run")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _fields(*groups: str) -> list[str]:
    """Fields of ``Config`` under these headings; all but the method's own settings where none is named."""
    found = {name: field.json_schema_extra for name, field in Config.model_fields.items() if name != "settings"}
    return [
        name for name, extra in found.items() if not groups or (isinstance(extra, dict) and extra["group"] in groups)
    ]


_PRESET = _own(
    "preset",
    str | None,
    None,
    "Start from this preset (default: demo for phantoms, images otherwise); see `acpl presets`.",
)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    _with_options(
        _train,
        [
            Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            _PRESET,
            _own("config", Path | None, None, "Start from this YAML file, over the preset."),
            _own("out", Path | None, None, "Run folder to make (default: a new one below runs)."),
            _own("quiet", bool, False, "No progress, no lines."),
            _own(
                "log", str | None, None, "Send every figure to tensorboard, mlflow or wandb (extras); comma-separated."
            ),
        ],
        _fields(),
    )
)
app.command()(
    _with_options(
        _compare,
        [
            _PRESET,
            _own("methods", str, "all", "Comma-separated, or all."),
            _own("fractions", str, "0.05", "Shares of labels, comma-separated."),
            _own("seeds", int, 3, "Runs of each, seeds 0 to this."),
            _own("steps", int | None, None, "Gradient steps of every run (default: what ACPL would take at most)."),
            _own("jobs", int, 1, "Runs side by side."),
            _own("out", Path, Path("runs/comparison"), "Folder of the runs and tables."),
        ],
        [name for name in _fields() if name not in ("method", "fraction", "labelled", "seed", "split_checksum")],
    )
)
data_app = typer.Typer(help="Look at a data set.", no_args_is_help=True)
data_app.command()(
    _with_options(
        _check, [_PRESET, _own("json", bool, False, "Print one JSON object and nothing else.")], _fields("Data")
    )
)
app.add_typer(data_app, name="data")
