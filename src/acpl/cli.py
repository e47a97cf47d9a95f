"""The shell: one verb a public function, options built from the same configuration class."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acpl import completion as complete
from acpl.errors import SaidElsewhereError, UserError
from acpl.experiments.reproduce.names import NAMES
from acpl.options import extra_options, fields, flag, own, with_options

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
    from acpl.engine.outlets import outlive_readers

    outlive_readers()
    try:
        app()
    except SaidElsewhereError:
        sys.exit(2)
    except UserError as error:
        typer.echo(f"acpl: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        from acpl.engine.writing import is_of_the_disk, sentence

        if not is_of_the_disk(error):
            raise
        typer.echo(f"acpl: {sentence(Path(error.filename or 'a file'), error)}", err=True)
        sys.exit(2)


def _train(
    context: typer.Context,
    preset: str | None,
    config: Path | None,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    log: str | None,
    **given: Any,
) -> None:
    """Train a model; without options, ACPL on phantom-chest.

    Settings of the method are options too: `acpl methods acpl` lists them.
    """
    from acpl import api
    from acpl.engine.launching import speaks
    from acpl.engine.monitor import Quiet, Terminal

    given |= extra_options(context.args)
    monitor = Quiet() if quiet else Terminal(_console(stderr=False))
    trackers = [name.strip() for name in log.split(",")] if log else []
    run = api.train(preset=preset, file=config, out=out, resume=resume, monitor=monitor, log=trackers, **given)
    if speaks():
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
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on without the images that cannot be read.")] = False,
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
    result = api.evaluate(
        run, against=against, part=judged, resamples=resamples, skip_bad=skip_bad, device=device, progress=progress
    )
    if as_json:
        typer.echo(json.dumps(result))
        return
    from acpl.report.tables import evaluation_tables

    _console().print(evaluation_tables(result))
    if part == "test":
        typer.echo(f"report: {run / 'report.html'}")


@app.command()
def join(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, two or more.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="The new run folder.", show_default=False)] = None,
    device: DeviceOption = "auto",
) -> None:
    """Make one model of several runs, whose networks answer together: steadier than each of them."""
    from acpl import api
    from acpl.engine.monitor import Terminal
    from acpl.engine.run_folder import RunFolder

    run = api.join(runs, out=out, device=device, progress=Terminal(_console(stderr=True)).progress)
    joined = RunFolder(run).events()[0]
    every, one = joined["labelled"], joined["labelled_for_one"]
    shared = "" if every == one else f" between them, none more than {one:,}"
    typer.echo(f"{len(runs)} networks, which had {every:,} labelled images{shared}")
    typer.echo(f"run: {run}\nnext: acpl evaluate {run}")


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
    table: Annotated[
        Path | None,
        typer.Option(help="CSV file of what the model knows beside the images: the columns it was trained with."),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write a CSV of ids, probabilities and decisions at the model's thresholds."""
    import pandas as pd

    from acpl import api
    from acpl.engine.monitor import Terminal
    from acpl.engine.writing import write_whole

    for option, target in (("out", out), ("bad", bad)):
        if target is not None and target.exists():
            raise UserError(f"{target} exists; choose another --{option}, nothing is ever written over")
        if target is not None and not target.parent.is_dir():
            raise UserError(f"{target} cannot be written: there is no folder {target.parent}")
    progress = Terminal(_console(stderr=True)).progress
    say = partial(typer.echo, err=True)
    answers, unreadable = api.predict(run, paths, table=table, device=device, progress=progress, say=say)
    if out is None:
        answers.to_csv(sys.stdout, index=False)
    else:
        write_whole(out, answers.to_csv(index=False).encode())
    if bad is not None:
        write_whole(bad, pd.DataFrame(unreadable, columns=["id", "reason"]).to_csv(index=False).encode())
    for file in unreadable:
        typer.echo(f"not read: {file.name}: {file.reason}", err=True)


