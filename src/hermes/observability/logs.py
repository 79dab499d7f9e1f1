"""Log files that rotate, carry the session and never show a secret.

`agent.log` has everything from the configured level on, `errors.log` what
needs attention. The finished line, with arguments and traceback, goes through
the redactor, so nothing can slip past it. Files are opened with the first
line. A log that cannot be written is given up after one warning: logging
never breaks a turn.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

from hermes.config.secrets import Redactor
from hermes.domain.settings.doors import Logging

_FORMAT = "%(asctime)s %(levelname)-7s %(tag)s%(name)s: %(message)s"
_session: ContextVar[str] = ContextVar("hermes_log_session", default="")


@contextmanager
def tag_session(session_id: str) -> Iterator[None]:
    """Mark every line logged in the body, and in tasks started there, with the session."""
    token = _session.set(session_id)
    try:
        yield
    finally:
        _session.reset(token)


def tag_task(session_id: str) -> None:
    """Mark what the running task does from here on with the session: it works for no other."""
    _session.set(session_id)


def tagged_session() -> str:
    """Return the session that the running code works for; empty if for none."""
    return _session.get()


class RedactingFormatter(logging.Formatter):
    """Formats a record completely, then takes the secrets out."""

    def __init__(self, redactor: Redactor, pattern: str = _FORMAT) -> None:
        super().__init__(pattern)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        session = _session.get()
        record.tag = f"[{session}] " if session else ""
        return self._redactor.redact(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - stdlib's
        """Return the traceback; it is cached on the record, hence redacted already here."""
        return self._redactor.redact(super().formatException(ei))


class QuietFileHandler(RotatingFileHandler):
    """A rotating file, private to its owner, that gives up rather than disturb."""

    def __init__(self, path: Path, settings: Logging) -> None:
        super().__init__(
            path,
            maxBytes=settings.max_size_mb * 1024 * 1024,
            backupCount=settings.backup_count,
            encoding="utf-8",
            errors="backslashreplace",
            delay=True,
        )
        self._given_up = False
        self._line: tuple[logging.LogRecord, str] | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Format a record once, though the base class asks twice: also for whether it fits."""
        if self._line is None or self._line[0] is not record:
            self._line = record, super().format(record)
        return self._line[1]

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(
            os.fdopen(descriptor, "ab", buffering=0),
            encoding=self.encoding,
            errors=self.errors,
            write_through=True,
        )

    def emit(self, record: logging.LogRecord) -> None:
        if not self._given_up:
            super().emit(record)
            self._line = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - stdlib's
        """Give up after an error of the disk; a wrong log call costs only its own line."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._given_up = True
            reason = error.strerror or str(error)
            _say(f"hermes: {self.baseFilename} cannot be written ({reason}); logging to it stops\n")
        else:
            _say(f"hermes: a log line was lost: {type(error).__name__}\n")


def configure_logging(logs_dir: Path, settings: Logging, redactor: Redactor) -> ExitStack:
    """Send logs to files below `logs_dir`; close what is returned to stop that.

    Calling it again replaces what the earlier call set up. Libraries are heard
    from WARNING on only.
    """
    root, stack = logging.getLogger(), ExitStack()

    def remove(handler: logging.Handler) -> None:
        root.removeHandler(handler)
        handler.close()

    for old in [h for h in root.handlers if isinstance(h.formatter, RedactingFormatter)]:
        remove(old)
    level = logging.getLevelNamesMapping()[settings.level]
    formatter = RedactingFormatter(redactor)
    for name, least in (("agent.log", level), ("errors.log", logging.WARNING)):
        handler = QuietFileHandler(logs_dir / name, settings)
        handler.setLevel(least)
        handler.setFormatter(formatter)
        root.addHandler(handler)
        stack.callback(remove, handler)
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("hermes").setLevel(level)
    return stack


def _say(text: str) -> None:
    stream: TextIO | None = sys.stderr
    if stream is not None:
        stream.write(text)
