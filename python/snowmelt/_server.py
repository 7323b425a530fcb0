"""The platform that this process uses: one of another host, a running server, or a private one that
it starts.

Invariant: a private server never outlives this process: it exits when its standard input reaches
end of file, and only this process holds the other end of that pipe.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO

from . import _binary, _context
from ._remote_server import RemoteServer, authority
from .errors import Error, make

_EXIT_SECONDS = 10.0

# How long a server may take for what it knows, as on the command line. One that is busy answers;
# one whose process is stopped does not.
ANSWERS_WITHIN_SECONDS = 10.0

# How long to wait for a place among a server's connections before the next attempt.
_CONNECTS_AGAIN_SECONDS = 0.02

_SMALL_REQUEST = b"GET /v1/figures HTTP/1.1\r\nHost: snowmelt\r\nConnection: close\r\n\r\n"


class Server:
    """A platform's socket, and its process if it is private."""

    # In the header of requests.
    host = "localhost"

    def __init__(
        self, path: str, process: subprocess.Popen[bytes] | None, log: IO[bytes] | None
    ) -> None:
        self.path = path
        self._process, self._log = process, log
        # A private server has said where it listens.
        self._has_answered = process is not None

    @property
    def private(self) -> bool:
        """True for a server that ends with this process."""
        return self._process is not None

    def headers(self) -> dict[str, str]:
        """None: the kernel says for whom a request is."""
        return {}

    def for_leases(self) -> Server:
        """What leases of this and other processes need."""
        return Server(self.path, None, None)

    def alive(self) -> bool:
        """False once a private server's process has ended, or if the socket has no server."""
        if self._process is not None:
            return self._process.poll() is None
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.setblocking(False)
            connected.connect(self.path)
        except BlockingIOError:
            # It has not accepted the connections before this one yet.
            return True
        except OSError:
            return False
        finally:
            connected.close()
        return True

    def connect(self) -> socket.socket:
        """A new connection. Raises `PlatformError`."""
        deadline = time.monotonic() + ANSWERS_WITHIN_SECONDS
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.setblocking(False)
            while not _connects(connected, self.path):
                if time.monotonic() > deadline:
                    raise self._silent()
                time.sleep(_CONNECTS_AGAIN_SECONDS)
            connected.setblocking(True)
        except OSError as error:
            connected.close()
            raise self.lost(error) from None
        except BaseException:
            connected.close()
            raise
        return connected

    def check_at_first_contact(self) -> None:
        """Returns once the server has answered anything. Raises `PlatformError`."""
        if not self._has_answered:
            self.check()
            self._has_answered = True

    def check(self) -> None:
        """Returns when the server answers a small request. Raises `PlatformError`."""
        with self.connect() as connected:
            connected.settimeout(ANSWERS_WITHIN_SECONDS)
            try:
                connected.sendall(_SMALL_REQUEST)
                connected.recv(1)
            except TimeoutError:
                raise self._silent() from None
            except OSError as error:
                raise self.lost(error) from None

    def _silent(self) -> Error:
        return make(
            "SM-0511",
            f"the server at {self.path} does not answer within {ANSWERS_WITHIN_SECONDS:.0f} s",
            hint="it is stopped or hangs: `kill -CONT` lets a stopped one go on, `kill -9` ends "
            "it, and `snowmelt up` starts another",
        )

    def lost(self, error: BaseException) -> Error:
        """The error for a connection that failed or ended too soon."""
        message = f"the server at {self.path} cannot be reached: {error or type(error).__name__}"
        if self._process is not None and self._process.poll() is not None:
            message = "the private server has ended"
        return make("SM-0503", message, excerpt=self.log_tail())

    @property
    def is_private(self) -> bool:
        """Whether it was started by this process, and ends with it."""
        return self._process is not None

    def stop(self) -> None:
        """Makes a private server clean up and exit, and waits for it."""
        if self._process is None:
            return
        _close(self._process.stdin)
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _close(self._process.stdout)
        _close(self._log)

    def detach(self) -> None:
        """In a forked child: closes the pipe, so that only the parent holds its end."""
        if self._process is not None:
            _close(self._process.stdin)
            _close(self._process.stdout)
            # Only the parent can wait for the process.
            self._process.returncode = 0

    def log_tail(self) -> list[str] | None:
        """The last lines of a private server's log."""
        if self._log is None:
            return None
        try:
            return (
                os.pread(self._log.fileno(), 1 << 16, 0).decode(errors="replace").splitlines()[-10:]
            )
        except (OSError, ValueError):
            return None


