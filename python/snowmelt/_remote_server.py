"""A platform on another host, over TLS.

Invariants: the token is sent to a server only after its certificate was verified. A host that is
cut off is an error within about fifteen seconds, also for a thread that waits for an answer.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

from . import _context
from ._http import Connected, problem
from .errors import Error, make

# How long a host may take to accept a connection, for the handshake, and for a small request.
ANSWERS_WITHIN_SECONDS = 10.0

# After how long without data the kernel asks the other host whether it is there, and how often; and
# how long it may leave that, or data, without an answer.
_IDLE_SECONDS, _UNANSWERED_SECONDS = 3, 10

# What the server speaks instead of HTTP on the connection of a lease.
_LEASE = "snowmelt"


class RemoteServer:
    """The address of a platform, the token of a tenant, and the authority of its certificate.

    It can be pickled for other processes: with the token that it was given, but not with one that
    is in `SNOWMELT_TOKEN` or of a context, which these processes need as well.
    """

    private = False
    is_private = False

    def __init__(
        self,
        url: str,
        token: str | None = None,
        authority: str | None = None,
        context: str | None = None,
    ) -> None:
        """`authority` is the PEM text of certificates to trust in place of those of the system.

        Raises `Error`.
        """
        self._host, self._port = _address(url)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        # In the header of requests.
        self.host = f"{shown}:{self._port}"
        self.path = f"https://{self.host}"
        self._token, self._authority = token, authority
        # The tenant of its context, for which requests are unless they name another.
        self.tenant: str | None = None
        self._context_name = context
        self._context_token: _context.ContextToken | None = None
        self._context: ssl.SSLContext | None = None
        self._has_answered = False

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteServer, (self.path, self._token, self._authority, self._context_name)

    def alive(self) -> bool:
        """True: nothing takes its place if it cannot be reached."""
        return True

    def headers(self) -> dict[str, str]:
        """Those that say for whom a request is. Raises `Error`."""
        token = self._token or self._of_context() or os.environ.get("SNOWMELT_TOKEN")
        if not token:
            raise make(
                "SM-0515",
                f"{self.path} needs the token of a tenant",
                hint='sm.connect(url, token="...") or SNOWMELT_TOKEN; `snowmelt token new TENANT` '
                "makes one on the platform's machine",
            )
        return {"Authorization": f"Bearer {token.strip()}"}

    def within(self, found: _context.Connection) -> RemoteServer:
        """This server, with the token and the tenant that its context has now."""
        if self._context_name is not None:
            self._context_token = _context.ContextToken(self._context_name, found)
        self.tenant = found.tenant
        return self

    def _of_context(self) -> str | None:
        if self._context_name is None:
            return None
        if self._context_token is None:
            found = _context.connection(self._context_name)
            if found is None or RemoteServer(found.url).path != self.path:
                message = f"the context `{self._context_name}` is not for {self.path}"
                raise make("SM-0110", message)
            self.within(found)
        assert self._context_token is not None
        return self._context_token.text()

    def connect(self) -> socket.socket:
        """A new connection. Raises `Error`."""
        try:
            address = (self._host, self._port)
            plain = socket.create_connection(address, ANSWERS_WITHIN_SECONDS)
        except TimeoutError:
            raise self._silent() from None
        except OSError as error:
            raise self.lost(error) from None
        try:
            _watch(plain)
            connected = self._tls().wrap_socket(plain, server_hostname=self._host)
            connected.settimeout(None)
            return connected
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise self._not_trusted(error) from None
        except TimeoutError:
            plain.close()
            raise self._silent() from None
        except (OSError, ValueError) as error:
            plain.close()
            raise self.lost(error) from None
        except BaseException:
            plain.close()
            raise

    def check_at_first_contact(self) -> None:
        """Returns once the server has accepted the token. Raises `Error`."""
        if not self._has_answered:
            self.check()

    def check(self) -> None:
        """Returns when the server answers a small request. Raises `Error`."""
        with self.connect() as connected:
            self._ask(connected, "/v1/udfs", 200, {"Connection": "close"})
        self._has_answered = True

    def lease(self) -> socket.socket:
        """A connection that has left HTTP, for one lease. Raises `Error`."""
        connected = self.connect()
        try:
            self._ask(connected, "/v1/leases", 101, {"Connection": "upgrade", "Upgrade": _LEASE})
            connected.settimeout(None)
        except BaseException:
            connected.close()
            raise
        return connected

    def _ask(
        self, connected: socket.socket, path: str, status: int, headers: dict[str, str]
    ) -> None:
        """Sends a request, whose answer must have this status."""
        connected.settimeout(ANSWERS_WITHIN_SECONDS)
        connection = Connected(connected, self.host)
        try:
            connection.request("GET", path, headers={**headers, **self.headers()})
            response = connection.getresponse()
            if response.status != status:
                raise problem(response)
        except TimeoutError:
            raise self._silent() from None
        except (OSError, http.client.HTTPException) as error:
            raise self.lost(error) from None

    def lost(self, error: BaseException | None) -> Error:
        """The error for a connection that failed or ended too soon."""
        reason = "the connection has ended" if error is None else error or type(error).__name__
        message = f"the platform at {self.path} cannot be reached: {reason}"
        return make("SM-0503", message, retryable=True)

    def stop(self) -> None:
        """It goes on without this process."""

    def detach(self) -> None:
        """A forked child makes connections of its own."""
        # Another thread of the parent may have been asking for a token.
        self._context_token = None

    def for_leases(self) -> RemoteServer:
        """What leases of this and other processes need."""
        return self

    def _silent(self) -> Error:
        return make(
            "SM-0511",
            f"the platform at {self.path} does not answer within {ANSWERS_WITHIN_SECONDS:.0f} s",
            retryable=True,
        )

    def _not_trusted(self, error: ssl.SSLCertVerificationError) -> Error:
        reason = getattr(error, "verify_message", "") or str(error)
        return make(
            "SM-0516",
            f"the certificate of {self.path} is not trusted: {reason}",
            hint="name the file of its authority: sm.connect(url, ca=FILE) or SNOWMELT_CA",
        )

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cadata=self._authority)
            except ssl.SSLError as error:
                raise make("SM-0110", f"ca= has no valid PEM certificate: {error}") from None
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        return self._context


def authority(file: str | os.PathLike[str] | None) -> str | None:
    """The text of a file of certificates. Raises `Error`."""
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the file of certificates {os.fspath(file)} cannot be read: {error}"
        raise make("SM-0110", message) from None


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urllib.parse.urlsplit("")
    if parts.scheme != "https" or not host or not port or parts.path.strip("/") or parts.username:
        raise make("SM-0110", f"{url!r} is not an address like https://platform.example:7443")
    return host, port


def _watch(connected: socket.socket) -> None:
    """Has the kernel find out that the other host has vanished, also while nothing is sent."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Linux has all of them.
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_SECONDS),
        ("TCP_KEEPINTVL", _IDLE_SECONDS),
        ("TCP_USER_TIMEOUT", _UNANSWERED_SECONDS * 1000),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
