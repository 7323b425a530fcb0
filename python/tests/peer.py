"""The platform's side of the protocol with an instance, for tests: a real process and socket."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa

from snowmelt import _outcomes, _ship
from snowmelt._runtime import frames

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 60.0


def run_program(program: str, **environment: str) -> str:
    """The output of a separate program, which must succeed."""
    variables = {**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER), **environment}
    variables = {name: value for name, value in variables.items() if value}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=variables,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout


class Refused(Exception):
    """The instance answered with a failure."""

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(json.dumps(failure, indent=1))
        self.failure = failure


class Instance:
    """A process that runs `snowmelt._runtime.serve`, as a sandbox does."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._path = str(folder / "channel")
        self.log = folder / "log"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._path)
        listener.listen()
        descriptor = listener.fileno()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snowmelt._runtime.serve"],
                pass_fds=[descriptor],
                stdout=log,
                stderr=log,
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(PACKAGE_FOLDER),
                    "SNOWMELT_CHANNEL_FD": str(descriptor),
                    **environment,
                },
            )
        listener.close()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def source(self, text: str, file: str = "udfs.py") -> str:
        """Writes source code where the instance can read it; returns the path for `Load`."""
        text = textwrap.dedent(text)
        return self._put({"kind": "source", "file": file, "text": text})

    def in_folder(self, main: str, **texts: str) -> str:
        """Writes a folder of code, as the platform does; `a_b` is the file `a/b.py`."""
        files = {f"{name.replace('_', '/')}.py": textwrap.dedent(it) for name, it in texts.items()}
        where = self.folder / f"folder-{next(self._numbers)}"
        for name, text in files.items():
            (where / "files" / name).parent.mkdir(parents=True, exist_ok=True)
            (where / "files" / name).write_text(text)
        sent = {
            name: {"data": base64.b64encode(it.encode()).decode()} for name, it in files.items()
        }
        path = where / "code.json"
        path.write_text(json.dumps({"kind": "folder", "file": main, "files": sent}))
        return str(path)

    def pickled(self, thing: Any, **changes: Any) -> str:
        """Writes a pickled function where the instance can read it."""
        code, _ = _ship.pickled(thing, "function")
        return self._put({**code, **changes})

    def _put(self, code: dict[str, Any]) -> str:
        path = self.folder / f"code-{next(self._numbers)}.json"
        path.write_text(json.dumps(code))
        return str(path)

    def open(self, mode: str, code: str, function: str = "", **more: Any) -> frames.Connection:
        """A connection with the code loaded. Raises `Refused`."""
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(PATIENCE_SECONDS)
        connected.connect(self._path)
        connection = frames.Connection(connected)
        load = {"mode": mode, "code": code, "function": function, "batch": None, **more}
        connection.send_json(frames.LOAD, {"on_error": "raise", **load})
        answer(connection, frames.READY)
        return connection

    def call(self, code: str, event: Any, function: str = "handler") -> Any:
        """One call of a function on its own connection."""
        connection = self.open("function", code, function)
        return call(connection, event)

    def map(
        self, code: str, items: list[Any], function: str = "f", results: str = "plain"
    ) -> list[tuple[bool, Any]]:
        """The outcomes of one call of a map, as the caller of `sm.map` receives them."""
        connection = self.open("map", code, function)
        answer = call(connection, _outcomes.event(items, results))
        return _outcomes.read(answer, len(items), results)

    def udf(self, code: str, function: str, *batches: pa.RecordBatch, **load: Any) -> pa.Array:
        """The result column of a UDF over batches of one schema. Raises `Refused`."""
        connection = self.open("udf", code, function, **load)
        return Caller(connection, batches[0].schema)(*batches)


class Caller:
    """An open UDF connection."""

    def __init__(self, connection: frames.Connection, arguments: pa.Schema) -> None:
        self._connection = connection
        self._result: pa.Schema | None = None
        connection.send(frames.SCHEMA, arguments.serialize())
        # The platform also sends the schema that it expects; this peer uses that of the answer.
        connection.send(frames.SCHEMA, pa.schema([pa.field("return", pa.null())]).serialize())

    def __call__(self, *batches: pa.RecordBatch) -> pa.Array:
        return pa.concat_arrays([self._one(batch) for batch in batches])

    def _one(self, batch: pa.RecordBatch) -> pa.Array:
        self._connection.send(frames.BATCH, batch.serialize())
        if self._result is None:
            schema = answer(self._connection, frames.SCHEMA)
            self._result = pa.ipc.read_schema(pa.py_buffer(schema))
        payload = answer(self._connection, frames.BATCH)
        read = pa.ipc.read_record_batch(pa.py_buffer(payload), self._result)
        read.validate(full=True)
        assert read.num_columns == 1 and read.num_rows == batch.num_rows
        return read.column(0)


def answer(connection: frames.Connection, kind: int) -> bytearray:
    """The next frame's payload. Raises `Refused` for a failure."""
    frame = connection.receive()
    assert frame is not None, "the instance closed the connection"
    if frame[0] == frames.FAILURE:
        raise Refused(json.loads(frame[1]))
    assert frame[0] == kind, frame
    return frame[1]


def call(connection: frames.Connection, event: Any) -> Any:
    """One call on an open connection. Raises `Refused`."""
    connection.send_json(frames.CALL, {"invocation": "i-1", "event": event})
    return json.loads(answer(connection, frames.RETURN))
