"""A model hub on this machine, with faults on demand, and an HTTP proxy that counts."""
import hashlib
import http.server
import json
import threading
import urllib.parse
import urllib.request


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=None, sent=None):
        """`sent`: closes the connection after so many bytes of the body."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if sent is None else body[:sent])
        if sent is not None:
            self.close_connection = True


class Server:
    """Serves `handler` on a free port; a context manager. `requests` holds (path, headers) of each request."""

    def __init__(self, handler):
        server = self
        self.requests = []

        class Handler(Quiet):
            def do_GET(self):
                server.requests.append((self.path, dict(self.headers)))
                handler(self)

            do_CONNECT = do_GET

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class Hub(Server):
    """Repository org/tiny at commit c0ffee. Weights are redirected to `cdn`, as the real hub does.

    faults: a list of callables (name, body) -> (body, sent); the first is used up by each download of weights.
    """

    def __init__(self, files, name="org/tiny", faults=(), token=None):
        self.files, self.name, self.faults, self.token = files, name, list(faults), token
        self.cdn = None
        super().__init__(self.handle)

    def listing(self):
        siblings = []
        for name, body in self.files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
            entry = {"rfilename": name, "size": len(body), "blobId": blob}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
            siblings.append(entry)
        return {"id": self.name, "sha": "c0ffee", "cardData": {"license": "mit"}, "siblings": siblings}

    def handle(self, request):
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}" and not path.startswith("/cdn/"):
            return request.reply(401, b"{}")
        if path == f"/api/models/{self.name}/revision/main":
            return request.reply(200, json.dumps(self.listing()).encode())
        prefix = f"/{self.name}/resolve/c0ffee/"
        name = path.split("/")[-1]
        if path.startswith(prefix) and name in self.files:
            if not name.endswith(".safetensors"):
                return request.reply(200, self.files[name])
            digest = hashlib.sha256(self.files[name]).hexdigest()
            return request.reply(302, b"", {"Location": f"{self.cdn or self.address}/cdn/{name}", "X-Linked-Etag": f'"{digest}"'})
        if path.startswith("/cdn/") and name in self.files:
            return self.weights(request, name)
        return request.reply(404, b"{}")

    def weights(self, request, name):
        body, sent = (self.faults.pop(0) if self.faults else lambda n, b: (b, None))(name, self.files[name])
        asked = request.headers.get("Range", "")
        if not asked.startswith("bytes="):
            return request.reply(200, body, sent=sent)
        start = int(asked[6:].split("-")[0])
        if start >= len(body):
            return request.reply(416)
        return request.reply(206, body[start:], {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}, sent)


class Proxy(Server):
    """Forwards whole addresses; hosts that end in .invalid lead to `target`."""

    def __init__(self, target):
        self.target = target
        super().__init__(self.handle)

    def handle(self, request):
        parts = urllib.parse.urlsplit(request.path)
        address = self.target + parts.path + (f"?{parts.query}" if parts.query else "")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
        try:
            with opener.open(urllib.request.Request(address)) as answer:
                return request.reply(answer.status, answer.read())
        except urllib.error.HTTPError as moved:
            kept = {k: v for k, v in moved.headers.items() if k.lower() in ("location", "x-linked-etag")}
            return request.reply(moved.code, moved.read(), kept)


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
