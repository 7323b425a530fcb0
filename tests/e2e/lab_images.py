"""An image in the registry of a lab, and bursts that read it on all hosts."""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from conftest import Result, Snowmelt, short_folder, wait_for
from images import SERVE, Image, debian
from lab import Lab, lab

SMALL = "/usr/share/doc/libc6/copyright"
LIMIT_S = 240


@dataclass
class ImageLab:
    """A lab whose function `read` is in an image of the lab's registry. Each part of the image's
    large file is read by one test only, so that no host has it before."""

    lab: Lab
    made: Image
    part_bytes: int
    # Where hosts read the image from.
    name: str = ""
    next_part: "count[int]" = field(default_factory=count)

    @property
    def snowmelt(self) -> Snowmelt:
        return self.lab.snowmelt

    def deploy(self, folder: Path) -> None:
        """Converts and pushes the image, and deploys the function."""
        registry = self.lab.services()["registry"]["address"]
        self.name = f"{registry}/team/debian:blocks"
        self.lab.client("image", "convert", f"oci:{self.made.layout}", "debian:v1")
        self.lab.client("image", "push", "debian:v1", self.name)
        (folder / "serve").write_text(SERVE)
        (folder / "serve").chmod(0o755)
        command = ("--command", "./serve", "--timeout", "200s", "--memory", "64MiB")
        self.lab.client("fn", "deploy", "read", folder, *command, "--image", self.name)

    def part(self, pause: float = 0) -> dict[str, Any]:
        """An event that reads a part which no host has: from the end of the file to its beginning,
        because hosts also fetch what follows."""
        size = self.made.ballast.stat().st_size
        begin = size - (1 + next(self.next_part)) * self.part_bytes
        assert begin >= 0, "too few parts"
        where = {"read": self.made.inside, "from": begin, "size": self.part_bytes}
        return where | {"piece": 1 << 17, "pause": pause}

    def expected(self, event: dict[str, Any]) -> str:
        path = self.made.rootfs / event["read"][1:]
        begin = event.get("from", 0)
        content = path.read_bytes()[begin:][: event.get("size")]
        return hashlib.sha256(content).hexdigest()

    def start(self, events: list[dict[str, Any]]) -> "subprocess.Popen[str]":
        """One function on each host, in the order of the hosts' names."""
        path = self.snowmelt.folder / "events"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        return self.lab.client_start("fn", "burst", "read", "--events", path)

    def finish(self, burst: "subprocess.Popen[str]") -> Result:
        return self.snowmelt.finish(burst, LIMIT_S)

    def check(self, burst: "subprocess.Popen[str]", events: list[dict[str, Any]]) -> None:
        """Waits for all answers, which must be right."""
        done = self.finish(burst).succeeded()
        found = [json.loads(line).get("result") for line in done.out.splitlines()]
        known: dict[str, str] = {}
        for event in events:
            known.setdefault(json.dumps(event), self.expected(event))
        assert found == [known[json.dumps(event)] for event in events]

    def read(self, events: list[dict[str, Any]]) -> None:
        self.check(self.start(events), events)

    def hosts(self) -> list[str]:
        """The hosts that run functions, in the order in which they get them."""
        listed = json.loads(self.lab.client("hosts", "-o", "json"))
        return sorted(host["name"] for host in listed if host["facts"]["memory"])

    def tree(self) -> dict[str, dict[str, Any]]:
        """The hosts of the only tree, by their names."""
        [found] = json.loads(self.lab.client("tree", "-o", "json"))
        return {host["host"]: host for host in found["hosts"]}

    def wait_for_bytes(self, host: str, before: int, burst: "subprocess.Popen[str]") -> None:
        """Until blocks have passed a host."""

        def passed() -> bool:
            assert burst.poll() is None, f"it has ended: {self.finish(burst)}"
            return self.lab.cached(host) > before + (1 << 18)

        wait_for(f"blocks to pass {host}", passed)


@contextmanager
def image_lab(hosts: int, parts: int, *options: object) -> Iterator[ImageLab]:
    """A lab with a registry and the image in it."""
    with short_folder() as folder, short_folder() as layout, short_folder() as code:
        made = debian(layout)
        with lab(Snowmelt(folder), hosts, "--registry", *options) as running:
            found = ImageLab(running, made, made.ballast.stat().st_size // parts)
            found.deploy(code)
            yield found


def children(tree: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The children of each host."""
    found: dict[str, list[str]] = {host: [] for host in tree}
    for host, shown in tree.items():
        if shown["parent"] is not None:
            found[shown["parent"]].append(host)
    return found


def check_balanced(tree: dict[str, dict[str, Any]]) -> None:
    """The heights of siblings differ by 1 at most; an empty place has the height 0."""
    below = children(tree)
    roots = [host for host, shown in tree.items() if shown["parent"] is None]
    assert len(roots) == 1, roots

    def height(host: str) -> int:
        heights = sorted(height(child) for child in below[host])
        places = [0] * (2 - len(heights)) + heights
        assert len(places) == 2 and places[1] - places[0] <= 1, (host, below[host], heights)
        return 1 + places[1]

    height(roots[0])
