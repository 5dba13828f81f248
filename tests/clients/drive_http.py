"""Drives hivekeep with the official Python client over streamable HTTP, with a bearer credential,
and answers what the daemon asks the person at the client.

usage: CREDENTIAL=... drive_http.py URL LIFECYCLE

LIFECYCLE is `legacy` (initialize) or a protocol version (stateless: a question is the answer to a
call, which comes again with the reply). The daemon lets that person approve
(`policy.approvals.elicitation`), and a rule asks for an approval of `aegis.script.save`.
"""

import asyncio
import os
import sys

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import ElicitResult


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Person:
    """Chooses what it is told to, and remembers what it was asked."""

    def __init__(self):
        self.asked, self.choice = [], 0

    async def __call__(self, context, params):
        self.asked.append(params.message)
        if self.choice is None:
            return ElicitResult(action="decline")
        choice = params.requested_schema["properties"]["choice"]["enum"][self.choice]
        return ElicitResult(action="accept", content={"choice": choice})


async def drive(client, person, lifecycle):
    listed = {tool.name for tool in (await client.list_tools()).tools}
    expect("aegis.script.save" in listed, listed)

    async def save(name):
        return await client.call_tool("aegis.script.save", {"name": name, "code": "1"})

    name = f"python-{lifecycle}"
    saved = await save(name)
    expect(not saved.is_error, saved.content)
    expect("aegis.script.save" in person.asked[0], person.asked)
    print("approved: ok", flush=True)
    person.choice = 2
    denied = await save(f"{name}-2")
    expect("approval_denied" in denied.content[0].text, denied.content)
    print("denied: ok", flush=True)
    person.choice = 1
    question = {"question": f"Which way, {lifecycle}?", "options": ["left", "right"], "timeout_secs": 60}
    replied = await client.call_tool("ask_user", question)
    expect(replied.structured_content["selected"] == ["right"], replied.structured_content)
    expect(len(person.asked) == 3, person.asked)
    print("asked: ok", flush=True)


async def main(url, lifecycle):
    bearer = f"Bearer {os.environ['CREDENTIAL']}"
    async with create_mcp_http_client(headers={"Authorization": bearer}) as http:
        person = Person()
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=lifecycle, elicitation_callback=person) as client:
            await drive(client, person, lifecycle)


asyncio.run(main(*sys.argv[1:3]))
