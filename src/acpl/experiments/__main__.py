"""``python -m acpl.experiments NAME``."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def _experiments() -> None:
    """Declared runs whose tables are reported."""


@app.command()
def phantoms(
    out: Annotated[Path, typer.Option(help="Folder of the cells; finished ones are reused.")] = Path("runs/phantoms"),
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
    device: str = "auto",
    precision: str = "auto",
) -> None:
    """ACPL against supervised on both phantoms, and high against low information."""
    from acpl.experiments.phantoms import run_phantoms

    typer.echo(run_phantoms(out, seeds=seeds, jobs=jobs, say=typer.echo, device=device, precision=precision))


@app.command()
def gallery(out: Annotated[Path, typer.Option(help="PNG to write.")] = Path("docs/phantoms.png")) -> None:
    """Draw a picture of the built-in images."""
    from acpl.experiments.gallery import draw_gallery

    draw_gallery(out)


@app.command()
def methods(
    out: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("docs/methods"),
    measured: Annotated[Path | None, typer.Option(help="Folder of a comparison to take the figures of.")] = None,
) -> None:
    """Write a page for each method from what it says of itself, and from what was measured."""
    from acpl.experiments.method_pages import take_measured, write_pages

    if measured is not None:
        take_measured(measured, out)
    typer.echo(f"{len(write_pages(out))} pages in {out}")


if __name__ == "__main__":
    app()
