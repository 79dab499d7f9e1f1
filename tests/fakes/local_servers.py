"""Model servers as they are found on a developer's machine, on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["model_server"]


@contextmanager
def model_server(models: list[str], *, status: int = 200, silent: bool = False) -> Iterator[str]:
    """Serve `GET /v1/models`; yield the base URL. `silent` accepts and never answers."""
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if silent:
                release.wait(10)
                return
            listing = {"object": "list", "data": [{"id": name} for name in models]}
            body = json.dumps(listing if self.path == "/v1/models" else {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()
