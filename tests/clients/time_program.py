"""Times a program of others on this host, over a scripted model that has one command run.

usage: time_program.py [FILE]

FILE is one of actors/agent/programs: the program is run once as that says, and the milliseconds until its end are
printed. Without one the port of the model is printed, which is there until the input ends.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

from drive_programs import shell
from model_wires import DONE, SHELLS, Provider

# As the daemon fills in an agent that is told to look, and whose model is `m`.
VALUES = {"key": "placeholder", "model": "m", "prompt": "Look.\n\nTask: Look."}


def run(file, url):
    values = {"url": url, **VALUES}

    def filled(text):
        for name, value in values.items():
            text = text.replace("{%s}" % name, value)
        return text
    # A home that a program takes for none of a test's: not below /tmp.
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as home:
        words, variables = map(filled, file["argv"]), {name: filled(text) for name, text in file["env"].items()}
        environment = {"PATH": os.environ["PATH"], "HOME": home, **variables}
        began = time.perf_counter()
        ran = subprocess.run(list(words), cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True)
        took = time.perf_counter() - began
    if DONE not in ran.stdout:
        sys.exit(f"{ran.stdout}{ran.stderr}")
    return took * 1e3


def main():
    provider = Provider()
    provider.begin([(SHELLS, lambda tool: shell(tool, "echo once > made.txt"))], {})
    if len(sys.argv) == 1:
        print(provider.server_port, flush=True)
        sys.stdin.read()
    else:
        file = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())
        print(run(file, f"http://127.0.0.1:{provider.server_port}"))


if __name__ == "__main__":
    main()
