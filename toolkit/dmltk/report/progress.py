"""Progress: bars on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 10.0


class Reporter:
    """Told what is going on, how far, of how many; shows it on stderr.

    Use it as a context manager.
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn())
        self.bars = Progress(*columns, TimeRemainingColumn(), console=self.console)
        self.tasks: dict[str, object] = {}
        self.spoken = time.monotonic()

    def __enter__(self) -> Reporter:
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def __call__(self, doing: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done of what is called `doing`."""
        if self.console.is_terminal:
            if doing not in self.tasks:
                self.tasks[doing] = self.bars.add_task(doing, total=total)
            self.bars.update(self.tasks[doing], completed=done, total=total)  # type: ignore[arg-type]
            return
        now = time.monotonic()
        if done == total or now - self.spoken > PATIENCE:
            self.spoken = now
            self.console.print(f"{doing}: {done}/{total}", highlight=False)

    def say(self, text: str) -> None:
        """Show a line above the bars."""
        self.console.print(escape(text), highlight=False)

    def warn(self, text: str) -> None:
        """Show a warning above the bars."""
        self.console.print(f"[yellow]warning:[/yellow] {escape(text)}", highlight=False)
