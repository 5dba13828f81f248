"""Runs agents of others, each as the agent of an execution in a sandbox without a network, over a scripted model.

usage: drive_programs.py HIVEKEEP IMAGE PROGRAM...

Each writes a file by its own shell tool, and another by a tool of ours. The daemon is killed while the program waits
for its model, in the middle of two answers, and while the program's tool runs. No whole answer is asked for twice, each
tool works once, and the provider's key is in no file, variable or memory of the machine. The environment says where
images and guest are, and names a home.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

from model_wires import DONE, SHELLS, Provider

KEY = "k-" + os.urandom(16).hex()
# Kind of the provider, what stands behind its address, and the name of the model: programs know names.
KINDS = {
    "codex": ("openai", "/v1", "gpt-5.1"),
    "opencode": ("openai-compatible", "/v1", "m"),
    "pi": ("openai-compatible", "/v1", "m"),
    "qwen": ("openai-compatible", "/v1", "m"),
    "gemini": ("gemini", "", "gemini-2.5-flash"),
    "claude": ("anthropic", "", "claude-sonnet-4-5"),
}
PATIENCE = 120
# Takes as long as a daemon needs to be killed and started, and says so by a file.
COMMAND = "echo once >> made.txt; sleep 6; cat made.txt"
# A step of a DAG, whose program tells the next one what it has written.
OUTPUT = 'echo "said=$(cat made.txt)" >> "$DAGU_OUTPUT_FILE"'
STEPS = """type: chain
working_dir: .
steps:
- { id: ask, action: harness.run, with: { provider: PROGRAM, model: MODEL, prompt: Write made.txt. }, outputs: [{ name: said }] }
- { id: tell, run: "cat made.txt; echo 'it said ${steps.ask.outputs.said}'" }
"""
OURS = {"path": "ours.txt", "content": "by a tool"}

# Programs that speak the Agent Client Protocol ask a person.
RULE = '[[policy.rules]]\nname = "permissions"\neffect = "ask"\ntools = ["agent_permit"]\nwhy = "a person decides"\n'


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def until(what, look):
    deadline = time.monotonic() + PATIENCE
    while not look():
        expect(time.monotonic() < deadline, what)
        time.sleep(0.05)


def shell(tool, command=COMMAND):
    """Arguments of a program's shell tool."""
    fields = json.dumps(tool.get("parameters") or tool.get("input_schema") or tool.get("parametersJsonSchema"))
    arguments = {"cmd" if '"cmd"' in fields else "command": command}
    if '"yield_time_ms"' in fields:
        arguments["yield_time_ms"] = 30_000
    if '"description"' in fields:
        arguments["description"] = "writes a line"
    if '"is_background"' in fields:
        arguments["is_background"] = False
    return arguments


class Daemon:
    def __init__(self, hivekeep, provider):
        self.hivekeep, home = hivekeep, pathlib.Path(os.environ["HIVEKEEP_HOME"])
        at = f"http://127.0.0.1:{provider.server_port}"
        self.config, self.log = home / "programs.toml", open(home / "daemon.stderr", "wb")
        self.config.write_text("".join(
            f'[model.provider.{name}]\nkind = "{kind}"\nendpoint = "{at}{path}"\nkey_env = "SCRIPTED_KEY"\n'
            f'models = {{ "{model}" = {{}} }}\nparallel = 4\n'
            for name, (kind, path, model) in KINDS.items()
        ) + RULE)
        self.start()

    def start(self):
        words = [self.hivekeep, "daemon", "--config", self.config]
        environment = {**os.environ, "SCRIPTED_KEY": KEY}
        self.child = subprocess.Popen(words, env=environment, stdout=self.log, stderr=self.log)

        def answers():
            expect(self.child.poll() is None, "the daemon ended")
            return subprocess.run([self.hivekeep, "status"], capture_output=True).returncode == 0
        until("the daemon does not answer", answers)

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.start()

    def stop(self):
        subprocess.run([self.hivekeep, "stop", "--stop-workspaces"], capture_output=True)
        try:
            self.child.wait(60)
        finally:
            self.child.kill()

    def call(self, tool, **arguments):
        words = [self.hivekeep, "call", tool, "--json", json.dumps(arguments)]
        ran = subprocess.run(words, capture_output=True, text=True)
        expect(ran.returncode == 0, f"{tool}: {ran.stdout} {ran.stderr}")
        return json.loads(ran.stdout)


