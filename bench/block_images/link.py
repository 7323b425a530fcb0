"""A registry at the other end of a link with a rate limit: both ends are the loopback of a separate
network namespace, so that there is no other traffic, and certificates are not needed."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from peers import remains

NAMESPACE = "sm-bench-images"
ADDRESS = "127.0.0.1:5000"
PATIENCE_S = 600.0


class Link:
    """Runs commands that use the registry, in its network namespace."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self.namespace = namespace

    def enter(self, command: Sequence[object]) -> list[str]:
        # Not `ip netns exec`, which hides the control groups.
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *map(str, command)]

    def run(self, *command: object, env: Mapping[str, str] | None = None) -> str:
        """Runs a command; returns its output."""
        done = subprocess.run(
            self.enter(command),
            env=os.environ | (env or {}),
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}")
        return done.stdout

    def shape(self, rate: str) -> None:
        """Sets the rate of the link, of both directions together."""
        shape = ["rate", rate, "burst", "256kb", "latency", "50ms"]
        self.run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", *shape)

    def unshape(self) -> None:
        subprocess.run(
            self.enter(["tc", "qdisc", "del", "dev", "lo", "root"]),
            check=False,
            capture_output=True,
        )

    def sent(self) -> int:
        """Bytes sent over the link."""
        [device] = json.loads(self.run("ip", "-j", "-s", "link", "show", "lo"))
        return int(device["stats64"]["tx"]["bytes"])


@contextmanager
def link(folder: Path) -> Iterator[Link]:
    """A link with the registry, during the block."""
    subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    made, registry = Link(), None
    try:
        # The packet size of an Ethernet link.
        made.run("ip", "link", "set", "lo", "mtu", "1500", "up")
        registry = serve(made, folder)
        yield made
    finally:
        if registry is not None:
            remains.end(registry)
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True)


def serve(made: Link, folder: Path) -> "subprocess.Popen[bytes]":
    """A registry at the address, with its data in this folder, until the caller ends it."""
    config, log = folder / "registry.yml", folder / "registry.log"
    config.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}\n"
        f"http: {{addr: '{ADDRESS}'}}\n"
    )
    program = shutil.which("docker-registry")
    if program is None:
        raise RuntimeError("docker-registry is missing: scripts/setup bench installs it")
    with log.open("wb") as output:
        process = subprocess.Popen(
            made.enter([program, "serve", config]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        done = subprocess.run(
            made.enter(["curl", "--silent", "--fail", f"http://{ADDRESS}/v2/"]),
            check=False,
            capture_output=True,
        )
        if done.returncode == 0:
            return process
        time.sleep(0.1)
    remains.end(process)
    raise RuntimeError(f"the registry did not come up:\n{log.read_text()[-2000:]}")
