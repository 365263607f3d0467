"""A polite end: SIGTERM is noted, and acted on where the run can be saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from dmltk.errors import DmltkError


class Stopped(DmltkError):
    """The run was asked to stop, and has saved where it was."""


class Stopper:
    """Notes SIGTERM while it is entered; the handler before it comes back after.

    Outside the main thread, where signals cannot be handled, nothing is noted.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
