"""A server with the few routes of the Hugging Face Hub that uploading and downloading small files takes."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Files = dict[str, bytes]


class FakeHub(ThreadingHTTPServer):
    """Keeps the commits of each repository, the newest last. Requests need the token."""

    daemon_threads = True

    def __init__(self, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.repositories: dict[str, dict[str, Files]] = {}
        self.created: list[dict[str, Any]] = []
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def files(self, repo_id: str, revision: str = "main") -> Files:
        commits = self.repositories.get(repo_id, {})
        return list(commits.values())[-1] if revision == "main" and commits else commits.get(revision, {})

    def commit(self, repo_id: str, files: Files) -> str:
        commits = self.repositories.setdefault(repo_id, {})
        oid = hashlib.sha1(f"{repo_id} {len(commits)}".encode()).hexdigest()
        commits[oid] = self.files(repo_id) | files
        return oid


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        path = self._noted()
        if path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif self.headers["Authorization"] != f"Bearer {self.server.token}":
            self._answer({"error": "Invalid credentials"}, 401)
        elif path == "/api/repos/create":
            asked = json.loads(text)
            self.server.created.append(asked)
            self._answer({"url": f"{self.server.address}/{asked.get('organization')}/{asked['name']}"})
        elif found := re.fullmatch(r"/api/models/(\w+/\w+)/preupload/main", path):
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(text)["files"]]
            self._answer({"files": [{**file, "shouldIgnore": False, "oid": None} for file in files]})
        elif found := re.fullmatch(r"/api/models/(\w+/\w+)/commit/main", path):
            lines = [json.loads(line) for line in text.splitlines()]
            added = [line["value"] for line in lines if line["key"] == "file"]
            files = {file["path"]: base64.b64decode(file["content"]) for file in added}
            oid = self.server.commit(found[1], files)
            self._answer({"commitUrl": f"{self.server.address}/{found[1]}/commit/{oid}", "commitOid": oid})
        else:
            self._answer({"error": f"no route {path}"}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        found = re.fullmatch(r"/(\w+/\w+)/resolve/(\w+)/([\w.]+)", self._noted())
        if found is None or self.headers["Authorization"] != f"Bearer {self.server.token}":
            self._answer({"error": "Repository not found"}, 401, {"X-Error-Code": "RepoNotFound"})
            return
        repo_id, revision, name = found.groups()
        files = self.server.files(repo_id, revision)
        if name not in files:
            self._answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        oid = next(oid for oid, kept in self.server.repositories[repo_id].items() if kept is files)
        tag = hashlib.sha1(files[name]).hexdigest()
        self._send(files[name], 200, {"X-Repo-Commit": oid, "ETag": f'"{tag}"'})

    def log_message(self, *args: object) -> None:
        """Nothing on the console."""

    def _noted(self) -> str:
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        return path

    def _answer(self, content: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(content).encode(), status, headers or {})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def fake_hub(token: str) -> Iterator[FakeHub]:
    """A running server."""
    server = FakeHub(token)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