@app.command()
def suggest(
    run: Run,
    budget: Annotated[int, typer.Option(help="How many images to suggest at most.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file to write, pictures beside it (default: in the run's folder).", show_default=False),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Say which unlabelled images to have labelled next: high information, diverse, one a patient."""
    from acpl import api
    from acpl.engine.monitor import Terminal

    progress = Terminal(_console(stderr=True)).progress
    table = api.suggest(run, budget=budget, out=out, device=device, progress=progress)
    target = out if out is not None else run / "suggestions.csv"
    typer.echo(f"suggested: {len(table)} images, {table['group'].nunique()} patients or groups")
    if len(table) < budget:
        typer.echo(f"fewer than {budget}: each patient is suggested once, and duplicates are left out")
    typer.echo(f"table: {target}\npictures: {target.with_suffix('.png')}\nnext: acpl review {run}")


@app.command()
def review(
    run: Run,
    out: Annotated[
        Path | None,
        typer.Option(help="Table of labels to write (default: reviewed.csv in the run's folder).", show_default=False),
    ] = None,
    order: Annotated[
        str, typer.Option(help="What comes first: suggested (where `acpl suggest` was asked) or disagreement.")
    ] = "suggested",
    limit: Annotated[int, typer.Option(help="How many images at most.")] = 1000,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Serve a page on 127.0.0.1 to accept or correct pseudo-labels with the keyboard.

    Each decision is saved at once in a table that `acpl train` takes as labels. Nothing is sent anywhere.
    """
    from acpl import api
    from acpl.engine.monitor import Terminal

    first: Any = order  # checked there, for Python's callers too
    progress = Terminal(_console(stderr=True)).progress
    server = api.review(run, out=out, order=first, limit=limit, port=port, device=device, progress=progress)
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job would ignore the first
        signal.signal(number, signal.default_int_handler)
    with server:
        typer.echo(f"open: {server.url}\nsaves to: {server.decisions.table.path}\nCtrl+C ends it")
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    typer.echo(f"reviewed: {len(server.decisions.current)} images\nnext: {server.next_command}")


@app.command()
def export(
    run: Run,
    form: Annotated[
        str,
        typer.Option("--format", help="onnx, torchscript or safetensors.", autocompletion=complete.formats),
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="Folder to make (default: export-FORMAT in the run's).", show_default=False)
    ] = None,
) -> None:
    """Write the model for other programs, checked on real images; model.json says how to call it."""
    from acpl import api
    from acpl.engine.monitor import Terminal

    asked: Any = form  # checked there, for Python's callers too
    done = api.export(run, asked, out=out, progress=Terminal(_console(stderr=True)).progress)
    typer.echo(f"model: {done.file}\ncard: {done.folder / 'model.json'}")
    typer.echo(f"checked: probabilities of {done.images} images differ by at most {done.difference:.1e}")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has and what is missing; exit code 1 when acpl could not train here."""
    from acpl.machine import doctor as examine

    checks = examine()
    if as_json:
        typer.echo(json.dumps([check.as_dict() for check in checks]))
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for check in checks:
            mark = {"here": ("✓", "green"), "missing": ("–", "yellow"), "broken": ("✗", "red")}[check.state]
            said = Text(check.said).append(f"  {check.remedy}" if check.remedy else "", style="bold")
            table.add_row(Text(mark[0], style=mark[1]), Text(check.name), said)
        _console().print(table)
    if any(check.state != "here" and check.required for check in checks):
        raise typer.Exit(1)


def _compare(
    preset: str | None,
    methods: str,
    fractions: str,
    seeds: int,
    budget: str,
    tune: int,
    jobs: str,
    out: Path,
    **given: Any,
) -> None:
    """Which method is best on these data, and is the difference real?

    All get the same splits, network, gradient steps and number of settings to choose among. A stopped comparison goes
    on where it was when it is called again.
    """
    import shlex
    from dataclasses import asdict

    from acpl.experiments.comparison import compare, notes_on
    from acpl.report.comparison import comparison_tables

    try:
        shares = [float(share) for share in fractions.split(",")]
    except ValueError:
        raise UserError(f"fractions should be numbers like 0.05,0.2, but they are '{fractions}'") from None
    if jobs != "auto" and not jobs.isdecimal():
        raise UserError(f"jobs should be auto or a number, but it is '{jobs}'")
    console = _console()
    with _orderly_stop(f"stopped; the same call goes on with what {out} has not got yet"):
        entries = compare(
            out,
            methods=[name.strip() for name in methods.split(",")],
            fractions=shares,
            seeds=seeds,
            budget=budget,
            tune=tune,
            jobs="auto" if jobs == "auto" else int(jobs),
            say=typer.echo,
            console=console,
            command=shlex.join(["acpl", *sys.argv[1:]]),
            preset=preset,
            **{key: value for key, value in given.items() if value is not None},
        )
    console.print(comparison_tables([asdict(entry) for entry in entries], notes_on(entries), console.width))
    typer.echo(f"tables: {out}/table.md, table.csv, table.tex")


def _reproduce(
    name: str,
    preset: str | None,
    methods: str | None,
    fractions: str | None,
    seeds: int,
    steps: int | None,
    ks: str | None,
    tuned: Path | None,
    tune: int,
    jobs: int,
    resamples: int,
    against: str | None,
    dry_run: bool,
    no_run: bool,
    work: Path,
    out: Path,
    **given: Any,
) -> None:
    """Make one of the paper's tables or figures on any data, the paper's own figures beside it.

    What was done before is not run again: a stopped call goes on where it was, and tables share their runs.
    """
    from acpl.experiments.reproduce.reproduction import reproduce

    with _orderly_stop(f"stopped; the same call goes on with what {out} has not got yet"):
        target = reproduce(
            name,
            out,
            work=work,
            methods=_listed("methods", methods, str),
            fractions=_listed("fractions", fractions, float),
            seeds=seeds,
            steps=steps,
            ks=_listed("ks", ks, int),
            tuned=tuned,
            tune=tune,
            jobs=jobs,
            resamples=resamples,
            against=_listed("against", against, Path),
            dry_run=dry_run,
            run=not no_run,
            say=typer.echo,
            preset=preset,
            **given,
        )
    if not dry_run:
        typer.echo((target / "table.md").read_text(encoding="utf-8"))
        typer.echo(f"written: {target}")


@contextmanager
def _orderly_stop(words: str) -> Iterator[None]:
    """Ctrl-C, a scheduler's SIGTERM and a closed terminal's SIGHUP (without nohup) end the command with these words."""
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(words, err=True)
        raise typer.Exit(130) from None


def _listed(option: str, given: str | None, kind: Callable[[str], Any]) -> list[Any]:
    """What stands between the commas."""
    try:
        return [kind(part.strip()) for part in given.split(",")] if given is not None else []
    except ValueError:
        raise UserError(f"{option} should be numbers like 0.05,0.2, but they are '{given}'") from None


@app.command()
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this method's settings.", show_default=False, autocompletion=complete.methods),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or the settings of one."""
    from acpl import algorithms, api

    if name is None:
        rows = list(api.methods().items())
    else:
        settings = algorithms.find(name).Settings.model_fields
        rows = [(flag(key), f"{field.description} [default: {field.default}]") for key, field in settings.items()]
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


_PRESET = own(
    "preset",
    str | None,
    None,
    "Start from this preset (default: demo for phantoms, images otherwise); see `acpl presets`.",
    complete.presets,
)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    with_options(
        _train,
        [
            Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            _PRESET,
            own("config", Path | None, None, "Start from this YAML file, over the preset."),
            own("out", Path | None, None, "Run folder to make (default: a new one below runs)."),
            own("resume", Path | None, None, "Go on with the run in this folder, exactly where it was."),
            own("quiet", bool, False, "No progress, no lines."),
            own(
                "log", str | None, None, "Send every figure to tensorboard, mlflow or wandb (extras); comma-separated."
            ),
        ],
        fields(),
    )
)
# What every cell of a comparison shares; the rest is what it varies.
_SHARED_BY_CELLS = [
    name
    for name in fields()
    if name not in ("method", "fraction", "labelled", "seed", "split_checksum", "devices", "nodes")
]
app.command()(
    with_options(
        _compare,
        [
            own(
                "preset", str | None, None, "Start from this preset (default: compare for phantoms, images otherwise)."
            ),
            own("methods", str, "all", "Comma-separated, or all.", complete.several_methods),
            own("fractions", str, "0.05", "Shares of labels, comma-separated."),
            own("seeds", int, 3, "Runs of each: so many seeds, from 0."),
            own(
                "budget",
                str,
                "same",
                "Gradient steps of every run: a number, or same (the default): what ACPL would take at most.",
            ),
            own("tune", int, 1, "Settings of each method to choose among on validation; 1: each as it stands."),
            own("jobs", str, "auto", "Runs side by side; auto: as cores and memory allow."),
            own("out", Path, Path("runs/comparison"), "Folder of the runs and tables."),
        ],
        _SHARED_BY_CELLS,
    )
)
app.command()(
    with_options(
        _reproduce,
        [
            Parameter(
                "name",
                Parameter.KEYWORD_ONLY,
                annotation=Annotated[
                    str,
                    typer.Argument(
                        metavar="NAME",
                        show_default=False,
                        help="\n\n".join(f"[bold]{name}[/bold]: {line}." for name, line in NAMES.items()),
                    ),
                ],
            ),
            _PRESET,
            own("methods", str | None, None, "Comma-separated, or all: for table1, table2 and table3."),
            own("fractions", str | None, None, "Shares of labels, comma-separated (default: the paper's)."),
            own("seeds", int, 5, "Runs of each: so many seeds, from 0."),
            own("steps", int | None, None, "Gradient steps of every run (default: what ACPL would take at most)."),
            own("ks", str | None, None, "figure-k: values of K, comma-separated (default: the paper's, by share)."),
            own("tuned", Path | None, None, "YAML of settings: under 'all', and each method's own under its name."),
            own("tune", int, 1, "Settings of each method to choose among on validation; 1: each as it stands."),
            own("jobs", int, 1, "Runs side by side."),
            own("resamples", int, 2000, "Resamples of every interval."),
            own(
                "against",
                str | None,
                None,
                "Other folders, comma-separated: how far each row is ahead of itself there.",
            ),
            own("dry-run", bool, False, "List the runs and do nothing."),
            own("no-run", bool, False, "Train nothing: make the table of the runs that are there."),
            own("work", Path, Path("runs/reproduce"), "Folder of the runs with their weights; tables share it."),
            own("out", Path, Path("results"), "Folder below which NAME is written, with every run's small files."),
        ],
        _SHARED_BY_CELLS,
    )
)
data_app = typer.Typer(help="Look at a data set.", no_args_is_help=True)
data_app.command()(
    with_options(_check, [_PRESET, own("json", bool, False, "Print one JSON object and nothing else.")], fields("Data"))
)
app.add_typer(data_app, name="data")
