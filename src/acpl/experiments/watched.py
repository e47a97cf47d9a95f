"""Cells that run while people watch: a live table in a terminal, lines elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpl.experiments.about import Account
from acpl.experiments.cells import Cell, is_done, refuse_others, run_cells
from acpl.experiments.progress import Board
from acpl.report.live import live_table

if TYPE_CHECKING:
    from rich.console import Console


class WatchedRuns:
    """Runs cells, with a live table in a terminal and lines elsewhere."""

    def __init__(
        self, folder: Path, jobs: int, say: Callable[[str], None], console: "Console | None", account: Account
    ) -> None:
        self.folder, self.jobs, self.say, self.account = folder, jobs, say, account
        self.console = console if console is not None and console.is_terminal else None
        self.ended = 0

    def __call__(self, cells: Sequence[Cell], title: str) -> dict[str, str]:
        """Why cells failed, by their names."""
        refuse_others(cells, self.folder)
        board = Board(cells, self.folder, self.jobs)
        if all(is_done(self.folder, cell) for cell in cells):
            return {}
        with self._shown(board, title) as say:

            def said(line: str) -> None:
                self.ended += 1
                self.account.write(self.ended)
                say(line)

            return run_cells(cells, self.folder, jobs=self.jobs, say=said, keep_going=True, board=board)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Says so in a terminal while it lasts."""
        if self.console is None:
            yield
            return
        with self.console.status(what):
            yield

    @contextmanager
    def _shown(self, board: Board, title: str) -> Iterator[Callable[[str], None]]:
        """What a finished cell's line goes to: nowhere, where the table shows it."""
        if self.console is None:
            yield self.say
            return
        from rich.live import Live

        console = self.console

        def table() -> Any:
            return live_table(
                board.rows(),
                title=title,
                counts=board.counts(),
                failures=board.failed,
                gone=board.seconds_gone(),
                left=board.seconds_left(),
                height=console.height,
            )

        with Live(get_renderable=table, console=console, refresh_per_second=2):
            yield lambda _: None
