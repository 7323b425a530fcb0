"""A process that answers queries from its standard input: a line of JSON each way."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

END_WITHIN_S = 60


class Refused(Exception):
    """The process runs, and its answer is an error."""


@dataclass(frozen=True)
class LineClient:
    """A running process."""

    process: "subprocess.Popen[str]"

    def ask(self, request: Mapping[str, str]) -> dict[str, Any]:
        """The answer to a request; `Refused` if it is an error."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        said = self.said()
        if "error" in said:
            raise Refused(said["error"])
        return said

    def said(self) -> dict[str, Any]:
        """The next line; there is one before the first request, when the process is ready."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait(END_WITHIN_S)
            raise RuntimeError(f"{self.process.args!r} has ended with status {status}")
        return dict(json.loads(line))


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[LineClient]:
    """The process during the block. It ends at the end of its input."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield LineClient(process)
    finally:
        try:
            process.communicate(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
