"""A lab whose hosts have nothing of an image, and control that has: it takes part in no burst."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.lab import Lab
from common.paths import SNOWMELT, scratch
from common.processes import busy_seconds

from .home import Home
from .traffic import Traffic

CONTROL, REGISTRY = "host-1", "registry"
HOST_MEMORY = "1GiB"
# A setting of a lab: each host reads images from the registry.
NO_TREES = {"SNOWMELT_IMAGES_TREES": "false"}
JOINED_WITHIN_S = 120
# The scheduler learns of hosts, and of drained ones, once a second.
REPORTS_S = 2.5


@dataclass
class Burst:
    """One function on each host reads what a start reads."""

    # Seconds from the command until the handler of each host has its answer, in ascending order.
    answered: list[float]
    # Bytes over the registry's link.
    registry: int
    # The part of the processors' time that was not idle.
    busy: float
    traffic: Traffic
    # The trees of the image afterwards, as `snowmelt tree -o json` has them.
    tree: list[dict[str, Any]]

    @property
    def last(self) -> float:
        return self.answered[-1]

    @property
    def read_each(self) -> float:
        """Bytes of the image that a host has read, on average."""
        moved = [host["bytes"] for host in self.tree if host["bytes"]]
        return sum(it["from_parents"] + it["from_registry"] for it in moved) / len(moved)

    def middle(self) -> str | None:
        """A host that reads from others in both trees and sends to others."""
        places = {host["host"]: [it["parent"] for it in host["stripes"]] for host in self.tree}
        sends = {parent for parents in places.values() for parent in parents}
        found = (host for host, parents in places.items() if None not in parents and host in sends)
        return next(found, None)


class ImageLab:
    """A lab of control and `hosts` others, with the image in its registry."""

    def __init__(self, lab: Lab, hosts: int, home: Home) -> None:
        self.lab, self.home = lab, home
        self.hosts = [f"host-{2 + number}" for number in range(hosts)]
        [shown] = json.loads(lab.lab("ls", "-o", "json"))
        self._services: dict[str, dict[str, Any]] = {it["kind"]: it for it in shown["services"]}
        lab.others[REGISTRY] = int(self._services[REGISTRY]["pid"])

    @property
    def registry(self) -> str:
        """The address of the registry."""
        return str(self._services[REGISTRY]["address"])

    @property
    def certificate(self) -> Path:
        return Path(self._services[REGISTRY]["log"]).with_name("certificate.pem")

    def client(self, *words: object, timeout: float = 900) -> str:
        return self.lab.lab("run", "--", str(SNOWMELT), *map(str, words), timeout=timeout)

    def at_registry(self, *words: object, **variables: str) -> None:
        """Runs a command at the registry's own end of its link."""
        command = [*self.lab.inside(REGISTRY), "env", *(f"{k}={v}" for k, v in variables.items())]
        subprocess.run(
            [*command, *map(str, words)],
            env=self.lab.environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def push(self, image: str) -> str:
        """Pushes an image with its start profile; returns its name in the registry."""
        there = f"{self.registry}/{image}"
        own = self.home.environment | {"SNOWMELT_IMAGES_CA_FILE": str(self.certificate)}
        self.at_registry(SNOWMELT, "image", "push", image, there, **own)
        return there

    def deploy_cold(self, functions: Mapping[str, str], *options: object) -> None:
        """Deploys functions in images so that only control has read some of these, and takes
        control out of all other work. Profiles come last: control would fetch what they name."""
        self.wait_for_hosts()
        with self.home.without_profiles():
            for function, image in functions.items():
                words = ["--image", self.push(image), "--timeout", "15m", *options]
                self.client("fn", "deploy", function, *words)
        for image in functions.values():
            self.push(image)
        self.client("hosts", "drain", CONTROL)
        time.sleep(REPORTS_S)
        read = {host["host"] for tree in self.trees() for host in tree["hosts"] if host["bytes"]}
        if not read <= {CONTROL}:
            raise RuntimeError(f"these hosts have read some of the images: {read}")

    def wait_for_hosts(self) -> None:
        deadline = time.monotonic() + JOINED_WITHIN_S
        while len(self.lab.joined()) <= len(self.hosts):
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {self.lab.joined()} have joined")
            time.sleep(0.2)
        time.sleep(REPORTS_S)

    def trees(self) -> list[dict[str, Any]]:
        """The hosts in the trees of each image, and what they have read."""
        return list(json.loads(self.client("tree", "-o", "json")))

    def burst(self, events: Sequence[dict[str, Any]], function: str = "read") -> Burst:
        """Runs a function with these events, one on each host if there are as many."""
        file = Path(self.lab.environment["SNOWMELT_STATE"]).with_name("events")
        file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
        words = ["--events", file, "--hosts", len(self.hosts), "--start-within", "10m"]
        with Traffic(self.lab) as traffic:
            busy, begun, began = busy_seconds(), time.time(), time.perf_counter()
            out = self.client("fn", "burst", function, *words)
            seconds = time.perf_counter() - began
            busy = (busy_seconds() - busy) / seconds / (os.cpu_count() or 1)
        found = [json.loads(line)["result"]["at"] - begun for line in out.splitlines()]
        if len(found) != len(events):
            raise RuntimeError(f"{len(found)} answers to {len(events)} events")
        [tree] = self.trees()
        return Burst(sorted(found), traffic.sent(REGISTRY), busy, traffic, tree["hosts"])


@contextmanager
def image_lab(
    hosts: int, link: str, home: Home, *options: str, memory: str = HOST_MEMORY, **settings: str
) -> Iterator[ImageLab]:
    """A lab with a registry behind a link of the same rate, if the options name no other. Settings
    are variables of all hosts."""
    with scratch() as folder:
        lab = Lab(folder, 1 + hosts, link, memory, "--registry", *options)
        lab.environment |= {"SNOWMELT_IMAGES_TRUSTED_KEYS": home.key, "SNOWMELT_IMAGES_RAW": "0"}
        lab.environment |= settings
        with lab:
            yield ImageLab(lab, hosts, home)
