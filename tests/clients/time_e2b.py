"""Times E2B's own Python SDK for `cargo xtask bench`.

Reads a line for each turn: `URL KEY COUNT`. COUNT sandboxes are created at once, each runs a first command; the turn is
answered by a line with the milliseconds that all of it took, and the sandboxes are killed after it.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from e2b import Sandbox


def first_command(options):
    sandbox = Sandbox.create("base", timeout=600, **options)
    done = sandbox.commands.run("echo hello")
    assert done.stdout == "hello\n", done
    return sandbox


for line in sys.stdin:
    url, key, count = line.split()
    count = int(count)
    options = {"api_url": url, "sandbox_url": url, "api_key": key}
    with ThreadPoolExecutor(count) as pool:
        begun = time.perf_counter()
        made = list(pool.map(first_command, [options] * count))
        took = time.perf_counter() - begun
        list(pool.map(lambda sandbox: sandbox.kill(**options), made))
    print(took * 1000, flush=True)
