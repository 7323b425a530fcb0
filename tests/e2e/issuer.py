"""An issuer of tokens (OpenID Connect) over TLS, with logins by the device flow.

The standard library serves, and openssl signs. A test approves logins in the place of a person,
takes keys away, stops the issuer, and has tokens that no issuer would give.
"""

import base64
import json
import secrets
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def encoded(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def openssl(*arguments: object, given: bytes = b"") -> bytes:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], input=given, check=True, capture_output=True
    )
    return done.stdout


class Issuer:
    """An issuer at an address, with an RSA key."""

    def __init__(self, folder: Path, certificate: Path, key: Path) -> None:
        self.folder = folder
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        # How often each path was asked for, and when the last polls of logins were.
        self.requests: Counter[str] = Counter()
        self.polls: list[float] = []
        # The seconds that tokens last.
        self.lasts = 300
        # Device codes with the answers to their next polls, and user codes with device codes.
        self.waiting: dict[str, list[str]] = {}
        self.codes: dict[str, str] = {}
        # Claims by refresh token; refresh tokens that were replaced, and those of them used again.
        self.logins: dict[str, dict[str, Any]] = {}
        self.replaced: set[str] = set()
        self.thefts = 0
        self.claims: dict[str, Any] = {"sub": "al", "groups": ["acme-developers"]}
        self.kid = ""
        self.rotate()
        self.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests[self.path] += 1
                self._answer(*issuer.document(self.path))

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.requests[self.path] += 1
                self._answer(*issuer.form(self.path, dict(urllib.parse.parse_qsl(text))))

            def _answer(self, status: int, answer: dict[str, Any]) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        server.daemon_threads = True
        server.socket = self._tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._server, self._port = server, server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def rotate(self) -> None:
        """Takes a new key in the place of the old one."""
        self.kid = secrets.token_hex(4)
        self._key = self.folder / f"{self.kid}.key"
        openssl("genpkey", "-algorithm", "RSA", "-out", self._key)

    def public(self) -> dict[str, str]:
        shown = openssl("rsa", "-in", self._key, "-noout", "-modulus").decode()
        n = encoded(bytes.fromhex(shown.strip().removeprefix("Modulus=")))
        return {"kty": "RSA", "kid": self.kid, "use": "sig", "n": n, "e": "AQAB"}

    def document(self, path: str) -> tuple[int, dict[str, Any]]:
        if path == "/keys":
            return 200, {"keys": [self.public()]}
        names = ("token_endpoint", "device_authorization_endpoint", "revocation_endpoint")
        if path == "/.well-known/openid-configuration":
            places = {name: f"{self.url}/{name}" for name in names}
            return 200, {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **places}
        return 404, {}

    def form(self, path: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if fields.get("client_id") != "snowmelt-cli":
            return 401, {"error": "invalid_client"}
        if path == "/device_authorization_endpoint":
            device, user = secrets.token_hex(16), secrets.token_hex(3).upper()
            self.waiting[device] = ["authorization_pending", "slow_down"]
            self.codes[user] = device
            page = f"{self.url}/device"
            return 200, {
                "device_code": device,
                "user_code": user,
                "verification_uri": page,
                "expires_in": 300,
                "interval": 1,
            }
        if path == "/revocation_endpoint":
            self.logins.pop(fields["token"], None)
            return 200, {}
        if fields["grant_type"] == DEVICE_GRANT:
            self.polls.append(time.monotonic())
            answers = self.waiting[fields["device_code"]]
            answer = answers.pop(0) if answers else "authorization_pending"
            return (200, self._tokens()) if answer == "approved" else (400, {"error": answer})
        refresh = fields["refresh_token"]
        if refresh in self.replaced:
            self.thefts += 1
        if self.logins.pop(refresh, None) is None:
            return 400, {"error": "invalid_grant", "error_description": "the session has ended"}
        self.replaced.add(refresh)
        return 200, self._tokens()

    def _tokens(self) -> dict[str, Any]:
        refresh = secrets.token_hex(16)
        self.logins[refresh] = self.claims
        return {
            "access_token": self.token(),
            "token_type": "Bearer",
            "expires_in": self.lasts,
            "refresh_token": refresh,
        }

    def decide(self, user_code: str, answer: str = "approved") -> None:
        """What a person does on the page."""
        self.waiting[self.codes[user_code]].append(answer)

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token with this key, of claims some of which are others; `None` leaves one out."""
        now = int(time.time())
        whole = {
            "iss": self.url,
            "aud": "snowmelt",
            "iat": now,
            "exp": now + self.lasts,
            **self.claims,
            **claims,
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        head = {"alg": "RS256", "kid": self.kid, "typ": "at+jwt"} | (header or {})
        signed = f"{encoded(head)}.{encoded(whole)}"
        signature = openssl("dgst", "-sha256", "-sign", self._key, given=signed.encode())
        return f"{signed}.{encoded(signature)}"


@contextmanager
def issuing(folder: Path, certificate: Path, key: Path) -> Iterator[Issuer]:
    folder.mkdir(exist_ok=True)
    issuer = Issuer(folder, certificate, key)
    try:
        yield issuer
    finally:
        issuer.stop()