def _connects(connecting: socket.socket, path: str) -> bool:
    """False if the server has not accepted the connections before this one yet."""
    try:
        connecting.connect(path)
    except BlockingIOError:
        return False
    return True


def _close(stream: IO[bytes] | None) -> None:
    try:
        if stream is not None:
            stream.close()
    except OSError:
        pass


_current: Server | RemoteServer | None = None
# The one that the program named.
_named: RemoteServer | None = None
# Whether the program named the one of this machine, whatever the current context is.
_is_local = False
_lock = threading.Lock()


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    context: str | None = None,
) -> None:
    """Uses the platform of another host from now on, at an address like
    `https://platform.example:7443`, for the tenant of the token; with `None`, again the one of this
    machine, or of the current context. Without `token=` that of `SNOWMELT_TOKEN` is sent, and
    without `ca=`, the file of the authority of its certificate, the system's authorities are
    trusted.

    `context=` names a platform as `snowmelt context ls` does, with its address, certificates and
    login; `"local"` is the one of this machine.

    Raises `Error` if it cannot be reached or does not accept the token.
    """
    global _current, _named, _is_local
    named = None
    if context is not None:
        if url is not None or token is not None or ca is not None:
            raise make("SM-0110", "sm.connect takes a context, or an address with token= and ca=")
        named = _of_context(context)
    elif url is not None:
        named = RemoteServer(url, token, authority(ca))
    if named is not None:
        named.check()
    with _lock:
        before, _current, _named = _current, None, named
        _is_local = context is not None and named is None
    if before is not None:
        before.stop()


def current() -> Server | RemoteServer:
    """The platform of this process, found or started at the first call. Raises `PlatformError`."""
    global _current
    with _lock:
        if _current is None or not _current.alive():
            _current = _named or _of_settings() or _running() or _start()
        server = _current
    # Not under the lock: other threads need not wait for this one's time to be over first.
    server.check_at_first_contact()
    return server


def _of_settings() -> RemoteServer | None:
    """The platform of variables and contexts, in the order in which commands choose theirs."""
    if _is_local:
        return None
    url = os.environ.get("SNOWMELT_URL")
    if url and not os.environ.get("SNOWMELT_CONTEXT"):
        return RemoteServer(url, None, authority(os.environ.get("SNOWMELT_CA") or None))
    return _of_context(None) if _context.is_configured() else None


def _of_context(name: str | None) -> RemoteServer | None:
    found = _context.connection(name)
    if found is None:
        return None
    ca = authority(found.ca)
    if found.context is None:
        # A key, which the configuration names.
        return RemoteServer(found.url, found.token, ca)
    return RemoteServer(found.url, None, ca, found.context).within(found)


def _running() -> Server | None:
    named = os.environ.get("SNOWMELT_SOCKET")
    server = Server(named or os.path.join(_state_folder(), "snowmelt.sock"), None, None)
    # A server named by the user is never replaced by a private one.
    return server if named or server.alive() else None


def _state_folder() -> str:
    if state := os.environ.get("SNOWMELT_STATE"):
        return state
    if os.geteuid() == 0:
        return "/var/lib/snowmelt"
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "snowmelt")


def _start() -> Server:
    log = tempfile.TemporaryFile(prefix="snowmelt-server-")
    process = subprocess.Popen(
        [_binary.find(), "serve", "--private"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        # A pickle contains byte code: the platform must use this Python.
        env={"SNOWMELT_PYTHON": sys.executable, **os.environ},
        # Ctrl-C must reach this process only, which cancels a query by closing its connection.
        start_new_session=True,
    )
    server = Server("(starting)", process, log)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        server.path = json.loads(line)["socket"]
    except (ValueError, KeyError, TypeError):
        failed = _start_failure(server, process)
        server.stop()
        raise failed from None
    return server


def _start_failure(server: Server, process: subprocess.Popen[bytes]) -> Error:
    _close(process.stdin)
    try:
        code = process.wait(_EXIT_SECONDS)
        message = f"the private server did not start (exit code {code})"
    except subprocess.TimeoutExpired:
        message = "the private server did not report its socket"
    return make("SM-0503", message, excerpt=server.log_tail(), hint="see `snowmelt doctor`")


def _stop_at_exit() -> None:
    global _current
    server, _current = _current, None
    if server is not None:
        server.stop()


def _after_fork_in_child() -> None:
    global _current, _lock
    _lock = threading.Lock()
    server, _current = _current, None
    if server is not None:
        server.detach()


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
