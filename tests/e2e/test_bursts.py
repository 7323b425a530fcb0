"""Bursts over hosts, each a network namespace with the real `snowmelt node`."""

import json
import os
import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import join_token
from conftest import Snowmelt, wait_for

from common.paths import SNOWMELT

PYTHON = Path(__file__).resolve().parents[2] / "python"

RING = """
def ring(rank):
    import socket
    job = sm.job()
    server = job.listen(80)
    right = job.connect((rank + 1) % job.size, 80)
    left, peer = server.accept()
    value = total = rank
    for _ in range(job.size - 1):
        right.sendall(value.to_bytes(8, "big"))
        value = int.from_bytes(left.recv(8, socket.MSG_WAITALL), "big")
        total += value
    by_name = socket.gethostbyname(f"rank-{(rank + 1) % job.size}.job")
    return total, job.address, peer[0], by_name
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Cluster:
    """Two hosts connected by a link; control is on the first."""

    snowmelt: Snowmelt
    hosts: list[str]
    member: "subprocess.Popen[str]"

    def python(self, code: str, timeout: float = 120) -> list[object]:
        """The output of a program, each line a JSON value."""
        text = "import json\nimport snowmelt as sm\n" + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=self.snowmelt.environ()
            | {"PYTHONPATH": str(PYTHON), "SNOWMELT_BIN": str(SNOWMELT)},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ranks(self) -> list[int]:
        """The number of functions on each host."""
        shown = self.snowmelt.run("hosts", "-o", "json").succeeded().out
        return [host["facts"]["ranks"] for host in json.loads(shown)]

    def job_devices(self, host: str) -> list[str]:
        """Network devices of jobs."""
        shown = subprocess.run(
            ["ip", "-n", host, "-o", "link"], check=True, capture_output=True, text=True
        )
        names = (line.split(": ")[1].split("@")[0] for line in shown.stdout.splitlines())
        return [name for name in names if name.startswith("snm")]


@pytest.fixture
def cluster(snowmelt: Snowmelt, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("only root can make hosts of network namespaces")
    tag = secrets.token_hex(3)
    hosts = [f"smt{tag}{number}" for number in (1, 2)]
    devices = [f"t{tag}{number}" for number in (1, 2)]
    member = None
    try:
        for host in hosts:
            ip("netns", "add", host)
        ip(
            "link",
            "add",
            devices[0],
            "netns",
            hosts[0],
            "type",
            "veth",
            "peer",
            "name",
            devices[1],
            "netns",
            hosts[1],
        )
        for number, (host, device) in enumerate(zip(hosts, devices, strict=True), 1):
            ip("-n", host, "addr", "add", f"192.0.2.{number}/24", "dev", device)
            ip("-n", host, "link", "set", device, "up")
            ip("-n", host, "link", "set", "lo", "up")
        # Not `ip netns exec`, which hides the control groups.
        enter = [["nsenter", f"--net=/run/netns/{host}", str(SNOWMELT)] for host in hosts]
        method = getattr(request, "param", "auto")
        environment = snowmelt.environ() | {"SNOWMELT_NETWORK_ENFORCEMENT": method}
        subprocess.run(
            [*enter[0], "up", "--listen", "192.0.2.1:7070", "--name", "one"],
            check=True,
            capture_output=True,
            env=environment,
        )
        member = subprocess.Popen(
            [
                *enter[1],
                "node",
                "--control",
                "192.0.2.1:7070",
                "--address",
                "192.0.2.2:7070",
                "--join",
                join_token(snowmelt),
                "--name",
                "two",
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        made = Cluster(snowmelt, hosts, member)
        wait_for("the second host", lambda: len(made.ranks()) == 2)
        yield made
    finally:
        if member is not None and member.poll() is None:
            member.send_signal(signal.SIGTERM)
            member.wait(30)
        snowmelt.run("down")
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)


@pytest.mark.parametrize("cluster", ["groups", "notifier"], indirect=True)
def test_functions_on_two_hosts_communicate_by_plain_sockets(cluster: Cluster) -> None:
    code = RING + textwrap.dedent("""
        done = sm.burst(ring, 12, network="job", memory="64MiB")
        print(json.dumps([done, [(h["host"], h["first"], h["count"]) for h in done.hosts],
                          [h["network"]["messages"] for h in done.hosts]]))
    """)
    [[results, hosts, messages]] = cluster.python(code)  # type: ignore[misc]
    assert [host for host, _, _ in hosts] == ["one", "two"]
    assert sum(count for _, _, count in hosts) == 12
    addresses = [address for _, address, _, _ in results]
    assert len(set(addresses)) == 12
    for rank, (total, _, left, right) in enumerate(results):
        assert total == sum(range(12))
        assert left == addresses[rank - 1], "it comes from its own address"
        assert right == addresses[(rank + 1) % 12], "names are those of the ranks"
    again = code.replace("(ring, 12", "(ring, 40")
    [[_, _, more]] = cluster.python(again)  # type: ignore[misc]
    assert messages == more, "the network costs the same for 12 functions and for 40"


def test_data_sent_before_a_function_returned_arrives(cluster: Cluster) -> None:
    """The reader begins when all functions on the senders' host have ended."""
    done = cluster.python("""
        def hands_over(rank):
            import time
            job = sm.job()
            half = job.size // 2
            if rank < half:
                job.connect(rank + half, 80).sendall(bytes(3_000_000))
                return None
            with job.listen(80) as server:
                taken, _ = server.accept()
            time.sleep(1)
            length = 0
            while found := taken.recv(1 << 16):
                length += len(found)
            return length

        done = sm.burst(hands_over, 8, network="job", memory="64MiB", progress=False)
        print(json.dumps([list(done), [host["count"] for host in done.hosts]]))
    """)
    assert done == [[[None] * 4 + [3_000_000] * 4, [4, 4]]]
    wait_for("nothing", lambda: not any(cluster.job_devices(host) for host in cluster.hosts))


