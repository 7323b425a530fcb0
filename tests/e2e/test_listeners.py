"""Programs that listen at all addresses, as usual, inside a job network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt
from programs import RUNTIMES, build_go
from test_bursts import PYTHON, Cluster, cluster

from common.paths import SNOWMELT

__all__ = ["cluster"]

METHODS = ["groups", "notifier"]

# `:8080` is a socket of both families. Each rank sends to its right neighbour by both families,
# over TCP and UDP.
GO = """
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"hello/snowmelt"
)

func lines(name string) []string {
	text, _ := os.ReadFile(os.Getenv(name))
	return strings.Fields(string(text))
}

func serve(heard chan<- string) error {
	server, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", ":8125")
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(connection.RemoteAddr().String())
			heard <- "tcp " + host
			connection.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(from.String())
			packets.WriteTo(buffer[:n], from)
			heard <- "udp " + host
		}
	}()
	return nil
}

func tell(peer string) error {
	for {
		connection, err := net.Dial("tcp", net.JoinHostPort(peer, "8080"))
		if err == nil {
			connection.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	connection, err := net.Dial("udp", net.JoinHostPort(peer, "8125"))
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprint(connection, "hello"); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 64))
	return err
}

func handler(_ context.Context, _ map[string]any) (any, error) {
	rank, _ := strconv.Atoi(os.Getenv("SNOWMELT_RANK"))
	if atStart != nil {
		return nil, atStart
	}
	heard := make(chan string)
	if err := serve(heard); err != nil {
		return nil, err
	}
	told := make(chan error, 2)
	for _, name := range []string{"SNOWMELT_PEERS", "SNOWMELT_PEERS6"} {
		peers := lines(name)
		go func() { told <- tell(peers[(rank+1)%len(peers)]) }()
	}
	found := map[string]bool{}
	for ended := 0; ended < 2 || len(found) < 4; {
		select {
		case err := <-told:
			if err != nil {
				return nil, err
			}
			ended++
		case one := <-heard:
			found[one] = true
		}
	}
	all := []string{}
	for one := range found {
		all = append(all, one)
	}
	own := []string{os.Getenv("SNOWMELT_ADDRESS"), os.Getenv("SNOWMELT_ADDRESS6")}
	return map[string]any{"own": own, "heard": all}, nil
}

var atStart error

func main() {
	// As servers do: the program has its address before it is executed.
	_, atStart = net.Listen("tcp", ":9090")
	snowmelt.Serve(handler)
}
"""

# gRPC listens at `[::]` with SO_REUSEPORT when `0.0.0.0` is given.
GRPC = """
def ring(rank):
    import threading
    from concurrent import futures
    import grpc
    job = sm.job()
    heard, all_heard = [], threading.Semaphore(0)

    def hear(request, context):
        heard.append(request.decode())
        all_heard.release()
        return b"%d" % rank

    server = grpc.server(futures.ThreadPoolExecutor(2))
    methods = {"tell": grpc.unary_unary_rpc_method_handler(hear)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ring", methods),))
    assert server.add_insecure_port("0.0.0.0:5000") == 5000
    server.start()
    right = (rank + 1) % job.size
    answers = []
    for target in (f"ipv4:{job.peers[right]}:5000", f"ipv6:[{job.peers6[right]}]:5000"):
        with grpc.insecure_channel(target) as channel:
            tell = channel.unary_unary("/ring/tell")
            answers.append(int(tell(b"%d" % rank, wait_for_ready=True, timeout=60)))
    [all_heard.acquire() for _ in answers]
    # A received request may not be answered yet: wait for that before the end.
    server.stop(60).wait()
    return heard, answers

print(json.dumps(sm.burst(ring, 3, network="job", packages=["grpcio==1.76.0"], memory="256MiB",
                          progress=False)))
"""

# Ray's processes find the packages by PYTHONPATH, which every function has. All of them end with
# the function that started them, so no rank returns before the answer arrived.
RAY = """
@sm.function(packages=["ray==2.60.0"], memory="768MiB", pids=500, timeout="3m")
def node(rank):
    import subprocess, sys
    job = sm.job()
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats"]
    ray += ["--node-ip-address", job.address, "--num-cpus", "1"]
    ray += ["--object-store-memory", "80000000", "--resources", json.dumps({f"rank-{rank}": 1})]

    def start(*options):
        done = subprocess.run([*ray, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    if rank > 0:
        head = job.connect(0, 5000)
        head.settimeout(None)
        head.recv(1)
        start("--address", f"{job.peers[0]}:6379")
        head.sendall(b"joined")
        return head.recv(16).decode()
    # Before the head starts, which may take long: the others wait in the backlog.
    server = job.listen(5000)
    start("--head", "--port", "6379", "--include-dashboard", "false")
    others = [server.accept()[0] for _ in range(1, job.size)]
    [other.sendall(b"!") for other in others]
    [other.recv(16) for other in others]
    import ray
    ray.init(address=f"{job.address}:6379", _node_ip_address=job.address, logging_level="error")

    @ray.remote(resources={"rank-1": 1})
    def there(number):
        return ray.util.get_node_ip_address(), number * 2

    answer = ray.get(there.remote(21))
    alive = sorted(found["NodeManagerAddress"] for found in ray.nodes() if found["Alive"])
    [other.sendall(b"answered") for other in others]
    return [job.peers, alive, list(answer)]

print(json.dumps(list(sm.burst(node, 2, network="job", progress=False))))
"""


@pytest.mark.parametrize("cluster", METHODS, indirect=True)
def test_go_listens_at_all_addresses_of_both_families(cluster: Cluster, tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("Go is not installed on this machine (scripts/setup e2e installs it)")
    source = tmp_path / "go"
    shutil.copytree(RUNTIMES / "go", source)
    (source / "main.go").write_text(GO)
    build_go(source)
    run = cluster.snowmelt.run
    handler = (source / "handler", "--runtime", "go", "--memory", "128MiB")
    run("fn", "deploy", "listens", *handler).succeeded()
    try:
        done = run("fn", "burst", "listens", "-n", "4", "--network").succeeded()
    finally:
        run("fn", "rm", "listens")
    assert "4 functions on 2 hosts" in done.err, done.err
    ends = [json.loads(line)["result"] for line in done.out.splitlines()]
    for rank, end in enumerate(ends):
        left = ends[rank - 1]["own"]
        assert sorted(end["heard"]) == sorted(f"{by} {at}" for by in ("tcp", "udp") for at in left)


def burst(snowmelt: Snowmelt, method: str, code: str) -> Any:
    """The output of a program."""
    done = subprocess.run(
        [sys.executable, "-c", "import json\nimport snowmelt as sm\n" + code],
        env=snowmelt.environ()
        | {
            "SNOWMELT_NETWORK_ENFORCEMENT": method,
            "PYTHONPATH": str(PYTHON),
            "SNOWMELT_BIN": str(SNOWMELT),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("method", METHODS)
def test_ray_runs_a_function_on_another_rank(snowmelt: Snowmelt, method: str) -> None:
    [peers, alive, answer], other = burst(snowmelt, method, RAY)
    assert other == "answered"
    assert alive == sorted(peers) and len(peers) == 2
    assert answer == [peers[1], 42]


@pytest.mark.parametrize("method", METHODS)
def test_grpc_listens_at_all_addresses(alone: Snowmelt, method: str) -> None:
    for rank, (heard, answers) in enumerate(burst(alone, method, GRPC)):
        assert heard == [str((rank - 1) % 3)] * 2
        assert answers == [(rank + 1) % 3] * 2