def manifest(program, image, tools, isolation="process", checkpoint="none"):
    provider = program.removesuffix("-acp")
    model = KINDS[provider][2]
    return f"""apiVersion: 100monkeys.ai/v1
kind: Agent
metadata: {{ name: {program}, version: 1.0.0 }}
spec:
  runtime: {{ image: {image}, program: {program}, isolation: {isolation}, model: {provider}/{model} }}
  tools: [{"fs.write" if tools else ""}]
  execution:
    checkpoint: {checkpoint}
    validation: [{{ type: exit_code }}, {{ type: regex, pattern: written }}]
  task: {{ instruction: Write made.txt. }}
"""


def machines():
    """Processes of sandboxes that are made from the image: its packages are at the root."""
    host = os.readlink("/proc/self/ns/pid")
    for process in pathlib.Path("/proc").iterdir():
        try:
            inside = process.name.isdigit() and os.readlink(process / "ns/pid") != host
            if inside and (process / "root/node_modules").exists():
                yield process
        except OSError:
            pass


def search(key):
    """Looks for the key in all that a machine has: variables, files that are not its image's, and memory."""
    key, looked = key.encode(), set()
    for process in machines():
        try:
            expect(key not in (process / "environ").read_bytes(), f"the key is a variable of {process}")
            for folder in ("workspace", "root", "tmp", "etc", "var", "run"):
                found = subprocess.run(["grep", "-rlsF", key, process / "root" / folder], capture_output=True).stdout
                expect(not found, f"the key is in {found}")
            with open(process / "mem", "rb", 0) as memory, open(process / "pagemap", "rb", 0) as pages:
                for line in (process / "maps").read_text().splitlines():
                    begin, end, how = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
                    begin, end = int(begin, 16), int(end, 16)
                    while how.startswith("rw") and begin < end:
                        size = min(end - begin, 1 << 26)
                        # Programs set more aside than they use: a page's last byte says that it is there, or swapped.
                        there = os.pread(pages.fileno(), size >> 9, begin >> 9)[7::8]
                        try:
                            used = max(there, default=0) >= 0x40
                            expect(not used or key not in os.pread(memory.fileno(), size, begin),
                                   f"the key is in {process}")
                        except OSError:
                            break
                        begin += size
            looked.add(process.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    expect(looked, "no process of a machine was looked at")
    return len(looked)


def drive(daemon, provider, program, image):
    began, tools = time.monotonic(), program != "pi"
    steps = [(SHELLS, shell)] + [(("fs_write",), lambda _: OURS)] * tools
    provider.begin(steps, {0: ["before", "within"], 1: ["within"]})
    daemon.call("aegis.agent.create", manifest_yaml=manifest(program, image, tools))
    id_ = daemon.call("aegis.task.execute", agent_id=program)["execution_id"]

    def about(tool, **more):
        return daemon.call(f"aegis.task.{tool}", execution_id=id_, **more)

    def held():
        if provider.held.acquire(timeout=1):
            return True
        running = about("status")["status"] == "running"
        expect(running, f"{program} has ended, {provider.trouble}: {about('logs', limit=200)['events'][-8:]}")
        return False
    until(f"{program} asks", held)
    processes = search(KEY)
    expect(processes > 1, "the program is not among the processes that were looked at")
    daemon.kill()
    until(f"{program} asks again", held)
    daemon.kill()
    # Its tool runs, as soon as the whole answer is a record.
    def recorded():
        events = [event["event_type"] for event in about("logs", limit=200)["events"]]
        return any(provider.main) and events.count("llm_interaction") >= len(provider.whole)
    until("the answer is recorded", recorded)
    daemon.kill()
    until(f"{program} tells the result", held)
    daemon.kill()
    ended = about("wait", timeout_seconds=PATIENCE)
    expect(ended["status"] == "completed" and not provider.trouble, (ended, provider.trouble))
    expect(ended["last_output"] == DONE, ended)
    # Its machine is stopped then, and a look at its files is not cut by that.
    until("its session ends", lambda: about("logs", limit=200)["events"][-1]["event_type"] == "session_closed")
    for path, content in [("made.txt", "once\n")] + [("ours.txt", "by a tool")] * tools:
        file = daemon.call("aegis.execution.file", execution_id=id_, path=path)
        expect(file["content"] == content, file)
    expect(set(provider.whole.values()) == {1}, f"asked twice: {list(provider.whole.values())}")
    expect(provider.keys == {KEY} or provider.keys == {f"Bearer {KEY}"}, provider.keys)
    requests, calls = ended["model_requests"], sum(
        event["event_type"] == "tool_invocation_completed" for event in about("logs", limit=200)["events"])
    expect(requests["asked"] == len(provider.whole) + 3, requests)
    expect(calls == tools, f"{calls} calls")
    took = time.monotonic() - began
    print(f"{program}: {len(provider.whole)} answers, {calls} calls of tools, each once, with 4 daemons killed; no key in "
          f"{processes} processes; {took:.0f} s", flush=True)
    about("remove")


def drive_step(daemon, provider, program):
    """A program as a step of a DAG, in the workspace of the run; the daemon is killed twice."""
    began = time.monotonic()
    provider.begin([(SHELLS, lambda tool: shell(tool, f"{COMMAND}; {OUTPUT}"))], {0: ["within"]})
    steps = STEPS.replace("PROGRAM", program).replace("MODEL", f"{program}/{KINDS[program][2]}")
    id_ = daemon.call("dag_start", yaml=steps)["run_id"]
    until("the step's program asks", lambda: provider.held.acquire(timeout=1))
    daemon.kill()
    until("the program has an answer", lambda: any(provider.main))
    daemon.kill()
    run = daemon.call("dag_runs", run_id=id_, wait_secs=PATIENCE)["run"]
    expect(run["status"] == "succeeded" and not provider.trouble, (run, provider.trouble))
    said = daemon.call("dag_logs", run_id=id_, step="tell")["stdout"]["text"]
    expect(said == "once\nit said once\n", said)
    expect(set(provider.whole.values()) == {1}, f"asked twice: {list(provider.whole.values())}")
    print(f"{program} as a step: once, with 2 daemons killed; {time.monotonic() - began:.0f} s", flush=True)


def main(drive, drive_step=None):
    hivekeep, image, *programs = sys.argv[1:]
    os.environ |= {"HIVEKEEP_SESSION__WORKSPACE__IMAGE": image, "HIVEKEEP_SESSION__WORKSPACE__ISOLATION": "sandbox"}
    provider = Provider()
    daemon, failed = Daemon(hivekeep, provider), []
    try:
        for program in programs:
            try:
                drive(daemon, provider, program, image)
                if drive_step and program == "codex":
                    drive_step(daemon, provider, program)
            except AssertionError as error:
                failed.append(program)
                print(f"FAILED: {program}: {error}", flush=True)
                # It would take what is meant for the next one.
                for run in daemon.call("aegis.task.list")["executions"]:
                    daemon.call("aegis.task.cancel", execution_id=run["id"])
    finally:
        daemon.stop()
    expect(not failed, failed)


if __name__ == "__main__":
    main(drive, drive_step)