def test_functions_on_two_hosts_communicate_by_ipv6_and_by_name(cluster: Cluster) -> None:
    code = """
        @sm.function(network="job", memory="64MiB")
        def greet(rank):
            import socket
            job = sm.job()
            server = job.listen(80, ipv6=True)
            right = job.connect((rank + 1) % job.size, 80, ipv6=True)
            left, peer = server.accept()
            name = f"rank-{(rank + 1) % job.size}.job"
            named = {found[4][0] for found in socket.getaddrinfo(name, 80)}
            return job.address6, job.peers6, peer[0], sorted(named), job.peers

        done = greet.burst(6)
        print(json.dumps([done, [h["count"] for h in done.hosts]]))
    """
    [[results, counts]] = cluster.python(code)  # type: ignore[misc]
    assert len(counts) == 2 and sum(counts) == 6
    addresses = [result[0] for result in results]
    assert len(set(addresses)) == 6 and all(address.startswith("fd73:") for address in addresses)
    for rank, (_, peers6, left, named, peers) in enumerate(results):
        assert peers6 == addresses
        assert left == addresses[rank - 1], "it comes from its own address"
        right = (rank + 1) % 6
        assert named == sorted([peers[right], addresses[right]])


def test_a_deployed_function_bursts_in_its_own_network_from_python(cluster: Cluster) -> None:
    code = """
        @sm.function(network="job", memory="64MiB")
        def ring(event):
            job = sm.job()
            server = job.listen(80)
            right = job.connect((job.rank + 1) % job.size, 80)
            left, peer = server.accept()
            return {"event": event, "address": job.address, "left": peer[0]}

        deployed = ring.deploy("ring")
        done = deployed.burst(6)
        alone = sm.deployed("ring").burst([{"n": 1}], on_error="return")
        asked = sm.deployed("ring").burst([{"n": 1}, {"n": 2}], network="job")
        deployed.remove()
        print(json.dumps([done, [h["count"] for h in done.hosts], alone[0].message, asked]))
    """
    [[done, counts, alone, asked]] = cluster.python(code)  # type: ignore[misc]
    assert len(counts) == 2 and [row["event"] for row in done] == list(range(6))
    assert [row["left"] for row in done[1:]] == [row["address"] for row in done[:-1]]
    assert "this burst has no job network" in alone
    assert [row["event"] for row in asked] == [{"n": 1}, {"n": 2}]


# Answers with the client's address; the policy allows port 8080.
OUTSIDE = """
import socket, threading
def serve(port):
    server = socket.create_server(("", port))
    print(port, flush=True)
    while True:
        connection, peer = server.accept()
        connection.sendall(peer[0].encode())
        connection.close()
threads = [threading.Thread(target=serve, args=(port,)) for port in (8080, 8081)]
[thread.start() for thread in threads]
"""


