"""Runs agents of others by the Agent Client Protocol, each in a sandbox without a network, over a scripted model.

usage: drive_programs_acp.py HIVEKEEP IMAGE PROGRAM...

Each writes files by its own shell tool, by a tool of ours, and by its own file tool, which leaves that to the daemon.
It asks a person first. The daemon is killed in an answer, while a person is asked, and in a tool; an approval is good
once, each tool works once, and no whole answer is asked for twice. A second run is of a program that is killed itself:
it goes on with its session, asks again, and is refused. The environment is that of `drive_programs.py`.
"""

import json
import os
import signal
import subprocess
import time

from drive_programs import COMMAND, KEY, OURS, expect, machines, main, manifest, search, shell, until
from model_wires import DONE, SHELLS

# What a person is asked about, by the kind that the program gives it. OpenCode does not ask about tools of servers.
ASKS = {
    "opencode-acp": ["execute", "edit"],
    "qwen-acp": ["execute", "other", "edit"],
    "gemini-acp": ["execute", "other", "edit"],
}
THEIRS = "by a file tool"


def command(program):
    """Arguments of a program's shell tool. Gemini's file tool takes files that are there alone."""
    more = "; touch theirs.txt" if program == "gemini-acp" else ""
    return lambda tool: {name: value + more if value == COMMAND else value for name, value in shell(tool).items()}


def write(tool):
    """Arguments of a program's tool that writes a file."""
    fields = json.dumps(tool.get("parameters") or tool.get("parametersJsonSchema"))
    return {"filePath" if '"filePath"' in fields else "file_path": "/workspace/theirs.txt", "content": THEIRS}


WRITE = (("write", "write_file"), write)


class Run:
    """An execution of a program."""

    def __init__(self, daemon, provider, program, steps, holds):
        self.daemon, self.provider, self.program = daemon, provider, program
        provider.begin(steps, holds)
        self.id = daemon.call("aegis.task.execute", agent_id=program)["execution_id"]

    def command(self, *words):
        return subprocess.run([self.daemon.hivekeep, *words], capture_output=True, text=True)

    def about(self, tool, **more):
        return self.daemon.call(f"aegis.task.{tool}", execution_id=self.id, **more)

    def events(self, kind):
        events = self.about("logs", limit=200)["events"]
        return [event["payload"] for event in events if event["event_type"] == kind]

    def file(self, path):
        """Content of a file of the machine; `None` if there is none."""
        words = json.dumps({"execution_id": self.id, "path": path})
        ran = self.command("call", "aegis.execution.file", "--json", words)
        expect(ran.returncode == 0 or "not_found" in ran.stderr, ran)
        return json.loads(ran.stdout)["content"] if ran.returncode == 0 else None

    def runs(self):
        return self.about("status")["status"] == "running"

    def until(self, what, look):
        def looked():
            found = look()
            expect(found or self.runs(), f"{what}: it has ended, {self.about('status')}, {self.provider.trouble}")
            return found
        until(f"{self.program}: {what}", looked)

    def held(self, what):
        self.until(what, lambda: self.provider.held.acquire(timeout=1))

    def pending(self):
        return json.loads(self.command("approvals", "--json").stdout or "[]")

    def asked(self, before=None):
        """The one thing that a person is asked."""
        self.until("nobody is asked", lambda: [one for one in self.pending() if one["id"] != before])
        asked = self.pending()
        expect(len(asked) == 1 and asked[0]["tool"] == "agent_permit", asked)
        return asked[0]

    def decide(self, how, asked):
        return self.command("approvals", how, asked["id"]).returncode == 0


