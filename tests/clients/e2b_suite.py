"""Plugin of pytest for a run of E2B's own tests: names below `.localhost` are this machine's, as in a browser, and the
outcomes go to the file that E2B_SUITE_OUTCOMES names, as JSON by the name of the test."""

import json
import os
import socket

resolve = socket.getaddrinfo
outcomes = {}


def getaddrinfo(host, *args, **more):
    name = host.decode() if isinstance(host, bytes) else host
    ours = isinstance(name, str) and name.endswith(".localhost")
    return resolve("127.0.0.1" if ours else host, *args, **more)


socket.getaddrinfo = getaddrinfo


def pytest_runtest_logreport(report):
    worst = ["passed", "skipped", "failed"]
    before = outcomes.get(report.nodeid, "passed")
    outcomes[report.nodeid] = max(before, report.outcome, key=worst.index)


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        with open(os.environ["E2B_SUITE_OUTCOMES"], "w") as file:
            json.dump(outcomes, file)
