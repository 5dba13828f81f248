#!/usr/bin/python3
"""Serves Jupyter kernels over HTTP, on a port of the loopback: code comes in, lines of JSON go out as it runs.

    POST   /execute                {code, context_id?, language?, env_vars?}   lines of JSON until the code has ended
    GET    /contexts               [{id, language, cwd}]
    POST   /contexts               {id?, language?, cwd?}                      makes a context: a kernel of its own
    POST   /contexts/ID/restart    a new kernel; what runs and waits there ends with an error
    DELETE /contexts/ID
    GET    /health

The paths and the lines are those that E2B's code interpreter SDKs speak. A context runs one execution at a time, contexts
run beside each other. A client that goes away, or gives up waiting, interrupts what it asked for. A kernel that dies ends
its execution with an error and begins anew.
"""

import asyncio
import json
import os
import queue
import re
import sys
import time
import uuid

from jupyter_client import AsyncKernelManager
from tornado import httpserver, iostream, netutil, web

PORT = 49999
MAX_CONTEXTS = 16
# Executions of one context that wait for the one that runs.
MAX_WAITING = 64
MAX_BODY_BYTES = 16 << 20
# Longest text in one line of output; a longer one is told in several.
MAX_TEXT_CHARS = 1 << 20
# Longest representation of a result; a longer one is left out, and stderr says so.
MAX_FORMAT_CHARS = 8 << 20
# Time for a kernel to be ready, and for an interrupted execution to end before its kernel is replaced.
START_SECS = 60
INTERRUPT_SECS = 10
DEFAULT = "default"
LANGUAGES = ("python", "python3")

FORMATS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/x-table+json": "data",
}

# Run once in each kernel: a data frame is told as columns, too.
SETUP = """exec('''
from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

class TableFormatter(BaseFormatter):
    format_type = Unicode("application/x-table+json")
    print_method = ObjectName("_repr_table_")
    _return_type = dict

def columns(frame):
    import json
    told = frame.head(1000).items()
    return {str(name): json.loads(column.to_json(orient="values", date_format="iso")) for name, column in told}

formatters = shell.display_formatter.formatters
formatters["application/x-table+json"] = TableFormatter(parent=shell.display_formatter)
formatters["application/x-table+json"].for_type_by_name("pandas.core.frame", "DataFrame", columns)
''', {"shell": get_ipython()})"""
# Run around an execution that has variables of its own; leaves no name behind.
SET_ENV = """exec('''
import os
shell.env_before = {name: os.environ.get(name) for name in given}
os.environ.update(given)
''', {"shell": get_ipython(), "given": %r})"""
RESET_ENV = """exec('''
import os
for name, value in shell.env_before.items():
    os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
''', {"shell": get_ipython()})"""


