"""Drives sandboxes by E2B's own Python SDK, as its users do: what a version has, it must do.

Usage: drive_e2b.py TEMPLATE ISOLATION [life]. With `life` it asks only for what depends on the isolation: how sandboxes
begin, stand still, are copied and end. Address and key come from the variables that the SDK itself reads.
Prints a line of JSON: the version, and for each feature whether it was there.
"""

import inspect
import json
import sys
import time
import urllib.request
from importlib.metadata import version

from e2b import CommandExitException, NotFoundException, Sandbox
from e2b.sandbox_sync.commands.command import Commands

TEMPLATE, ISOLATION, *ONLY = sys.argv[1:]
FEATURES = {}
# An emulated machine on a busy host needs longer than the SDK waits by itself, which is a minute.
PATIENT = {"timeout": 900, "request_timeout": 300}


def feature(name, there=True):
    """Notes a feature as one that was driven, or as one that this version does not have."""
    FEATURES[name] = bool(there)
    return there


def has(thing, name, parameter=None):
    found = getattr(thing, name, None)
    if found is None or parameter is None:
        return found is not None
    try:
        return parameter in inspect.signature(found).parameters
    except (TypeError, ValueError):
        return False


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"not refused with {kind}")


# Versions before it was a choice have an input always.
INPUT = {"stdin": True} if has(Commands, "run", "stdin") else {}


def commands(sandbox):
    feature("run")
    done = sandbox.commands.run("echo out; echo err >&2; pwd; whoami")
    lines = done.stdout.split()
    assert lines[0] == "out" and lines[2] == "user", lines
    assert lines[1].endswith("/user"), lines
    assert done.stderr == "err\n" and done.exit_code == 0
    assert sandbox.commands.run("echo $A-$B", envs={"B": "2"}).stdout == "1-2\n", "both environments"
    assert sandbox.commands.run("id -un", user="root").stdout == "root\n"
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    failed = refused(CommandExitException, lambda: sandbox.commands.run("echo no >&2; exit 3"))
    assert failed.exit_code == 3 and failed.stderr == "no\n"
    large = sandbox.commands.run("head -c 300000 /dev/zero | tr '\\0' x")
    assert len(large.stdout) == 300000
    assert sandbox.commands.run("printf 'gr\\303\\274n \\342\\230\\203'").stdout == "grün ☃"
    late = refused(Exception, lambda: sandbox.commands.run("sleep 30", timeout=1))
    assert any(word in str(late).lower() for word in ("deadline", "timeout", "timed out")), late


def background(sandbox):
    feature("background")
    heard = []
    handle = sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.2; done; exit 4", background=True)
    failed = refused(CommandExitException, lambda: handle.wait(on_stdout=heard.append))
    assert failed.exit_code == 4 and "".join(heard) == "1\n2\n3\n", heard
    speaker = sandbox.commands.run("echo early; read line; echo late $line", background=True, **INPUT)
    attached = sandbox.commands.connect(speaker.pid)
    sandbox.commands.send_stdin(speaker.pid, "now\n")
    assert "late now\n" in attached.wait().stdout, "told to who attached"
    assert speaker.wait().stdout == "early\nlate now\n", "and to who started it"
    sleeper = sandbox.commands.run("sleep 60", background=True)
    listed = [process.pid for process in sandbox.commands.list()]
    assert sleeper.pid in listed
    again = sandbox.commands.connect(sleeper.pid)
    assert again.pid == sleeper.pid
    assert sandbox.commands.kill(sleeper.pid) is True
    refused(CommandExitException, again.wait)
    assert sandbox.commands.kill(sleeper.pid) is False, "it is gone"
    refused(NotFoundException, lambda: sandbox.commands.connect(4_000_000))


def stdin(sandbox):
    feature("stdin")
    handle = sandbox.commands.run("head -n 1", background=True, **INPUT)
    sandbox.commands.send_stdin(handle.pid, "grün\n")
    assert handle.wait().stdout == "grün\n"
    if feature("close_stdin", has(sandbox.commands, "close_stdin")):
        handle = sandbox.commands.run("wc -c", background=True, stdin=True)
        sandbox.commands.send_stdin(handle.pid, "12345")
        sandbox.commands.close_stdin(handle.pid)
        assert handle.wait().stdout.strip() == "5"
    if feature("stream_input", has(sandbox.commands, "stream_input")):
        handle = sandbox.commands.run("head -n 2", background=True, stdin=True)
        sandbox.commands.stream_input(handle.pid, ["a\n", b"b\n"])
        assert handle.wait().stdout == "a\nb\n"


