"""What holds for all tests, however they were started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Under nohup, processes of Headrace go on when a terminal is closed: those that tests start are not to inherit it.

    A handler that does nothing ignores the signal here, and is no handler in whoever is started.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