class Refused(Exception):
    """An answer other than 200, with its status and reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Context:
    """A kernel, and the executions that wait for it."""

    def __init__(self, name, cwd):
        self.id, self.cwd = name, cwd
        self.manager = AsyncKernelManager(kernel_name="python3")
        self.client = None
        self.lock = asyncio.Lock()
        self.waiting = 0
        # Raised by what ends all executions of the kernel.
        self.generation = 0

    def described(self):
        return {"id": self.id, "language": "python", "cwd": self.cwd}

    async def start(self):
        plain = ["--InteractiveShell.colors=NoColor"]
        await self.manager.start_kernel(cwd=self.cwd, extra_arguments=plain)
        self.client = self.manager.client()
        self.client.start_channels()
        await self.ready()

    async def ready(self):
        await self.client.wait_for_ready(timeout=START_SECS)
        await self.quietly(SETUP)

    async def replace(self):
        """Begins anew with an empty kernel. The caller has the lock."""
        await self.manager.restart_kernel(now=True)
        await self.ready()

    async def restart(self):
        self.generation += 1
        async with self.lock:
            await self.replace()

    async def end(self):
        self.generation += 1
        async with self.lock:
            if self.client is not None:
                self.client.stop_channels()
            await self.manager.shutdown_kernel(now=True)

    async def reply(self, request, seconds):
        """The reply to a request, or None: it has not come within the time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                message = await self.client.get_shell_msg(timeout=left)
            except queue.Empty:
                return None
            if message["parent_header"].get("msg_id") == request:
                return message["content"]
        return None

    async def quietly(self, code):
        """Runs code of our own, which no count and no history tells of."""
        request = self.client.execute(code, silent=True, store_history=False)
        said = await self.reply(request, START_SECS)
        if said is None or said["status"] != "ok":
            raise RuntimeError(f"the kernel refused to be prepared: {said}")

    async def run(self, code, variables, tell, gone):
        """Runs code, telling each line as it comes, until it has ended; `gone` is set when nobody listens any more."""
        generation, self.waiting = self.generation, self.waiting + 1
        try:
            async with self.lock:
                if gone.is_set():
                    return
                if generation != self.generation:
                    return await tell(failure("KernelRestarted", "the context was restarted before this code ran"))
                if not await self.manager.is_alive():
                    await self.replace()
                    await tell(output("stderr", "the kernel of this context had ended; it begins anew\n"))
                await self.run_locked(code, variables, tell, gone, generation)
        finally:
            self.waiting -= 1

    async def run_locked(self, code, variables, tell, gone, generation):
        if variables:
            await self.quietly(SET_ENV % variables)
        request = self.client.execute(code, allow_stdin=False)
        interrupted, replied = None, False
        while True:
            if generation != self.generation:
                return await tell(failure("KernelRestarted", "the context was restarted, or removed, while this code ran"))
            if gone.is_set() and interrupted is None:
                interrupted = time.monotonic()
                await self.manager.interrupt_kernel()
            if interrupted is not None and time.monotonic() - interrupted > INTERRUPT_SECS:
                return await self.replace()
            try:
                message = await self.client.get_iopub_msg(timeout=0.25)
            except queue.Empty:
                if not await self.manager.is_alive():
                    await self.replace()
                    return await tell(failure("KernelDied", "the kernel ended while this code ran; the context begins anew"))
                # What is told at the end can be lost when there is more output than is read; the reply cannot.
                if replied:
                    break
                replied = await self.reply(request, 0.01) is not None
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            for line in lines(kind, content):
                await tell(line)
        if not replied:
            await self.reply(request, 1)
        if variables:
            await self.quietly(RESET_ENV)


def output(stream, text):
    return {"type": stream, "text": text, "timestamp": time.time_ns()}


def failure(name, value, traceback=""):
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def lines(kind, content):
    """Lines that a message of a kernel is told in."""
    if kind == "stream":
        text = content["text"]
        for at in range(0, len(text), MAX_TEXT_CHARS):
            yield output(content["name"], text[at : at + MAX_TEXT_CHARS])
    elif kind in ("display_data", "execute_result"):
        yield from result(content["data"], kind == "execute_result")
    elif kind == "error":
        yield failure(content["ename"], content["evalue"], "\n".join(content["traceback"]))
    elif kind == "execute_input":
        yield {"type": "number_of_executions", "execution_count": content["execution_count"]}


def result(data, is_main):
    line, extra = {"type": "result", "is_main_result": is_main}, {}
    for mime, value in data.items():
        size = len(value if isinstance(value, str) else json.dumps(value))
        if size > MAX_FORMAT_CHARS:
            yield output("stderr", f"{mime} of a result is left out: {size} characters\n")
        elif mime in FORMATS:
            line[FORMATS[mime]] = value
        else:
            extra[mime] = value
    text = line.get("text", "")
    # A text is told as itself, and not as it stands in a program.
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        line["text"] = text[1:-1]
    if extra:
        line["extra"] = extra
    yield line


class Contexts:
    """All contexts, by id. The default one is made when it is first asked for."""

    def __init__(self):
        self.all = {}
        self.starting = {}

    async def get(self, name):
        if name in self.starting:
            await asyncio.wait([self.starting[name]])
        if name in self.all:
            return self.all[name]
        if name != DEFAULT:
            raise Refused(404, f"there is no context `{name[:80]}`")
        return await self.make(DEFAULT, None)

    async def make(self, name, cwd):
        cwd = cwd or (os.getcwd() if name == DEFAULT else os.path.expanduser("~"))
        if name in self.all or name in self.starting:
            raise Refused(409, f"there is a context `{name}` already")
        if len(self.all) + len(self.starting) >= MAX_CONTEXTS:
            raise Refused(429, f"there are {MAX_CONTEXTS} contexts, and there may be no more: remove one")
        if not os.path.isdir(cwd):
            raise Refused(400, f"`{cwd[:200]}` is not a folder")
        context = Context(name, cwd)
        self.starting[name] = asyncio.ensure_future(context.start())
        try:
            await self.starting[name]
            self.all[name] = context
        except BaseException:
            if context.manager.has_kernel:
                await context.manager.shutdown_kernel(now=True)
            raise
        finally:
            del self.starting[name]
        return context

    async def remove(self, name):
        context = self.all.pop(name, None)
        if context is None:
            raise Refused(404, f"there is no context `{name[:80]}`")
        await context.end()