def files(sandbox):
    feature("files")
    told = sandbox.files.write("dir/a.txt", "hello")
    assert told.path.endswith("/user/dir/a.txt") and told.name == "a.txt", told
    assert sandbox.files.read("dir/a.txt") == "hello"
    blob = bytes(range(256)) * 12_000
    sandbox.files.write("blob", blob)
    assert bytes(sandbox.files.read("blob", format="bytes")) == blob
    assert b"".join(sandbox.files.read("blob", format="stream")) == blob
    owner = sandbox.commands.run("stat -c '%U %a' dir/a.txt dir").stdout.split()
    assert owner == ["user", "644", "user", "755"], owner
    assert sandbox.files.read("/proc/self/status").startswith("Name:"), "a file that tells no size"
    assert sorted(entry.name for entry in sandbox.files.list("dir")) == ["a.txt"]
    assert sandbox.files.exists("dir/a.txt") and not sandbox.files.exists("dir/b.txt")
    moved = sandbox.files.rename("dir/a.txt", "dir/b.txt")
    assert moved.path.endswith("/user/dir/b.txt"), moved
    assert sandbox.files.make_dir("dir/new") is True
    assert sandbox.files.make_dir("dir/new") is False, "it is there"
    refused(NotFoundException, lambda: sandbox.files.read("nothing"))
    sandbox.files.write("/root/secret", "s", user="root")
    refused(Exception, lambda: sandbox.files.write("/root/other", "s"))
    sandbox.files.remove("dir")
    assert not sandbox.files.exists("dir")
    if feature("get_info", has(sandbox.files, "get_info")):
        info = sandbox.files.get_info("blob")
        assert (info.size, info.mode, info.owner) == (len(blob), 0o644, "user"), info
    if feature("gzip", has(sandbox.files, "write", "gzip")):
        sandbox.files.write("z.txt", "z" * 100_000, gzip=True)
        assert sandbox.files.read("z.txt", gzip=True) == "z" * 100_000
    if feature("metadata", has(sandbox.files, "write", "metadata")):
        told = sandbox.files.write("m.txt", "m", metadata={"author": "ann"})
        assert told.metadata == {"author": "ann"}, told
        assert sandbox.files.get_info("m.txt").metadata == {"author": "ann"}


def urls(sandbox):
    feature("signed URLs")
    sandbox.files.write("signed.txt", "signed")
    with urllib.request.urlopen(sandbox.download_url("signed.txt", "user")) as answer:
        assert answer.read() == b"signed"
    expired = sandbox.download_url("signed.txt", "user", use_signature_expiration=-10)
    error = refused(urllib.error.HTTPError, lambda: urllib.request.urlopen(expired))
    assert error.code == 401
    forged = sandbox.download_url("signed.txt", "user").replace("signed.txt", "blob")
    assert refused(urllib.error.HTTPError, lambda: urllib.request.urlopen(forged)).code == 401


def watch(sandbox):
    feature("watch")
    sandbox.files.make_dir("watched")
    handle = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/a.txt", "one")
    sandbox.commands.run("mkdir watched/deep && echo two > watched/deep/b.txt")
    seen, until = [], time.monotonic() + 20
    while time.monotonic() < until:
        seen += [(event.type.value, event.name) for event in handle.get_new_events()]
        if ("write", "a.txt") in seen and any(name == "deep/b.txt" for _, name in seen):
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"not told: {seen}")
    handle.stop()
    refused(Exception, lambda: sandbox.files.watch_dir("nothing"))


def pty(sandbox):
    if not feature("pty", has(sandbox, "pty")):
        return
    from e2b import PtySize

    terminal = sandbox.pty.create(PtySize(rows=30, cols=90), timeout=300)
    sandbox.pty.send_stdin(terminal.pid, b"stty size\n")
    sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 0\n")
    heard = []
    terminal.wait(on_pty=lambda piece: heard.append(piece))
    text = b"".join(heard)
    assert b"30 90" in text or b"40 100" in text, text
    assert b"40 100" in text, text


