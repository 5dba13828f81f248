"""A Qdrant server of the REST endpoints that hivekeep uses, over the local mode of Qdrant's own Python client.

The client's models, which are made from Qdrant's published API, read each request, and its engine answers: so
neither what is asked nor what is answered is hivekeep's own idea of it. Prints its URL, and ends with its
standard input.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from qdrant_client import QdrantClient
from qdrant_client.http import models

client = QdrantClient(":memory:")
lock = threading.Lock()
key = sys.argv[1]


def plain(answer):
    if isinstance(answer, list):
        return [plain(one) for one in answer]
    return answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer


def collection(method, name, body):
    if method == "PUT":
        asked = models.CreateCollection(**body)
        return client.create_collection(
            name, vectors_config=asked.vectors, sparse_vectors_config=asked.sparse_vectors
        )
    if method == "DELETE":
        return client.collection_exists(name) and client.delete_collection(name)
    return client.get_collection(name)


def index(name, body):
    asked = models.CreateFieldIndex(**body)
    return client.create_payload_index(name, asked.field_name, asked.field_schema)


def count(name, body):
    asked = models.CountRequest(**body)
    return client.count(name, count_filter=asked.filter, exact=asked.exact)


def batch(name, body):
    return client.batch_update_points(name, models.UpdateOperations(**body).operations)


def scroll(name, body):
    asked = models.ScrollRequest(**body)
    points, offset = client.scroll(
        name,
        scroll_filter=asked.filter,
        limit=asked.limit,
        offset=asked.offset,
        with_payload=asked.with_payload,
        with_vectors=False,
    )
    return {"points": plain(points), "next_page_offset": offset}


def query(name, body):
    asked = models.QueryRequest(**body)
    return client.query_points(
        name,
        query=asked.query,
        using=asked.using,
        query_filter=asked.filter,
        limit=asked.limit,
        with_payload=asked.with_payload,
    )


POINTS = {"count": count, "batch": batch, "scroll": scroll, "query": query}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def work(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        refuse = lambda status, why: self.answer(status, {"status": {"error": str(why)}})
        if self.headers.get("api-key") != key:
            return refuse(403, "Invalid API key")
        parts = self.path.split("?")[0].strip("/").split("/")
        name, rest = parts[1], "/".join(parts[2:])
        try:
            body = json.loads(body) if body else {}
            with lock:
                if self.command != "PUT" and self.command != "DELETE" or rest:
                    if not client.collection_exists(name):
                        return refuse(404, "Collection doesn't exist!")
                if rest == "":
                    result = collection(self.command, name, body)
                elif rest == "index":
                    result = index(name, body)
                else:
                    result = POINTS[rest.removeprefix("points/")](name, body)
        except Exception as error:  # Whatever it is, the client would have been told.
            return refuse(400, error)
        self.answer(200, {"result": plain(result), "status": "ok", "time": 0.0})

    do_GET = do_PUT = do_POST = do_DELETE = work


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()