@pytest.fixture
def outside(cluster: Cluster) -> Iterator[str]:
    """The address of a server outside the cluster, reachable from its first host."""
    name, first = f"{cluster.hosts[0]}o", cluster.hosts[0]
    device, inner = f"{name[3:]}a", f"{name[3:]}b"
    server = None
    try:
        ip("netns", "add", name)
        ip("link", "add", device, "netns", first, "type", "veth", "peer", inner, "netns", name)
        for host, end, number in ((first, device, 2), (name, inner, 1)):
            ip("-n", host, "addr", "add", f"198.51.100.{number}/24", "dev", end)
            ip("-n", host, "link", "set", end, "up")
        server = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{name}", sys.executable, "-c", OUTSIDE],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None and server.stdout.readline() and server.stdout.readline()
        yield "198.51.100.1"
    finally:
        if server is not None:
            server.kill()
            server.wait(30)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_egress_is_limited_to_the_policy(cluster: Cluster, outside: str) -> None:
    code = f"""
        def ask(rank):
            import errno, socket
            found = []
            for port in (8080, 8081):
                try:
                    with socket.create_connection(({outside!r}, port), timeout=5) as connection:
                        found.append(connection.recv(64).decode())
                except OSError as error:
                    found.append(errno.errorcode[error.errno])
            return found

        def asks(network):
            return sm.burst(ask, 2, network=network, hosts=1, memory="64MiB")

        print(json.dumps(asks("job")))
        print(json.dumps(asks(sm.Network(egress=["198.51.100.0/24:8080"]))))
        print(json.dumps(asks(sm.Network(egress=["198.51.100.1"]))))
    """
    closed, named, whole = cluster.python(code)
    assert closed == [["ENETUNREACH", "ENETUNREACH"]] * 2
    assert named == [["198.51.100.2", "EHOSTUNREACH"]] * 2, "with the host's address"
    assert whole == [["198.51.100.2", "198.51.100.2"]] * 2


@pytest.mark.parametrize("cluster", ["groups", "notifier"], indirect=True)
def test_two_jobs_with_the_same_addresses_are_isolated(cluster: Cluster) -> None:
    code = """
        import threading

        def listens(rank):
            import time
            server = sm.job().listen(5000)
            server.settimeout(6)
            try:
                server.accept()
                return "reached"
            except TimeoutError:
                return sm.job().address

        def probes(rank):
            import socket, time
            found = []
            for host in ("10.192.0.2", "192.0.2.1", "192.0.2.2", "169.254.169.254"):
                for port in (5000, 7070, 80):
                    with socket.socket() as probe:
                        probe.settimeout(0.3)
                        try:
                            probe.connect((host, port))
                            found.append((host, port))
                        except OSError:
                            pass
            return found

        answers = {}
        one = threading.Thread(target=lambda: answers.update(
            one=sm.burst(listens, 2, network="job", memory="64MiB", progress=False)))
        one.start()
        import time
        time.sleep(2)
        answers["two"] = sm.burst(probes, 1, network="job", memory="64MiB", progress=False)
        one.join()
        print(json.dumps([answers["one"], answers["two"]]))
    """
    [[listened, probed]] = cluster.python(code)  # type: ignore[misc]
    assert "reached" not in listened
    assert probed == [[]], "neither another job, nor the hosts, nor the metadata address"