def lists(sandbox, mark):
    if not feature("list", has(Sandbox, "list")):
        return
    from e2b import SandboxQuery

    pages = Sandbox.list(query=SandboxQuery(metadata={"mark": mark}))
    ids = [row.sandbox_id for row in pages.next_items()]
    assert ids == [sandbox.sandbox_id], ids
    info = sandbox.get_info()
    assert info.metadata["mark"] == mark and info.template_id == TEMPLATE, info


def timeouts(sandbox):
    feature("timeout")
    before = sandbox.get_info().end_at
    sandbox.set_timeout(1200)
    after = sandbox.get_info().end_at
    assert after > before, (before, after)


def pauses(sandbox):
    pause = getattr(sandbox, "pause", None) or getattr(sandbox, "beta_pause", None)
    # A sandbox of our own kind cannot stand still with its memory, and says so.
    if pause is not None and ISOLATION == "sandbox":
        refused(Exception, pause)
        assert sandbox.is_running()
    if not feature("pause and connect", pause is not None and ISOLATION == "vm"):
        return
    counter = sandbox.commands.run("i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.1; done", background=True)
    time.sleep(0.3)
    pause()
    assert not sandbox.is_running()
    again = Sandbox.connect(sandbox.sandbox_id, **PATIENT)
    assert again.sandbox_id == sandbox.sandbox_id and again.is_running()
    # It is empty for a moment each time that it is written.
    first = int(again.files.read("count") or 0)
    until = time.monotonic() + 60
    while int(again.files.read("count") or 0) <= first:
        assert time.monotonic() < until, "its program stands still"
        time.sleep(0.05)
    again.commands.kill(counter.pid)


def forks(sandbox):
    sandbox.files.write("state.txt", "before")
    if ISOLATION == "sandbox":
        if has(sandbox, "fork"):
            refused(Exception, sandbox.fork)
        return feature("fork", False), feature("snapshots", False)
    if feature("fork", has(sandbox, "fork")):
        made = sandbox.fork(count=2)
        try:
            assert len(made) == 2 and all(isinstance(fork, Sandbox) for fork in made), made
            made[0].files.write("state.txt", "after")
            assert made[1].files.read("state.txt") == "before"
            assert sandbox.files.read("state.txt") == "before"
        finally:
            for fork in made:
                if isinstance(fork, Sandbox):
                    fork.kill()
    if feature("snapshots", has(sandbox, "create_snapshot")):
        snapshot = sandbox.create_snapshot()
        copy = Sandbox.create(snapshot.snapshot_id, **PATIENT)
        try:
            assert copy.files.read("state.txt") == "before"
        finally:
            copy.kill()
        listed = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id).next_items()
        assert [row.snapshot_id for row in listed] == [snapshot.snapshot_id], listed
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False


def ends(sandbox):
    feature("kill")
    assert sandbox.kill() is True
    assert not sandbox.is_running()
    assert Sandbox.kill(sandbox.sandbox_id) is False
    refused(Exception, lambda: sandbox.commands.run("true"))
    short = Sandbox.create(TEMPLATE, **PATIENT | {"timeout": 2})
    until = time.monotonic() + 60
    while short.is_running():
        assert time.monotonic() < until, "it did not end"
        time.sleep(0.2)


def main():
    mark = f"märk {time.time_ns()} a@b/c 100%+1"
    sandbox = Sandbox.create(TEMPLATE, metadata={"mark": mark}, envs={"A": "1"}, **PATIENT)
    feature("create")
    assert sandbox.is_running()
    if ONLY != ["life"]:
        commands(sandbox)
        background(sandbox)
        stdin(sandbox)
        files(sandbox)
        urls(sandbox)
        watch(sandbox)
        pty(sandbox)
    lists(sandbox, mark)
    timeouts(sandbox)
    pauses(sandbox)
    forks(sandbox)
    ends(sandbox)
    print(json.dumps({"version": version("e2b"), "isolation": ISOLATION, "features": FEATURES}))


main()
