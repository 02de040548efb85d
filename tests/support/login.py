"""A made-up service that renews logins, for clients that ask for it by https: a proxy on loopback that is whoever is asked for.

Its refresh tokens count once: a client that uses one again is logged out, as by the real services.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .model_server import _listen

HOSTS = ("platform.claude.com", "api.anthropic.com")


class TokenService:
    """`with` starts and ends it; `env` is what a client needs to reach it and to believe it."""

    def __init__(self, folder: Path, valid: str, netns: str | None = None) -> None:
        names = ",".join(f"DNS:{host}" for host in HOSTS)
        certificate, key = folder / "service.pem", folder / "service.key"
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests"]
        subprocess.run(
            [*request, "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.valid = valid
        self.renewed: list[str] = []
        """Each access token that was given, in order."""
        self.refused: list[str] = []
        """Each refresh token that was used when it no longer counted."""
        self.lock = threading.Lock()
        self._http = _Http(_listen(0, netns), self)
        port = self._http.server_address[1]
        self.env = {
            "HTTPS_PROXY": f"http://127.0.0.1:{port}",
            "NO_PROXY": "127.0.0.1",
            "NODE_EXTRA_CA_CERTS": str(certificate),
        }
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> TokenService:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def renew(self, token: str) -> dict[str, Any] | None:
        with self.lock:
            if token != self.valid:
                self.refused.append(token)
                return None
            access = f"access-{len(self.renewed) + 1}"
            self.valid = f"refresh-{len(self.renewed) + 1}"
            self.renewed.append(access)
            return {
                "access_token": access,
                "refresh_token": self.valid,
                "token_type": "Bearer",
                "expires_in": 28800,
                "scope": "user:inference user:profile",
            }


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, service: TokenService) -> None:
        super().__init__(("127.0.0.1", 0), _Talk, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.service = service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up when they end."""


class _Talk(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self.wfile.flush()
        self.connection = self.server.service.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb")
        self.close_connection = False

    def do_GET(self) -> None:
        self._answer(404, {"error": "not here"})

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if self.path != "/v1/oauth/token":
            return self.do_GET()
        given = self.server.service.renew(str(told.get("refresh_token")))
        self._answer(200 if given else 400, given or {"error": "invalid_grant"})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
