"""Runs code in sandboxes by E2B's own Python SDK for code interpreters, as its users do: what a version has, it must do.

Usage: drive_code.py ISOLATION. Address and key come from the variables that the SDK itself reads; the template is the
SDK's own. Prints a line of JSON: the version, and for each feature whether it was there.

Versions before 2.9 ask for code at a name below the daemon's domain. Not every C library knows names below `localhost`:
the process answers for them itself.
"""

import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from importlib.metadata import version
from os import environ

from e2b import NotFoundException
from e2b_code_interpreter import Sandbox

(ISOLATION,) = sys.argv[1:]
FEATURES = {}
# An emulated machine on a busy host needs longer than the SDK waits by itself, which is a minute.
PATIENT = {"timeout": 900, "request_timeout": 300}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def looked_up(host, *rest, known=socket.getaddrinfo, **more):
    here = host.endswith(".localhost") if isinstance(host, str) else host.endswith(b".localhost")
    return known("127.0.0.1" if here else host, *rest, **more)


socket.getaddrinfo = looked_up


def feature(name, there=True):
    """Notes a feature as one that was driven, or as one that this version does not have."""
    FEATURES[name] = bool(there)
    return there


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"not refused with {kind}")


def runs(sandbox):
    feature("run_code")
    first = sandbox.run_code("x = 20\nx + 1")
    assert first.text == "21" and first.error is None and first.results[0].is_main_result, first
    again = sandbox.run_code("print(x); 'a text'")
    assert again.text == "a text" and again.logs.stdout == ["20\n"], again
    assert again.execution_count == first.execution_count + 1, again.execution_count
    assert sandbox.run_code("import os; os.getcwd()").text.endswith("/user")
    assert sandbox.run_code("import getpass; getpass.getuser()").text == "user"
    assert sandbox.run_code("1", language="python").text == "1"
    assert "ruby" in str(refused(Exception, lambda: sandbox.run_code("1", language="ruby")))
    sandbox.files.write("of_files.txt", "shared")
    assert sandbox.run_code("open('of_files.txt').read()").text == "shared"


def streams(sandbox):
    feature("streams")
    out, err = [], []
    code = "import sys, time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.2)\nprint('no', file=sys.stderr)"
    done = sandbox.run_code(code, on_stdout=lambda it: out.append(it), on_stderr=lambda it: err.append(it))
    assert "".join(it.line for it in out) == "0\n1\n2\n" and "".join(done.logs.stdout) == "0\n1\n2\n", out
    assert out[-1].timestamp - out[0].timestamp > 100_000_000, "told as it comes"
    assert [it.line for it in err] == ["no\n"] and err[0].error, err
    much = sandbox.run_code("print('y' * 3_000_000)")
    assert len("".join(much.logs.stdout)) == 3_000_001
    assert sandbox.run_code("import subprocess\nsubprocess.run(['echo', 'child']).returncode").text == "0"


def errors(sandbox):
    feature("errors")
    told = []
    failed = sandbox.run_code("def f():\n    raise ValueError('why')\nf()", on_error=told.append)
    assert (failed.error.name, failed.error.value) == ("ValueError", "why"), failed.error
    assert "in f()" in failed.error.traceback and "ValueError: why" in failed.error.traceback, failed.error.traceback
    assert told[0].name == "ValueError"
    assert sandbox.run_code("1 +").error.name == "SyntaxError"
    assert "input" in sandbox.run_code("input()").error.value
    dead = sandbox.run_code("y = 1\nimport os\nos._exit(1)")
    assert dead.error.name == "KernelDied", dead
    assert sandbox.run_code("y").error.name == "NameError", "it began anew"


