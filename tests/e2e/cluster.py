"""A cluster of two hosts on this machine: control, and one that joins it."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import Snowmelt, wait_for
from suites import client_of

from common.paths import SNOWMELT


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
    is a client of control. `folder` gets the token."""
    token = folder / "token"
    token.write_text("0123456789abcdef")
    common = ["--token-file", str(token), "--name"]
    up = [str(SNOWMELT), "up", "--listen", f"127.0.0.1:{port}", *common, "one"]
    subprocess.run(up, check=True, capture_output=True, env=control.environ())
    join = ["--control", f"127.0.0.1:{port}", "--address", f"127.0.0.1:{port + 1}", *common, "two"]
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