class Handler(web.RequestHandler):
    def initialize(self, contexts):
        self.contexts = contexts

    def asked(self):
        """The body, an object, whose language is one that there is."""
        try:
            asked = json.loads(self.request.body or b"{}")
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        if not isinstance(asked, dict):
            raise Refused(400, "the body is not an object")
        for name, value in asked.items():
            wanted = dict if name == "env_vars" else str
            if value is not None and not isinstance(value, wanted):
                raise Refused(400, f"`{name}` is not {'an object' if wanted is dict else 'a text'}")
        language = asked.get("language") or "python"
        if language.lower() not in LANGUAGES:
            raise Refused(400, f"the language `{language[:40]}` is not there: only python is")
        return asked

    def write_error(self, status_code, exc_info=None, **_):
        error = exc_info and exc_info[1]
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        if isinstance(error, Refused):
            self.set_status(error.status)
        self.finish(str(error) if error else str(status_code))

    def log_exception(self, kind, error, traceback):
        if not isinstance(error, (Refused, web.HTTPError)):
            super().log_exception(kind, error, traceback)


class Health(Handler):
    def get(self):
        self.write("OK")


class All(Handler):
    def get(self):
        self.write(json.dumps([context.described() for context in self.contexts.all.values()]))

    async def post(self):
        asked = self.asked()
        name = asked.get("id") or str(uuid.uuid4())
        if not re.fullmatch("[A-Za-z0-9_.-]{1,64}", name):
            raise Refused(400, "`id` is not 1 to 64 of letters, digits, `_`, `.` and `-`")
        self.write((await self.contexts.make(name, asked.get("cwd"))).described())


class One(Handler):
    async def delete(self, name):
        await self.contexts.remove(name)
        self.set_status(204)


class Restart(Handler):
    async def post(self, name):
        await (await self.contexts.get(name)).restart()


class Execute(Handler):
    def initialize(self, contexts):
        super().initialize(contexts)
        self.gone = asyncio.Event()

    def on_connection_close(self):
        self.gone.set()

    async def post(self):
        asked = self.asked()
        variables = asked.get("env_vars") or {}
        if not all(isinstance(value, str) for value in variables.values()):
            raise Refused(400, "a value of `env_vars` is not a text")
        if any("=" in name or "\0" in name + value or not name for name, value in variables.items()):
            raise Refused(400, "a variable of `env_vars` is not valid")
        context = await self.contexts.get(asked.get("context_id") or DEFAULT)
        if context.waiting >= MAX_WAITING:
            raise Refused(429, f"{MAX_WAITING} executions wait for the context `{context.id}`")
        self.set_header("Content-Type", "application/x-ndjson")
        # Whoever waits for its turn is told at once that it was taken.
        await self.flush()
        await context.run(asked.get("code") or "", variables, self.tell, self.gone)

    async def tell(self, line):
        if not self.gone.is_set():
            try:
                self.write(json.dumps(line) + "\n")
                await self.flush()
            except iostream.StreamClosedError:
                self.gone.set()


async def main():
    contexts = Contexts()
    given = {"contexts": contexts}
    routes = [
        ("/health", Health, given),
        ("/execute", Execute, given),
        ("/contexts", All, given),
        ("/contexts/([^/]+)", One, given),
        ("/contexts/([^/]+)/restart", Restart, given),
    ]
    # Whoever comes second finds the port taken, and leaves it to the first.
    sockets = netutil.bind_sockets(PORT, "127.0.0.1")
    httpserver.HTTPServer(web.Application(routes, log_function=lambda handler: None), max_body_size=MAX_BODY_BYTES).add_sockets(sockets)
    # Who started this waits for the line.
    print("listening", flush=True)
    # The first execution finds its kernel there.
    await contexts.get(DEFAULT)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except OSError as error:
        sys.exit(f"port {PORT}: {error}")
