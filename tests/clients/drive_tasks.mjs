// Drives hivekeep with the official library for tasks (`@modelcontextprotocol/ext-tasks`) over
// streamable HTTP, with a bearer credential.
//
// usage: CREDENTIAL=... drive_tasks.mjs URL HIVEKEEP
//
// HIVEKEEP is the program, with which a person replies to what the calls ask. The library looks at
// every answer; the requests are made here, for it has no transport of its own.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { resultFromTaskOutcome, withTasks } from "@modelcontextprotocol/ext-tasks/client";

const [url, hivekeep] = process.argv.slice(2);
const revision = "2026-07-28";
const meta = {
  "io.modelcontextprotocol/protocolVersion": revision,
  "io.modelcontextprotocol/clientInfo": { name: "tasks", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": { extensions: { "io.modelcontextprotocol/tasks": {} } },
};

async function dispatch({ method, params }, { signal } = {}) {
  const response = await fetch(url, {
    method: "POST",
    signal,
    headers: {
      Authorization: `Bearer ${process.env.CREDENTIAL}`,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": revision,
      "Mcp-Method": method,
      "Mcp-Name": params.name ?? params.taskId,
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: randomUUID(),
      method,
      params: { ...params, _meta: { ...params._meta, ...meta } },
    }),
  });
  const lines = (await response.text()).split("\n").map((line) => line.replace(/^data: ?/, ""));
  const messages = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  const { result, error } = messages.find((message) => message.result ?? message.error);
  return error ? { kind: "error", error } : { kind: "result", result };
}

const never = () => () => {};
const session = withTasks({
  endpointId: "hivekeep",
  taskCapabilities: { generation: "v2", capabilities: {} },
  dispatch,
  onServerRequest: never,
  onNotification: never,
  onInvalidated: never,
  invalidated: false,
});

const ask = (question) =>
  session.callTool("ask_user", { question, options: ["left", "right"], timeout_secs: 300 });

const quick = await session.callTool("workspace_list", {});
assert.equal(quick.kind, "immediate");

const asked = await ask("Which way?");
assert.equal(asked.kind, "task");
const approvals = JSON.parse(execFileSync(hivekeep, ["approvals", "--json"]));
const waits = approvals.find(({ input }) => input.includes("Which way?"));
execFileSync(hivekeep, ["approvals", "answer", waits.id, "--select", "2"]);
const { outcome } = await asked.settle();
assert.deepEqual(resultFromTaskOutcome(outcome).structuredContent.selected, ["right"]);
console.log("ended: ok");

const unwanted = await ask("And now?");
await unwanted.cancel();
assert.equal((await unwanted.settle()).outcome.status, "cancelled");
console.log("cancelled: ok");

await assert.rejects(session.task(`deferred_${"0".repeat(32)}`).snapshot(), "there is no such task");
await session.close();
