// Drives hivekeep with the official TypeScript client over streamable HTTP, with a bearer
// credential, and answers what the daemon asks the person at the client.
//
// usage: CREDENTIAL=... drive_http.mjs URL
//
// The daemon lets that person approve (`policy.approvals.elicitation`), and a rule asks for an
// approval of `aegis.script.save`.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const url = new URL(process.argv[2]);
const bearer = `Bearer ${process.env.CREDENTIAL}`;

function transport(authorization) {
  return new StreamableHTTPClientTransport(url, { requestInit: { headers: { authorization } } });
}

for (const wrong of ["", `${bearer}x`]) {
  const stranger = new Client({ name: "stranger", version: "1" });
  await assert.rejects(stranger.connect(transport(wrong)), "a stranger was let in");
}
console.log("strangers: ok");

const client = new Client({ name: "http", version: "1" }, { capabilities: { elicitation: {} } });
const forms = [];
let person;
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  forms.push(params);
  return person(params);
});
await client.connect(transport(bearer));

const choose = (at) => ({ requestedSchema }) => ({
  action: "accept",
  content: { choice: requestedSchema.properties.choice.enum[at] },
});
const call = (name, args = {}) => client.callTool({ name, arguments: args });
const save = (name) => call("aegis.script.save", { name, code: "console.log(1)" });

const { tools } = await client.listTools();
assert.ok(tools.some(({ name }) => name === "aegis.script.save"), "it is not listed");

person = choose(0);
const saved = await save("typescript");
assert.ok(!saved.isError, JSON.stringify(saved));
assert.ok(forms[0].message.includes("aegis.script.save"), forms[0].message);
console.log("approved: ok");

person = choose(2);
const denied = await save("typescript-2");
assert.match(JSON.stringify(denied), /approval_denied/);
console.log("denied: ok");

person = choose(1);
const question = { question: "Which way?", options: ["left", "right"], timeout_secs: 60 };
const replied = await call("ask_user", question);
assert.deepEqual(replied.structuredContent.selected, ["right"]);
person = () => ({ action: "decline" });
const skipped = await call("ask_user", { ...question, question: "And now?" });
assert.equal(skipped.structuredContent.status, "skipped");
assert.equal(forms.length, 4);
console.log("asked: ok");

await client.close();