def test_a_lost_host_is_reported_and_cleaned_up(cluster: Cluster) -> None:
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import snowmelt as sm, time\nsm.burst(lambda r: time.sleep(90), 4, "
            "network='job', memory='64MiB')",
        ],
        env=cluster.snowmelt.environ() | {"PYTHONPATH": str(PYTHON), "SNOWMELT_BIN": str(SNOWMELT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for("the job on the second host", lambda: cluster.job_devices(cluster.hosts[1]))
    wait_for("its functions", lambda: all(cluster.ranks()))
    # `nsenter` executes the node, so this is the node itself.
    cluster.member.kill()
    _, said = program.communicate(timeout=60)
    assert "SM-0703" in said and "two (ranks 2 to 3)" in said, said
    for host in cluster.hosts:
        wait_for(f"the devices to go from {host}", lambda host=host: not cluster.job_devices(host))


def test_a_rank_that_fails_ends_the_others_of_its_network(cluster: Cluster) -> None:
    code = """
        def waits(rank):
            import time
            job = sm.job()
            if rank == 3:
                raise ValueError("too short")
            print(f"rank {rank} waits", flush=True)
            job.listen(5000).accept()

        try:
            sm.burst(waits, 4, network="job", memory="64MiB", timeout="10m", progress=False)
        except sm.MapError as error:
            failed = [(rank, getattr(one, "code", type(one).__name__), str(one))
                      for rank, one in error.errors]
            print(json.dumps([str(error), failed]))

        def fails(rank):
            if rank == 0:
                raise ValueError("alone")
            return rank

        done = sm.burst(fails, 4, memory="64MiB", on_error="return", progress=False)
        print(json.dumps([repr(one) for one in done]))
    """
    [said, failed], alone = cluster.python(code)  # type: ignore[misc]
    assert "first for item 3" in said and "too short" in said, said
    by_rank = {rank: (kind, text) for rank, kind, text in failed}
    assert by_rank[3] == ("ValueError", "too short")
    for rank in (0, 1, 2):
        kind, text = by_rank[rank]
        assert kind == "SM-0705", text
        assert "rank 3 on two failed first: `waits` raised ValueError: too short" in text
    assert alone == ["ValueError('alone')", "1", "2", "3"], "without a network each is for itself"
    wait_for("the functions to go", lambda: cluster.ranks() == [0, 0])


def test_a_host_with_another_token_is_refused(cluster: Cluster) -> None:
    token = join_token(cluster.snowmelt)
    # The identifier is right, the secret is not.
    parts = token.split("-")
    wrong = "-".join([*parts[:3], "0" * len(parts[3]), parts[4]])
    state = cluster.snowmelt.folder / "third"
    done = subprocess.run(
        [
            "nsenter",
            f"--net=/run/netns/{cluster.hosts[1]}",
            str(SNOWMELT),
            "--errors",
            "json",
            "node",
            "--control",
            "192.0.2.1:7070",
            "--address",
            "192.0.2.2:7071",
            "--name",
            "three",
            "--join",
            wrong,
        ],
        env=cluster.snowmelt.environ() | {"SNOWMELT_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "SM-0716" in done.stderr, done.stderr


def test_a_burst_that_does_not_fit_starts_nothing(snowmelt: Snowmelt) -> None:
    code = "import snowmelt as sm\nsm.burst(abs, 20, memory='1TiB')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=snowmelt.environ() | {"PYTHONPATH": str(PYTHON), "SNOWMELT_BIN": str(SNOWMELT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "SM-0701" in done.stderr, done.stderr


@pytest.mark.parametrize("example", ["allreduce", "messages"])
def test_the_examples_check_their_own_answers(snowmelt: Snowmelt, example: str) -> None:
    program = PYTHON.parent / "demo" / "bursts" / f"{example}.py"
    done = subprocess.run(
        [sys.executable, str(program), "6"],
        env=snowmelt.environ() | {"PYTHONPATH": str(PYTHON), "SNOWMELT_BIN": str(SNOWMELT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6 functions on 1 host(s) agree on "), done.stdout


NODE = """
import { readFileSync } from "node:fs";
import net from "node:net";

export async function handler(event) {
  const rank = Number(process.env.SNOWMELT_RANK);
  const peers = readFileSync(process.env.SNOWMELT_PEERS, "utf8").trim().split("\\n");
  const received = new Promise((resolve) => {
    const server = net.createServer((socket) => {
      socket.on("data", (data) => resolve([String(data), socket.remoteAddress]));
    });
    server.listen(5000, "0.0.0.0");
  });
  const told = new Promise((resolve) => {
    const tell = () => {
      const socket = net.connect(5000, `rank-${(rank + 1) % peers.length}.job`);
      socket.on("connect", () => socket.end(`${event.word} from ${rank}`, resolve));
      socket.on("error", () => setTimeout(tell, 20));
    };
    tell();
  });
  await told;
  const [word, from] = await received;
  console.log(`received ${word}`);
  return { word, by: peers.indexOf(from) };
}
"""


def test_programs_on_two_hosts_communicate(cluster: Cluster, tmp_path: Path) -> None:
    if not Path("/usr/bin/node").exists():
        pytest.skip("Node.js is not installed on this machine (scripts/setup e2e installs it)")
    (tmp_path / "handler.mjs").write_text(NODE)
    run = cluster.snowmelt.run
    run("fn", "deploy", "talks", tmp_path / "handler.mjs", "--memory", "128MiB").succeeded()
    done = run("fn", "burst", "talks", "-n", "4", "--network", "--data", '{"word": "hello"}')
    lines = [json.loads(line) for line in done.succeeded().out.splitlines()]
    assert [line["rank"] for line in lines] == [0, 1, 2, 3]
    for rank, line in enumerate(lines):
        left = (rank - 1) % 4
        assert line["result"] == {"word": f"hello from {left}", "by": left}, lines
        assert line["log"] == f"received hello from {left}\n"
    assert "4 functions on 2 hosts" in done.err, done.err

    events = tmp_path / "events.jsonl"
    events.write_text('{"word": "one"}\n\n{"word": "two"}\n')
    alone = run("fn", "burst", "talks", "--events", events, "--network", "--hosts", "1")
    words = [json.loads(line)["result"]["word"] for line in alone.succeeded().out.splitlines()]
    assert words == ["two from 1", "one from 0"] and "on 1 host" in alone.err

    # A root folder is on one host; the other need not have the same.
    image = ("--root", "/", "--memory", "128MiB")
    run("fn", "deploy", "imaged", tmp_path / "handler.mjs", *image).succeeded()
    run("fn", "burst", "imaged", "-n", "4").failed_with("SM-0206", "imaged", "two (ranks 2 to 3)")
    broken = tmp_path / "broken.mjs"
    broken.write_text("export function handler() { throw new TypeError('no way'); }")
    run("fn", "deploy", "broken", broken, "--memory", "128MiB").succeeded()
    failed = run("fn", "burst", "broken", "-n", "2")
    failed.failed_with("SM-0201", "no way")
    codes = [json.loads(line)["error"]["code"] for line in failed.out.splitlines()]
    assert codes == ["SM-0201"] * 2
    for name in ("talks", "imaged", "broken"):
        run("fn", "rm", name).succeeded()


def test_networks_are_listed_shown_and_traced(cluster: Cluster) -> None:
    code = """
        def serves(rank):
            job = sm.job()
            server = job.listen(5000)
            if rank == 0:
                job.connect(3, 5000)
                print("connected", flush=True)
            else:
                server.accept()
            import time
            time.sleep(90)

        sm.burst(serves, 4, network="job", memory="64MiB", progress=False)
    """
    program = subprocess.Popen(
        [sys.executable, "-c", "import snowmelt as sm\n" + textwrap.dedent(code)],
        env=cluster.snowmelt.environ() | {"PYTHONPATH": str(PYTHON), "SNOWMELT_BIN": str(SNOWMELT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def shown(*arguments: str) -> Any:
        return json.loads(cluster.snowmelt.run("net", *arguments, "-o", "json").out)

    try:
        wait_for("the functions", lambda: all(cluster.ranks()))
        [listed] = shown("ls")
        assert (listed["hosts"], listed["functions"]) == (["one", "two"], 4)
        job = listed["job"]
        parts = shown("show", job)["parts"]
        for part, other in zip(parts, reversed(parts), strict=True):
            network, theirs = part["network"], other["network"]["spec"]
            assert network["counters"]["moves"] == 0 and network["mtu"] == 1450
            assert network["enforcement"] in ("groups", "notifier")
            assert [(peer["host"], peer["range4"]) for peer in network["spec"]["peers"]] == [
                (theirs["host"], theirs["own4"])
            ]
            assert network["spec"]["vni"] == listed["overlay"]
        text = cluster.snowmelt.run("net", "show", job).succeeded().out
        assert "host two with ranks 2 to 3" in text and "enforced" in text, text

        # The socket listens only some time after the function was called.
        wait_for("rank 3 to listen", lambda: shown("trace", job, "0", "3:5000")["arrives"])
        traced = shown("trace", job, "0", "3:5000")
        steps = [(step["host"], step["check"]) for step in traced["steps"]]
        assert steps == [
            ("one", "sender"),
            ("one", "route"),
            ("one", "neighbour"),
            ("one", "forwarding entry"),
            ("one", "echo"),
            ("two", "overlay"),
            ("two", "address"),
            ("two", "port 5000"),
            ("two", "return: route"),
            ("two", "return: neighbour"),
            ("two", "return: forwarding entry"),
            ("two", "return: echo"),
        ], traced
        assert shown("trace", job, "2", "3:5000", "--ipv6")["steps"][0]["host"] == "two"
        silent = cluster.snowmelt.run("net", "trace", job, "0", "3:5001")
        assert silent.code == 1 and "port 5001" in silent.out, silent
        assert "nobody listens" in silent.out and "does not arrive" in silent.err, silent
        outside = cluster.snowmelt.run("net", "trace", job, "0", "192.0.2.1:7070")
        assert outside.code == 1 and "a route is missing" in outside.out, outside
        missing = cluster.snowmelt.run("net", "trace", job, "0", "9")
        missing.failed_with("SM-0605", "has no rank 9", "0 to 3")
        cluster.snowmelt.run("net", "show", "j-1").failed_with("SM-0605", "j-1")
    finally:
        program.kill()
        program.wait()
    wait_for("the end of the job", lambda: not shown("ls"))
