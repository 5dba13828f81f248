"""Runs an agent of LangChain's Deep Agents in a sandbox, by its E2B backend, unchanged.

Usage: drive_langchain_e2b.py TEMPLATE ISOLATION. Address and key come from the variables that the SDK itself reads. The model is
a script: what it asks for is what a model would ask for, and what the tools answer is what the sandbox did.
Prints a line of JSON: the version, and what was driven.
"""

import json
import sys
from importlib.metadata import version
from typing import Any

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_e2b import E2BSandbox


class Script(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> "Script":
        return self


def call(number, name, **args):
    return AIMessage("", tool_calls=[{"id": str(number), "name": name, "args": args}])


TEMPLATE, ISOLATION = sys.argv[1:]
sandbox = Sandbox.create(TEMPLATE, timeout=900, request_timeout=300)
try:
    backend = E2BSandbox(sandbox=sandbox)
    home = sandbox.commands.run("pwd").stdout.strip()
    script = [
        call(1, "execute", command="mkdir -p work && echo 41 > work/number && whoami && pwd"),
        call(2, "execute", command="n=$(cat work/number); echo $((n + 1)) | tee work/answer; exit 3"),
        AIMessage("It is done."),
    ]
    agent = create_deep_agent(model=Script(messages=iter(script)), backend=backend)
    ended = agent.invoke({"messages": [{"role": "user", "content": "Add one to 41."}]})["messages"]
    told = {message.tool_call_id: message for message in ended if isinstance(message, ToolMessage)}
    assert f"user\n{home}" in told["1"].content, told["1"]
    assert "42" in told["2"].content and "3" in told["2"].content.replace("42", ""), told["2"]
    assert ended[-1].content == "It is done."
    assert sandbox.files.read("work/answer") == "42\n", "the agent worked in this sandbox"
    got = backend.download_files([f"{home}/work/answer", f"{home}/none"])
    assert got[0].content == b"42\n" and got[1].error == "file_not_found", got
    put = backend.upload_files([(f"{home}/work/up.bin", bytes(range(256)))])
    assert put[0].error is None and bytes(sandbox.files.read("work/up.bin", format="bytes")) == bytes(range(256))
finally:
    sandbox.kill()
driven = ["agent", "execute", "download_files", "upload_files"]
print(json.dumps({"version": version("langchain-e2b"), "isolation": ISOLATION, "features": dict.fromkeys(driven, True)}))
