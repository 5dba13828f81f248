"""Forks agents of others in a virtual machine without a network, over a scripted model.

usage: drive_program_forks.py HIVEKEEP IMAGE PROGRAM...

The first request of each is held until its machine is kept with it. Each of two forks goes on from there in a machine
of its own: its request and the one behind that have the words of the fork at the model, it writes a file by its own
shell tool, and no whole answer is asked for twice. The environment is that of `drive_programs.py`.
"""

import time

from drive_programs import PATIENCE, expect, main, manifest, shell, until
from model_wires import DONE, SHELLS

WORDS = ("Write it in pounds.", "Write it in dollars.")


def drive(daemon, provider, program, image):
    began = time.monotonic()
    provider.begin([(SHELLS, lambda tool: shell(tool, "echo once >> made.txt"))], {0: ["before"]})
    daemon.call("aegis.agent.create", manifest_yaml=manifest(program, image, False, "microvm", "turn"))
    source = daemon.call("aegis.task.execute", agent_id=program)["execution_id"]

    def events(id_):
        return daemon.call("aegis.task.logs", execution_id=id_, limit=200)["events"]

    def closed(id_):
        # Its machine is stopped then, and a look at its files is not cut by that.
        until("its session ends", lambda: events(id_)[-1]["event_type"] == "session_closed")

    def kept():
        kinds = [event["event_type"] for event in events(source)]
        expect("execution_failed" not in kinds and "checkpoint_failed" not in kinds, events(source)[-4:])
        return "checkpoint_made" in kinds

    def held():
        # An end of the program is told at once.
        kept()
        return provider.held.acquire(timeout=1)
    until(f"{program} asks", held)
    until("its machine is kept", kept)
    variations = [{"instruction": words} for words in WORDS]
    forks = daemon.call("agent_fork", execution_id=source, variations=variations)["execution_ids"]
    for fork in forks:
        ended = daemon.call("aegis.task.wait", execution_id=fork, timeout_seconds=2 * PATIENCE)
        expect(ended["status"] == "completed" and not provider.trouble, (ended, provider.trouble))
        expect(ended["last_output"] == DONE and ended["model_requests"]["asked"] == 2, ended)
        closed(fork)
        file = daemon.call("aegis.execution.file", execution_id=fork, path="made.txt")
        expect(file["content"] == "once\n", file)
    asked = sorted([words in request for words in WORDS] for request in provider.whole)
    expect(asked == [[False, True]] * 2 + [[True, False]] * 2, f"asked with other words: {asked}")
    expect(set(provider.whole.values()) == {1}, f"asked twice: {list(provider.whole.values())}")
    daemon.call("aegis.task.cancel", execution_id=source)
    closed(source)
    # Machines that are kept would keep the image.
    for machine in daemon.call("workspace_list")["workspaces"]:
        daemon.call("workspace_adopt", workspace_id=machine["workspace_id"])
        daemon.call("workspace_destroy", workspace_id=machine["workspace_id"])
    print(f"{program}: {len(forks)} forks in virtual machines, each with its words; {time.monotonic() - began:.0f} s",
          flush=True)


if __name__ == "__main__":
    main(drive)