def results(sandbox):
    feature("results")
    code = f"""
from base64 import b64decode
from IPython.display import HTML, JSON, Image, Latex, Markdown, SVG, display
display(HTML("<b>h</b>"), Markdown("*m*"), Latex("$l$"), JSON({{"j": [1]}}), Image(b64decode("{PIXEL}")))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
display({{"application/x-own": "o"}}, raw=True)
class Table:
    def _repr_html_(self): return "<table/>"
Table()"""
    heard = []
    shown = sandbox.run_code(code, on_result=heard.append)
    assert shown.error is None, shown.error
    found = {name: value for it in shown.results for name in it.formats() for value in [it.extra[name] if it.extra and name in it.extra else it[name]]}
    assert (found["markdown"], found["latex"], found["json"]) == ("*m*", "$l$", {"j": [1]}), found
    assert found["png"].strip() == PIXEL and found["svg"].startswith("<svg") and found["application/x-own"] == "o", found
    assert shown.results[0].html == "<b>h</b>" and not shown.results[0].is_main_result
    assert shown.results[-1].html == "<table/>" and shown.results[-1].is_main_result
    assert len(heard) == len(shown.results)


def variables(sandbox):
    feature("envs")
    read = "import os; (os.environ.get('OF_SANDBOX'), os.environ.get('OF_RUN'))"
    assert sandbox.run_code(read, envs={"OF_RUN": "it's\n\"2\""}).text == "('1', 'it\\'s\\n\"2\"')"
    assert sandbox.run_code(read).text == "('1', None)", "for one execution only"


def contexts(sandbox):
    feature("contexts")
    sandbox.run_code("z = 'of default'")
    made = sandbox.create_code_context(cwd="/tmp", language="python")
    assert (made.language, made.cwd) == ("python", "/tmp"), made
    assert sandbox.run_code("import os; os.getcwd()", context=made).text == "/tmp"
    assert sandbox.run_code("z", context=made).error.name == "NameError"
    sandbox.run_code("z = 'of made'", context=made)
    assert sandbox.run_code("z").text == "of default"
    listed = sandbox.list_code_contexts()
    assert made.id in [it.id for it in listed], listed
    sandbox.restart_code_context(made)
    assert sandbox.run_code("z", context=made).error.name == "NameError", "a restart keeps nothing"
    sleeper, sleeps = [], threading.Event()
    code = "print(1, flush=True); import time; time.sleep(600)"
    asked = {"context": made, "on_stdout": lambda _: sleeps.set()}
    thread = threading.Thread(target=lambda: sleeper.append(sandbox.run_code(code, **asked)))
    thread.start()
    assert sleeps.wait(60), "told as it comes"
    assert sandbox.run_code("z").text == "of default", "contexts run beside each other"
    sandbox.remove_code_context(made.id)
    thread.join(60)
    assert sleeper and sleeper[0].error.name == "KernelRestarted", sleeper
    assert made.id not in [it.id for it in sandbox.list_code_contexts()]
    refused(NotFoundException, lambda: sandbox.run_code("1", context=made))
    refused(Exception, lambda: sandbox.create_code_context(cwd="/nowhere"))


def timeouts(sandbox):
    feature("timeout")
    sandbox.run_code("kept = 7")
    late = refused(Exception, lambda: sandbox.run_code("import time\ntime.sleep(60)\nkept = 8", timeout=1))
    assert "timed out" in str(late).lower() or "timeout" in str(late).lower(), late
    assert sandbox.run_code("kept", timeout=30).text == "7", "it was interrupted, and variables stay"


def private(sandbox):
    feature("private port")
    asked = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    request = urllib.request.Request(environ["E2B_SANDBOX_URL"] + "/contexts", headers=asked)
    assert refused(urllib.error.HTTPError, lambda: urllib.request.urlopen(request)).code == 403


def pauses(sandbox):
    pause = getattr(sandbox, "pause", None) or getattr(sandbox, "beta_pause", None)
    if not feature("pause and connect", pause is not None and ISOLATION == "vm"):
        return
    sandbox.run_code("held = object(); number = id(held)")
    pause()
    again = Sandbox.connect(sandbox.sandbox_id, **PATIENT)
    assert again.run_code("id(held) == number").text == "True", "memory is kept"


def main():
    sandbox = Sandbox.create(envs={"OF_SANDBOX": "1"}, **PATIENT)
    try:
        runs(sandbox)
        streams(sandbox)
        errors(sandbox)
        results(sandbox)
        variables(sandbox)
        contexts(sandbox)
        timeouts(sandbox)
        private(sandbox)
        pauses(sandbox)
    finally:
        sandbox.kill()
    print(json.dumps({"version": version("e2b-code-interpreter"), "isolation": ISOLATION, "features": FEATURES}))


main()
