"""Drives hivekeep with the official Python client, over stdio, as an agent would.

usage: drive.py HIVEKEEP ISOLATION LIFECYCLE

ISOLATION is `sandbox` or `vm`; LIFECYCLE is `legacy` (initialize) or a protocol
version (stateless). The client itself checks every structured result against the
tool's output schema.
"""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters

TOOLS = {
    "workspace_create", "workspace_destroy", "workspace_start", "workspace_stop",
    "workspace_list", "workspace_info", "workspace_logs", "workspace_adopt", "exec",
    "exec_background", "set_env", "exec_parallel", "file_write", "file_read", "file_edit",
    "file_list", "file_transfer",
}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Driver:
    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        expect(not result.is_error, f"{tool}: {result.content}")
        return result.structured_content

    async def refused(self, tool, code, **arguments):
        result = await self.client.call_tool(tool, arguments)
        expect(result.is_error, f"{tool} was not refused")
        expect(code in result.content[0].text, f"{tool}: {result.content[0].text}")

    async def commands(self, ws):
        ran = await self.call("exec", workspace_id=ws, command="echo out; echo err >&2; exit 3")
        expect((ran["exit_code"], ran["stdout"], ran["stderr"]) == (3, "out\n", "err\n"), ran)
        await self.call("set_env", workspace_id=ws, vars={"GREETING": "hello"})
        ran = await self.call("exec", workspace_id=ws, command='printf %s "$GREETING"')
        expect(ran["stdout"] == "hello", ran)
        # Past the size of a pipe, and whole.
        ran = await self.call("exec", workspace_id=ws, command="yes | head -c 200000")
        expect(ran["stdout_bytes"] == 200000 and not ran["truncated"], ran["stdout_bytes"])
        slow = {"workspace_id": ws, "command": "sleep 60", "timeout_secs": 1}
        await self.refused("exec", "exec_timed_out", **slow)

    async def files(self, ws):
        path, text = "/workspace/notes/a.txt", "grüße\nsecond\n"
        await self.call("file_write", workspace_id=ws, path=path, content=text, mode="0600")
        read = await self.call("file_read", workspace_id=ws, path=path)
        expect(read["content"] == text, read)
        edit = {"workspace_id": ws, "path": path, "old_string": "second", "new_string": "third"}
        await self.call("file_edit", **edit)
        ran = await self.call("exec", workspace_id=ws, command=f"cat {path}; stat -c %a {path}")
        expect(ran["stdout"] == "grüße\nthird\n600\n", ran)
        listed = await self.call("file_list", workspace_id=ws, path="/workspace/notes")
        expect([entry["name"] for entry in listed["entries"]] == ["a.txt"], listed)
        await self.refused("file_read", "not_found", workspace_id=ws, path="/workspace/gone")

    async def jobs(self, ws):
        script = "for i in 1 2 3; do echo line $i; sleep 0.2; done; exit 7"
        job = await self.job(ws, action="start", command=script)
        report = await self.until_ended(ws, job["job_id"])
        expect(report["stdout"] == "line 1\nline 2\nline 3\n", report)
        expect(report["exit_code"] == 7, report)
        # An exit status can be asked for again.
        again = await self.job(ws, action="poll", job_id=job["job_id"])
        expect(again["exit_code"] == 7, again)
        job = await self.job(ws, action="start", command="sleep 600")
        await self.job(ws, action="kill", job_id=job["job_id"])
        report = await self.until_ended(ws, job["job_id"])
        expect(report["exit_code"] == 128 + 9, report)

    async def job(self, ws, **arguments):
        return await self.call("exec_background", workspace_id=ws, **arguments)

    async def until_ended(self, ws, job_id):
        for _ in range(300):
            report = await self.job(ws, action="poll", job_id=job_id)
            if not report["running"]:
                return report
            await asyncio.sleep(0.1)
        raise AssertionError(f"{job_id} did not end")


async def main(hivekeep, isolation, lifecycle):
    server = StdioServerParameters(command=hivekeep, args=["mcp", "--output-schemas"], env=dict(os.environ))
    async with Client(server, mode=lifecycle) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        expect(TOOLS <= listed, f"not listed: {TOOLS - listed}")
        driver = Driver(client)
        name = f"python-{isolation}-{os.getpid()}"
        made = await driver.call("workspace_create", name=name, isolation=isolation)
        expect((made["state"], made["isolation"]) == ("running", isolation), made)
        ws = made["workspace_id"]
        for part in (driver.commands, driver.files, driver.jobs):
            await part(ws)
            print(f"{part.__name__}: ok", flush=True)
        await driver.call("workspace_destroy", workspace_id=ws)
        left = await driver.call("workspace_list")
        expect(name not in [row["name"] for row in left["workspaces"]], left)
        print("destroyed: ok", flush=True)


asyncio.run(main(*sys.argv[1:4]))
