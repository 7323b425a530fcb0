"""Who may enter, and what that costs: calls with identities, many keys, the broker of root's
rights, and TLS between hosts."""

import itertools
import json
import os
import random
import re
import socket
import ssl
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.etcd import free_port
from common.figures import Section, median, percentile, short, spread
from common.kept import KeptConnection, ask_all, request
from common.paths import TARGET, scratch
from common.processes import cpu_seconds_below
from common.server import Server

HANDLER = "def handler(event):\n    return event\n"
TENANTS = int(os.environ.get("SNOWMELT_BENCH_TENANTS", "1000"))
KEYS_OF_EACH = 10
CALLS, ROUNDS = 400, 7
REQUESTS, KEY_ROUNDS = 4_000, 5
GIGABYTES = os.environ.get("SNOWMELT_BENCH_PLANE_GB", "2")
ADDED_MS = 0.1
PLANE_CPU = 1.0


class Entrance:
    """A server with an address for clients on other hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        options = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        options += ["-days", "7", "-subj", "/CN=localhost"]
        options += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
        subprocess.run(["openssl", *options, *files], check=True, capture_output=True)
        listen = ["--tls-listen", f"127.0.0.1:{self.port}"]
        listen += ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
        self.server = Server(folder, *listen)
        self.context = ssl.create_default_context(cafile=str(folder / "cert.pem"))

    def near(self) -> KeptConnection:
        """A connection to the socket."""
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(str(self.server.socket))
        return KeptConnection(connected)

    def far(self) -> KeptConnection:
        """A connection over TLS."""
        connected = socket.create_connection(("127.0.0.1", self.port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return KeptConnection(self.context.wrap_socket(connected, server_hostname="localhost"))

    def deploy(self, tenant: str) -> None:
        """Deploys `f`, a Python function that returns its event."""
        file = self.folder / "f.py"
        file.write_text(HANDLER)
        self.server.run("fn", "deploy", "f", str(file), "--memory", "64MiB", "--tenant", tenant)


@contextmanager
def entrance() -> Iterator[Entrance]:
    with scratch() as folder:
        made = Entrance(folder)
        with made.server:
            yield made


def answered(connection: KeptConnection, asked: bytes) -> bytes:
    """The body of a good answer."""
    status, body = connection.ask(asked)
    assert status in (200, 201), (status, body[:300])
    return body


def key_request(tenant: str) -> bytes:
    return request("POST", "/v1/keys", {"role": "caller"}, snowmelt_tenant=tenant)


def round_of_calls(connection: KeptConnection, call: bytes) -> list[float]:
    """The median time of a call in milliseconds, and that below which a tenth of them are."""
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        answered(connection, call)
        times.append(1000 * (time.perf_counter() - begun))
    return [median(times), percentile(times, 10)]


def calls(section: Section, at: Entrance) -> None:
    """Warm calls in turns: over the socket, and over TLS with a key."""
    at.deploy("acme")
    near, far = at.near(), at.far()
    path, event = "/v1/functions/f/invocations", {"event": 1}
    local = request("POST", path, event, snowmelt_tenant="acme")
    key = json.loads(answered(near, key_request("acme")))["text"]
    remote = request("POST", path, event, authorization=f"Bearer {key}")
    asked = {"near": (near, local), "far": (far, remote)}
    for connection, call in asked.values():
        round_of_calls(connection, call)
    pid = int(at.server.status()["pid"])
    times: dict[str, list[list[float]]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, (connection, call) in asked.items():
            before = cpu_seconds_below(pid)
            found = round_of_calls(connection, call)
            used = 1000 * (cpu_seconds_below(pid) - before) / CALLS
            times[name].append([*found, used])
    section.say(
        f"{CALLS} warm calls of a Python function that returns its event, one at a time on a"
        f" connection that is kept ({ROUNDS} rounds in turns). A tenth of the calls are faster than"
        " the second figure, which other work on the machine changes least:"
    )
    pairs = list(zip(times["near"], times["far"], strict=True))
    added = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]
    shown = {
        "over the socket, the user known by the connection": times["near"],
        "over TLS, the tenant known by a key": times["far"],
        "difference: TLS, TCP and the key": added,
    }
    rows = [
        [what, *(spread([each[column] for each in found]) for column in range(3))]
        for what, found in shown.items()
    ]
    head = ["a warm call", "median, ms", "fastest tenth, ms", "server's processor time, ms"]
    section.table(head, rows)
    fastest = median([each[1] for each in added])
    section.promise(
        "a warm call over TLS with a key, connection kept, fastest tenth",
        f"under {ADDED_MS} ms longer than over the socket",
        f"{fastest:.3f} ms longer",
        fastest < ADDED_MS,
    )


def requests_a_second(at: Entrance, texts: list[str]) -> float:
    """Requests of random ones of these keys, for each second of processor time of the server."""
    connections = [at.far() for _ in range(8)]
    pid = int(at.server.status()["pid"])
    asked = [request("GET", "/v1/functions", authorization=f"Bearer {text}") for text in texts]
    chosen = [random.choice(asked) for _ in range(REQUESTS)]
    for connection, each in zip(itertools.cycle(connections), chosen[:200], strict=False):
        answered(connection, each)
    begun = cpu_seconds_below(pid)
    for connection, each in zip(itertools.cycle(connections), chosen, strict=False):
        answered(connection, each)
    used = cpu_seconds_below(pid) - begun
    for connection in connections:
        connection.close()
    return REQUESTS / used


def many_keys(at: Entrance) -> tuple[list[str], float]:
    """The texts of all keys, and how many were made in a second."""
    operators = [at.near() for _ in range(8)]
    names = (f"tenant-{number % TENANTS}" for number in range(TENANTS * KEYS_OF_EACH - 1))
    begun = time.perf_counter()
    answers = ask_all(operators, map(key_request, names))
    seconds = time.perf_counter() - begun
    for operator in operators:
        operator.close()
    assert all(status in (200, 201) for status, _ in answers), answers[-1]
    return [str(json.loads(body)["text"]) for _, body in answers], len(answers) / seconds


def keys(section: Section, at: Entrance) -> None:
    """Many keys of many tenants against one."""
    texts, made = many_keys(at)
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(KEY_ROUNDS):
        rates["one"].append(requests_a_second(at, texts[:1]))
        rates["all"].append(requests_a_second(at, texts))
    section.say(
        "Requests over TLS with keys (`GET /v1/functions` of a tenant without functions), for each"
        f" second of processor time of the server, in turns. The keys were made over the socket,"
        f" {made:,.0f} a second, each durable:"
    )
    rows = [
        ["1 key", spread(rates["one"])],
        [f"{len(texts):,} keys of {TENANTS:,} tenants", spread(rates["all"])],
    ]
    section.table(["random ones of", "requests a second on one core"], rows)
    ratio = median(rates["all"]) / median(rates["one"])
    section.promise(
        f"requests a second on one core with {len(texts):,} keys of {TENANTS:,} tenants",
        "at least 0.8 times those with one key",
        f"{median(rates['all']):,.0f}, {ratio:.2f} times",
        ratio >= 0.8,
    )


def example(section: Section, package: str, name: str, *arguments: str) -> str:
    """Runs an example of a crate, and returns its output."""
    command = ["cargo", "run", "--release", "-p", package, "--example", name]
    section.commands.append(" ".join([*command, *(["--", *arguments] if arguments else [])]))
    built = TARGET / "examples" / name
    if not built.exists():
        build = ["cargo", "build", "--release", "--locked", "-p", package, "--example", name]
        subprocess.run(build, check=True)
    done = subprocess.run([str(built), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def broker(section: Section) -> None:
    found = json.loads(example(section, "snowmelt-broker", "round_trip"))
    section.say("A server that has given up root asks its broker (medians of five rounds):")
    rows = [
        ["a process of a sandbox, judged and killed", spread(found["asked_us"])],
        ["a process that opens files as the user of a client", spread(found["file_process_us"])],
    ]
    section.table(["a round trip", "µs"], rows)


def planes(section: Section) -> None:
    """What bytes between hosts cost."""
    rounds = 5
    costs: dict[str, list[float]] = defaultdict(list)
    handshakes: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        arguments = ("snowmelt-rpc", "host_planes", GIGABYTES)
        said = example(section if number == 0 else Section(""), *arguments)
        for plane, cpu in re.findall(r"(\S+ /\S+): ([\d.]+) CPU s", said):
            costs[plane].append(float(cpu))
        for kind, cpu, unit in re.findall(r"(\S+): a connection .*, ([\d.]+)(ms|µs) of", said):
            handshakes[kind].append(float(cpu) / (1 if unit == "ms" else 1000))
    section.say(
        f"Bytes between two hosts over the loopback, {GIGABYTES} GB in a round, {rounds} rounds:"
        " processor time of both ends together. Blocks of images go through a descriptor to another"
        " process, and without encryption they are verified by their digests alone."
    )
    rows = [
        [what, spread(costs[f"records {path}"]), spread(costs[f"TLS {path}"])]
        for what, path in (("rows and outputs", "/rows"), ("blocks", "/blocks"))
    ]
    section.table(["plane", "CPU s/GB with checksums", "CPU s/GB with TLS"], rows)
    shaken = " and ".join(f"{short(median(handshakes[kind]))} ms" for kind in ("records", "TLS"))
    section.say(f"A new connection costs {shaken} of processor time without and with TLS.")
    measured = median(costs["TLS /rows"])
    section.promise(
        "processor time of rows between hosts over TLS, both ends together",
        f"under {PLANE_CPU} s for each GB",
        f"{measured:.2f} s",
        measured < PLANE_CPU,
    )


def run() -> Section:
    section = Section("Identities, keys, and TLS between hosts")
    with entrance() as at:
        calls(section, at)
        keys(section, at)
    broker(section)
    planes(section)
    return section
