"""Origins that read paths as programs in Python do: decoded as for WSGI, split as a URL, and
decoded, cut at parameters and normalized as a file server does."""
import posixpath
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse, urlsplit


def normalized(path):
    """Keeps a slash at the end: a rule for /a does not hold for /a/."""
    return posixpath.normpath(path) + ("/" if path.endswith("/") and path.strip("/") else "")


READERS = [
    lambda target: unquote(target.split("?")[0]),
    lambda target: urlsplit(target).path,
    lambda target: unquote(urlparse(target).path),
    lambda target: normalized(unquote(target.split("?")[0])),
]


def handler(path):
    if path.startswith("/api/v/"):
        return "v"
    return {"/login": "login", "/": "root"}.get(path, "other")


def server(port, read):
    class Origin(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # one packet for header and body

        def do_GET(self):
            try:
                status, body = 200, handler(read(self.path)).encode()
            except ValueError:
                status, body = 400, b"refused"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Origin)


servers = [server(int(port), read) for port, read in zip(sys.argv[1:], READERS)]
for s in servers[1:]:
    threading.Thread(target=s.serve_forever, daemon=True).start()
servers[0].serve_forever()
