// Drives hivekeep with the official TypeScript client, over stdio, as an agent would.
//
// usage: drive.mjs HIVEKEEP ISOLATION
//
// ISOLATION is `sandbox` or `vm`. The client itself checks every structured result
// against the tool's output schema.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [hivekeep, isolation] = process.argv.slice(2);
const client = new Client({ name: "drive", version: "1" });
await client.connect(
  new StdioClientTransport({ command: hivekeep, args: ["mcp", "--output-schemas"], env: process.env }),
);

async function call(name, args = {}) {
  // An emulated machine on a busy host needs longer than the client waits by itself, which is a minute.
  const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 300_000 });
  assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  return result.structuredContent;
}

async function commands(ws) {
  const ran = await call("exec", { workspace_id: ws, command: "echo out; echo err >&2; exit 3" });
  assert.deepEqual([ran.exit_code, ran.stdout, ran.stderr], [3, "out\n", "err\n"]);
  // The client gives up; the command must not go on without it.
  const given_up = new AbortController();
  const sleeper = client.callTool(
    { name: "exec", arguments: { workspace_id: ws, command: "exec sleep 4711" } },
    undefined,
    { signal: given_up.signal },
  );
  await until(async () => (await sleeping(ws)) === 1, "the command runs");
  given_up.abort("enough");
  await assert.rejects(sleeper);
  await until(async () => (await sleeping(ws)) === 0, "the cancelled command is gone");
}

// How many processes are the command that is given up, not a shell that names it.
async function sleeping(ws) {
  const is = `[ "$(tr '\\0' ' ' <$p/cmdline 2>/dev/null)" = "sleep 4711 " ]`;
  const command = `for p in /proc/[0-9]*; do ${is} && echo $p; done | wc -l`;
  return Number((await call("exec", { workspace_id: ws, command })).stdout);
}

async function until(holds, what) {
  for (let tries = 0; tries < 300; tries++) {
    if (await holds()) return;
    await pause(100);
  }
  assert.fail(`never: ${what}`);
}

async function files(ws) {
  const path = "/workspace/notes/a.txt";
  await call("file_write", { workspace_id: ws, path, content: "one\ntwo\n" });
  await call("file_edit", { workspace_id: ws, path, old_string: "two", new_string: "zwölf" });
  assert.equal((await call("file_read", { workspace_id: ws, path })).content, "one\nzwölf\n");
  const listed = await call("file_list", { workspace_id: ws, path: "/workspace/notes" });
  assert.deepEqual(listed.entries.map((entry) => entry.name), ["a.txt"]);
  const gone = { workspace_id: ws, path: "/workspace/gone" };
  const refused = await client.callTool({ name: "file_read", arguments: gone });
  assert.ok(refused.isError, "a file that is not there was read");
}

async function jobs(ws) {
  const job = (args) => call("exec_background", { workspace_id: ws, ...args });
  const { job_id } = await job({ action: "start", command: "echo begun; sleep 1; echo over" });
  let report;
  await until(async () => !(report = await job({ action: "poll", job_id })).running, "it ends");
  assert.deepEqual([report.exit_code, report.stdout], [0, "begun\nover\n"]);
}

const { tools } = await client.listTools();
assert.ok(tools.every((tool) => tool.outputSchema && tool.annotations), "a tool is half declared");
const name = `typescript-${isolation}-${process.pid}`;
const made = await call("workspace_create", { name, isolation });
assert.deepEqual([made.state, made.isolation], ["running", isolation]);
for (const part of [commands, files, jobs]) {
  await part(made.workspace_id);
  console.log(`${part.name}: ok`);
}
await call("workspace_destroy", { workspace_id: made.workspace_id });
console.log("destroyed: ok");
await client.close();
