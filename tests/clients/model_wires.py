"""A provider of models by a script, in the four APIs that programs speak. It counts the answers that it gave whole.

A request that offers no tools has a text for an answer. Any other is answered by what the conversation has so far: with
the first step that it does not know the result of, a call of a tool, and when all are done with a text.
"""

import collections
import http.server
import json
import re
import threading

DONE = "The file is written."
SHELLS = ("exec_command", "shell_command", "shell", "bash", "Bash", "run_shell_command")


def events(names, *documents):
    """Pieces of a stream of events; by name where the API names them."""
    for document in documents:
        name = f"event: {document['type']}\n" if names else ""
        yield f"{name}data: {json.dumps(document)}\n\n".encode()


class Chat:
    """Chat completions of OpenAI."""

    def tools(self, body):
        return [tool["function"] for tool in body.get("tools", [])]

    def results(self, body):
        return sum(one["role"] == "tool" for one in body["messages"])

    def answer(self, body, nth, text, call):
        def chunk(delta, end=None):
            choice = {"index": 0, "delta": delta, "finish_reason": end}
            return {"id": f"c{nth}", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
                    "choices": [choice]}
        if call:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            said = {"tool_calls": [{"index": 0, "id": f"call_{nth}", "type": "function", "function": function}]}
        else:
            said = {"content": text}
        last = chunk({}, "tool_calls" if call else "stop")
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield from events(False, chunk({"role": "assistant", "content": ""}), chunk(said), last)
        yield from events(False, {**chunk({}), "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


class Responses:
    """Responses of OpenAI."""

    def tools(self, body):
        flat = []
        for tool in body.get("tools", []):
            # A namespace has its own list.
            flat += [{**one, "namespace": tool["name"]} for one in tool["tools"]] if "tools" in tool else [tool]
        # Others are the provider's own.
        return [tool for tool in flat if "name" in tool]

    def results(self, body):
        return sum(one.get("type") == "function_call_output" for one in body["input"])

    def answer(self, body, nth, text, call):
        base = {"id": f"r{nth}", "object": "response", "created_at": 1, "model": body["model"]}
        if call:
            item = {"type": "function_call", "id": f"fc_{nth}", "call_id": f"call_{nth}", "name": call[0],
                    "arguments": json.dumps(call[1]), "status": "completed"}
            if call[2]:
                item["namespace"] = call[2]
        else:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"type": "message", "id": f"m_{nth}", "role": "assistant", "status": "completed", "content": content}
        usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
        yield from events(
            True,
            {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed",
             "response": {**base, "status": "completed", "output": [item], "usage": usage}},
        )


class Messages:
    """Messages of Anthropic."""

    def tools(self, body):
        return body.get("tools", [])

    def results(self, body):
        blocks = [one["content"] for one in body["messages"] if isinstance(one["content"], list)]
        return sum(block["type"] == "tool_result" for content in blocks for block in content)

    def answer(self, body, nth, text, call):
        message = {"id": f"msg_{nth}", "type": "message", "role": "assistant", "model": body["model"],
                   "content": [], "stop_reason": None, "stop_sequence": None}
        if call:
            block = {"type": "tool_use", "id": f"toolu_{nth}", "name": call[0], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
        stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
        if not body.get("stream"):
            content = {**block, "input": call[1]} if call else {**block, "text": text}
            usage = {"input_tokens": 10, "output_tokens": 5}
            yield json.dumps({**message, **stop, "content": [content], "usage": usage}).encode()
            return
        yield from events(
            True,
            {"type": "message_start", "message": {**message, "usage": {"input_tokens": 10, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        )


class Gemini:
    """generateContent of Gemini."""

    def tools(self, body):
        return [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]

    def results(self, body):
        parts = [part for one in body["contents"] for part in one["parts"] if "functionResponse" in part]
        # A session that was loaded has some twice.
        return len({json.dumps(part["functionResponse"], sort_keys=True) for part in parts})

    def answer(self, body, nth, text, call):
        part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": text}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}

        def piece(parts, **more):
            candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
            return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
        if body["_stream"]:
            yield from events(False, piece([part]), piece([{"text": ""}], finishReason="STOP"))
        else:
            yield json.dumps(piece([part], finishReason="STOP")).encode()


class Provider(http.server.ThreadingHTTPServer):
    """See the module. `steps` are pairs of a name, or more, of a tool and its arguments."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.begin([], {})
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def begin(self, steps, holds):
        """Forgets all. `holds` says by the number of results how often an answer to that is held, and where."""
        self.steps, self.holds = steps, holds
        self.whole, self.asked, self.keys = collections.Counter(), 0, set()
        # Whether each whole answer was to a request with tools.
        self.main, self.held, self.trouble = [], threading.Semaphore(0), []

    def step(self, wire, body):
        tools = wire.tools(body)
        done = wire.results(body)
        if not tools or done >= len(self.steps):
            return (DONE if tools else "A title"), None
        names, arguments = self.steps[done]
        for tool in sorted(tools, key=lambda tool: tool["name"] not in names):
            # A program puts the server's name before ours.
            if any(tool["name"] == name or tool["name"].endswith(f"_{name}") for name in names):
                return None, (tool["name"], arguments(tool), tool.get("namespace"))
        self.trouble.append(f"none of {names} is offered: {[tool['name'] for tool in tools]}")
        return f"no {names}", None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def route(self):
        path, _, query = self.path.partition("?")
        for end, wire in (("/chat/completions", Chat()), ("/responses", Responses()), ("/messages", Messages())):
            if path.endswith(end):
                return wire, None
        found = re.fullmatch(r".*/models/[^/:]+:(stream)?[gG]enerateContent", path)
        return (Gemini(), found.group(1) is not None) if found else (None, None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        (wire, stream), server = self.route(), self.server
        if wire is None:
            server.trouble.append(self.path)
            return self.send_error(404)
        if stream is not None:
            body["_stream"] = stream
        with server.lock:
            server.keys.add(next((self.headers[name] for name in ("authorization", "x-api-key", "x-goog-api-key")
                                  if name in self.headers), None))
            server.asked += 1
            text, call = server.step(wire, body)
            nth, done = server.asked, wire.results(body)
            holds = server.holds.get(done, []) if wire.tools(body) else []
            where = holds.pop(0) if holds else None
        pieces = list(wire.answer(body, nth, text, call))
        if where == "before":
            return self.hold()
        self.send_response(200)
        events_or_one = "text/event-stream" if len(pieces) > 1 else "application/json"
        self.send_header("content-type", events_or_one)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for at, piece in enumerate(pieces):
            if where == "within" and at == len(pieces) // 2:
                return self.hold()
            self.piece(piece)
        self.piece(b"")
        with server.lock:
            # Programs write the same fields in another order when they repeat a request.
            server.whole[self.path + json.dumps(body, sort_keys=True)] += 1
            server.main.append(bool(wire.tools(body)))

    def piece(self, bytes_):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(bytes_), bytes_))
        self.wfile.flush()

    def hold(self):
        """Answers no more, and waits until whoever asked has gone."""
        self.server.held.release()
        self.close_connection = True
        try:
            while self.connection.recv(4096):
                pass
        except OSError:
            pass
