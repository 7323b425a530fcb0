"""A cluster of two hosts on this machine: control, and one that joins it."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import Snowmelt, wait_for
from suites import client_of

from common.paths import SNOWMELT


def join_token(control: Snowmelt, *options: str) -> str:
    """A token with which one host joins."""
    return control.run("cluster", "join-token", *options).succeeded().out.strip()


@contextmanager
def two_hosts(
    control: Snowmelt,
    folder: Path,
    port: int,
    environment: Mapping[str, str],
    within: Sequence[str] = (),
) -> Iterator[None]:
    """Control is host `one`, and listens at the port; `two`, at the next port, has a state folder
    and this environment of its own, and is started by the command `within`. The SDK of this process
    is a client of control. `folder` gets the join token."""
    up = [str(SNOWMELT), "up", "--listen", f"127.0.0.1:{port}", "--name", "one"]
    subprocess.run(up, check=True, capture_output=True, env=control.environ())
    token = folder / "join"
    token.write_text(join_token(control))
    at = ["--control", f"127.0.0.1:{port}", "--address", f"127.0.0.1:{port + 1}"]
    join = [*at, "--join", f"@{token}", "--name", "two"]
    member = subprocess.Popen(
        [*within, str(SNOWMELT), "node", *join],
        env={**environment, "SNOWMELT_STATE": str(control.folder / "second")},
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_for("two hosts", lambda: '"two"' in control.run("hosts", "-o", "json").out)
        with client_of(control.folder / "state" / "snowmelt.sock"):
            yield
    finally:
        member.send_signal(signal.SIGTERM)
        member.wait(30)
        control.run("down")
