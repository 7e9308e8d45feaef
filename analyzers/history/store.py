"""The history file: one SQLite database. Every write is one transaction, so that several processes may add at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.history.entry import Entry

APPLICATION_ID = 0x44345648
"""`D4VH` in SQLite's header: tells a history from every other database."""

_BUSY_TIMEOUT_S = 30.0

_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            identity TEXT NOT NULL UNIQUE,
            origin TEXT NOT NULL,
            profile TEXT NOT NULL,
            backend TEXT NOT NULL,
            model TEXT NOT NULL,
            machine TEXT NOT NULL,
            config TEXT NOT NULL,
            revision TEXT NOT NULL,
            dirty INTEGER NOT NULL,
            started_ns INTEGER NOT NULL,
            status TEXT NOT NULL,
            note TEXT NOT NULL,
            path TEXT NOT NULL,
            tool_version TEXT NOT NULL
        )""",
        "CREATE INDEX runs_by_series ON runs (profile, backend, model, machine, started_ns)",
        "CREATE INDEX runs_by_origin ON runs (origin)",
        """CREATE TABLE figures (
            run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            metric TEXT NOT NULL,
            value REAL NOT NULL,
            PRIMARY KEY (run, metric)
        ) WITHOUT ROWID""",
    ),
)
"""What leads from each schema version to the next; `PRAGMA user_version` says where a file stands."""

SCHEMA_VERSION = len(_MIGRATIONS)

_COLUMNS = tuple(name for name in Entry.__struct_fields__ if name != "figures")

Added = Literal["added", "replaced", "there already"]


class History:
    """An open history. Use `open_history`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def add(self, entry: Entry) -> Added:
        """Keep a run once: again it is `there already`; its end `replaced` the state in which it was still running."""
        with _transaction(self._connection, self._path):
            if self._connection.execute(
                "SELECT 1 FROM runs WHERE identity = ?", (entry.identity,)
            ).fetchone():
                return "there already"
            earlier = self._connection.execute(
                "DELETE FROM runs WHERE origin = ? AND status = 'running'", (entry.origin,)
            )
            places = ", ".join("?" * len(_COLUMNS))
            inserted = self._connection.execute(
                f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({places})",
                [_stored(getattr(entry, name)) for name in _COLUMNS],
            )
            self._connection.executemany(
                "INSERT INTO figures (run, metric, value) VALUES (?, ?, ?)",
                [(inserted.lastrowid, metric, value) for metric, value in entry.figures.items()],
            )
        return "replaced" if earlier.rowcount else "added"

    def entries(self) -> list[Entry]:
        """Every run in order of time, from one state of the file."""
        with _clear_errors(self._path):
            self._connection.execute("BEGIN")
            try:
                rows = self._connection.execute(
                    f"SELECT id, {', '.join(_COLUMNS)} FROM runs ORDER BY started_ns, identity"
                ).fetchall()
                figures: dict[int, dict[str, float]] = {}
                for run, metric, value in self._connection.execute("SELECT run, metric, value FROM figures"):
                    figures.setdefault(run, {})[metric] = value
            finally:
                self._connection.execute("COMMIT")
        return [_loaded(row[1:], figures.get(row[0], {}), self._path) for row in rows]


@contextmanager
def open_history(path: Path, *, create: bool) -> Iterator[History]:
    """Open the history in `path`; make it, or bring it to this version's schema, if `create`.

    Raises:
        UnusableInputError: it is not there (unless `create`), no SQLite database, one of something else, of a newer
            version, or cannot be opened.
    """
    if not create and not path.is_file():
        raise UnusableInputError(
            f"{path}: no history is there; `dsv4bench history add RUN...` makes one (--db FILE)"
        )
    with _clear_errors(path):
        # Autocommit: transactions are begun and ended here, never by the module.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rwc' if create else 'ro'}",
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
        )
    try:
        with _clear_errors(path):
            connection.execute("PRAGMA foreign_keys = ON")
        version = _checked_version(connection, path)
        if create and version < SCHEMA_VERSION:
            _migrate(connection, path)
        elif version < SCHEMA_VERSION:
            raise UnusableInputError(
                f"{path}: written by an older version (schema {version}, this one has {SCHEMA_VERSION}); "
                "`dsv4bench history add` brings it up to date"
            )
        yield History(connection, path)
    finally:
        connection.close()


def _checked_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a file that is a history; 0 for one that is still empty."""
    with _clear_errors(path):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if application != APPLICATION_ID and (tables or application or version):
        raise UnusableInputError(f"{path}: a SQLite database of something else, no history of dsv4bench")
    if version > SCHEMA_VERSION:
        raise UnusableInputError(
            f"{path}: written by a newer version (schema {version}, this one reads up to {SCHEMA_VERSION}): "
            "use the dsv4bench that wrote it, or a later one"
        )
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with _transaction(connection, path):
        # Another process may have done it while this one waited for the file.
        for statements in _MIGRATIONS[_checked_version(connection, path) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def _transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All or nothing; the write lock is taken at once, so that what is read inside stays true."""
    with _clear_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        what = getattr(error, "sqlite_errorname", "")
        if what == "SQLITE_NOTADB":
            raise UnusableInputError(f"{path}: no SQLite database, so no history") from error
        if what.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise UnusableInputError(
                f"{path}: in use by another process for {_BUSY_TIMEOUT_S:.0f} s; try again"
            ) from error
        raise UnusableInputError(f"{path}: cannot be used as a history: {error}") from error


def _stored(value: object) -> object:
    return msgspec.json.encode(value, order="sorted").decode() if isinstance(value, dict) else value


def _loaded(row: tuple[object, ...], figures: dict[str, float], path: Path) -> Entry:
    fields = dict(zip(_COLUMNS, row, strict=True))
    try:
        fields["config"] = msgspec.json.decode(str(fields["config"]))
        return msgspec.convert({**fields, "figures": figures}, Entry, strict=False)
    except msgspec.MsgspecError as error:
        raise UnusableInputError(f"{path}: the run {fields['identity']} in it is damaged: {error}") from error