def works(daemon, provider, program):
    steps = [(SHELLS, command(program)), (("fs_write",), lambda _: OURS), WRITE]
    run = Run(daemon, provider, program, steps, {0: ["before", "within"], 1: ["within"], 3: ["before"]})
    run.held("it asks its model")
    processes = search(KEY)
    expect(processes > 1, "the program is not among the processes that were looked at")
    daemon.kill()
    run.held("it asks its model again")
    expect(not run.pending(), "it acts by an answer that is not whole")
    daemon.kill()
    first = run.asked()
    expect(COMMAND in first["input"], first)
    daemon.kill()
    again = run.asked(first["id"])
    expect(run.file("made.txt") is None, "its tool works before it may")
    expect(not run.decide("approve", first), "an approval of a daemon that is dead")
    expect(run.decide("approve", again), "it cannot be approved")
    expect(not run.decide("approve", again), "it is approved twice")
    run.until("its tool runs", lambda: run.file("made.txt"))
    daemon.kill()
    run.held("it tells the result")
    daemon.kill()
    asked = [again]

    def approved():
        asked.extend(one for one in run.pending() if run.decide("approve", one))
        return provider.held.acquire(timeout=0.1)
    run.until("it has written", approved)
    answered = ("program_asked", "program_told")
    run.until("it is answered", lambda: len({len(run.events(kind)) for kind in answered}) == 1)
    daemon.kill()
    until("it ends", lambda: not run.runs())
    ended = run.about("status")
    expect(ended["status"] == "completed" and not provider.trouble, (ended, provider.trouble))
    expect(ended["last_output"] == DONE, ended)
    until("its session ends", lambda: run.events("session_closed"))
    for path, content in ("made.txt", "once\n"), ("ours.txt", OURS["content"]), ("theirs.txt", THEIRS):
        expect(run.file(path) == content, f"{path}: {run.file(path)}")
    kinds = [json.loads(one["input"])["kind"] for one in asked]
    expect(kinds == ASKS[program], kinds)
    methods = [one["method"] for one in run.events("program_asked")]
    expect(methods.count("session/request_permission") == len(asked), methods)
    expect(methods.count("fs/write_text_file") == 1, methods)
    expect(not any(one["error"] for one in run.events("program_told")), run.events("program_told"))
    expect(len(run.events("tool_invocation_completed")) == 1, "more than one call")
    expect(len(run.events("program_started")) == 1, "another process")
    expect(set(provider.whole.values()) == {1}, f"asked twice: {list(provider.whole.values())}")
    expect(provider.keys == {KEY} or provider.keys == {f"Bearer {KEY}"}, provider.keys)
    expect(ended["model_requests"]["asked"] == len(provider.whole) + 4, ended)
    run.about("remove")
    return processes


def is_refused(daemon, provider, program):
    run = Run(daemon, provider, program, [(SHELLS, command(program)), WRITE], {1: ["before"]})
    expect(run.decide("approve", run.asked()), "it cannot be approved")
    run.held("it tells the result")
    # Gemini writes over a session that it loads in the minute in which that began.
    began = time.gmtime().tm_min
    until("a minute", lambda: program != "gemini-acp" or time.gmtime().tm_min != began)
    for process in machines():
        if {b"acp", b"--acp"} & {*(process / "cmdline").read_bytes().split(b"\0")}:
            os.kill(int(process.name), signal.SIGKILL)
    asked = run.asked()
    expect(json.loads(asked["input"])["kind"] == "edit", asked)
    expect(run.decide("deny", asked), "it cannot be denied")
    until("it goes on", lambda: not run.runs())
    until("its session ends", lambda: run.events("session_closed"))
    expect(not run.file("theirs.txt"), "its tool works though it may not")
    expect(run.file("made.txt") == "once\n", f"made.txt: {run.file('made.txt')}")
    errors = [one["error"] for one in run.events("program_told") if one["error"]]
    expect(len(errors) == 1 and "approval_denied" in errors[0], errors)
    sessions = [one["session"] for one in run.events("program_session")]
    expect(len(run.events("program_started")) == 2 and len({*sessions}) == 1, sessions)
    expect(set(provider.whole.values()) == {1}, f"asked twice: {list(provider.whole.values())}")
    # OpenCode ends its turn then, without a word.
    ended = run.about("status")
    status = "failed" if program == "opencode-acp" else "completed"
    expect(ended["status"] == status and not provider.trouble, (ended, provider.trouble))
    run.about("remove")


def drive(daemon, provider, program, image):
    began = time.monotonic()
    daemon.call("aegis.agent.create", manifest_yaml=manifest(program, image, True))
    processes = works(daemon, provider, program)
    is_refused(daemon, provider, program)
    took = time.monotonic() - began
    print(f"{program}: asked, approved once with 6 daemons killed, killed itself, refused; no key in {processes} "
          f"processes; {took:.0f} s", flush=True)


if __name__ == "__main__":
    main(drive)
