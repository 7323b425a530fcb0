"""An image in the registry of a lab, and bursts that read it on all hosts."""

import hashlib
import json
import math
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
    latest: dict[str, Any] = field(default_factory=dict)

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
        self.latest = where | {"piece": 1 << 17, "pause": pause}
        return self.latest

    def last_parts(self) -> dict[str, Any]:
        """An event that reads the last parts that were asked for: more than a host fetches of what
        follows a part."""
        return self.latest | {"size": 3 * self.part_bytes, "pause": 0}

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
        """The hosts of the only image, by their names."""
        [found] = json.loads(self.lab.client("tree", "-o", "json"))
        return {host["host"]: host for host in found["hosts"]}

    def wait_for_bytes(self, host: str, before: int, burst: "subprocess.Popen[str]") -> None:
        """Until blocks have passed a host."""

        def passed() -> bool:
            assert burst.poll() is None, f"it has ended: {self.finish(burst)}"
            return self.lab.cached(host) > before + (1 << 18)

        wait_for(f"blocks to pass {host}", passed)


@contextmanager
def image_lab(hosts: int, parts: int, part_mib: float, *options: object) -> Iterator[ImageLab]:
    """A lab with a registry and the image in it."""
    with short_folder() as folder, short_folder() as layout, short_folder() as code:
        made = debian(layout, ballast_mib=math.ceil(parts * part_mib))
        with lab(Snowmelt(folder), hosts, "--registry", *options) as running:
            found = ImageLab(running, made, made.ballast.stat().st_size // parts)
            found.deploy(code)
            yield found


# The images' blocks are divided into so many stripes, each with a tree of its own.
STRIPES = 2


def parents(tree: dict[str, dict[str, Any]], stripe: int) -> dict[str, str | None]:
    """The parent of each host in the tree of a stripe."""
    return {host: shown["stripes"][stripe]["parent"] for host, shown in tree.items()}


def children(tree: dict[str, dict[str, Any]], stripe: int) -> dict[str, list[str]]:
    """The children of each host in the tree of a stripe."""
    found: dict[str, list[str]] = {host: [] for host in tree}
    for host, parent in parents(tree, stripe).items():
        if parent is not None:
            found[parent].append(host)
    return found


def readers(tree: dict[str, dict[str, Any]], host: str) -> set[str]:
    """The hosts that read any stripe from a host."""
    return {child for stripe in range(STRIPES) for child in children(tree, stripe)[host]}


def root(tree: dict[str, dict[str, Any]], stripe: int) -> str:
    """The host that reads a stripe from the registry."""
    [found] = (host for host, parent in parents(tree, stripe).items() if parent is None)
    return found


def check_balanced(tree: dict[str, dict[str, Any]]) -> None:
    """In each tree, the heights of siblings differ by 1 at most; an empty place has the height
    0."""
    for stripe in range(STRIPES):
        below = children(tree, stripe)

        def height(host: str, below: dict[str, list[str]] = below) -> int:
            heights = sorted(height(child, below) for child in below[host])
            places = [0] * (2 - len(heights)) + heights
            assert len(places) == 2 and places[1] - places[0] <= 1, (host, below[host], heights)
            return 1 + places[1]

        height(root(tree, stripe))
