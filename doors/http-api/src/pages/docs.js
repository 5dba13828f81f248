// Shows the OpenAPI document of this daemon, and lets its operations be tried.
"use strict";

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const row = (...cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
const pretty = (value) => element("pre", {}, JSON.stringify(value, null, 2));
const credential = () => document.querySelector("#credential input").value.trim();

const example = (schema, schemas, depth = 0) => {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(schemas[schema.$ref.split("/").pop()], schemas, depth + 1);
  if (schema.example !== undefined) return schema.example;
  if (schema.type === "object") {
    const required = schema.required || [];
    const shown = Object.entries(schema.properties || {}).filter(([name]) => required.includes(name));
    return Object.fromEntries(shown.map(([name, below]) => [name, example(below, schemas, depth + 1)]));
  }
  const kinds = { string: "", integer: 0, number: 0, boolean: false, array: [] };
  return kinds[schema.type] ?? null;
};

const tried = async (path, method, fields, body, shown) => {
  const query = new URLSearchParams();
  const headers = {};
  let target = path;
  for (const { parameter, input } of fields) {
    if (input.value === "") continue;
    if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    if (parameter.in === "query") query.append(parameter.name, input.value);
    if (parameter.in === "header") headers[parameter.name] = input.value;
  }
  if (credential()) headers.Authorization = `Bearer ${credential()}`;
  if (body) headers["Content-Type"] = "application/json";
  const url = query.size ? `${target}?${query}` : target;
  try {
    const answer = await fetch(url, { method: method.toUpperCase(), headers, body: body?.value });
    const text = await answer.text();
    let content = text;
    try { content = JSON.stringify(JSON.parse(text), null, 2); } catch { /* It is no JSON. */ }
    shown.textContent = `${answer.status} ${answer.statusText}\n\n${content}`;
  } catch (error) {
    shown.textContent = String(error);
  }
};

const operation = (path, method, it, schemas) => {
  const fields = (it.parameters || []).map((parameter) => ({ parameter, input: element("input") }));
  const content = it.requestBody?.content?.["application/json"];
  const body = content && element("textarea", { spellcheck: "false" });
  if (body) body.value = JSON.stringify(example(content.schema, schemas), null, 2);
  const shown = element("pre");
  const button = element("button", { type: "button" }, "Send");
  button.addEventListener("click", () => tried(path, method, fields, body, shown));
  const answers = Object.entries(it.responses || {}).map(([status, answer]) =>
    row(element("code", {}, status), answer.description || ""));
  const lines = fields.map(({ parameter, input }) =>
    row(element("code", {}, parameter.name + (parameter.required ? " *" : "")), parameter.description || "", input));
  const streams = path.startsWith("/api/events");
  return element("details", { "data-text": `${method} ${path} ${it.summary || ""}`.toLowerCase() },
    element("summary", {}, element("span", { class: "method" }, method.toUpperCase()), element("code", {}, path),
      ` ${it.summary || ""}`, element("span", { class: "tag" }, (it.tags || []).join(", "))),
    element("p", {}, it.description || ""),
    element("table", {}, ...lines), ...(body ? [body] : []),
    ...(streams ? [] : [element("p", {}, button), shown]),
    element("h3", {}, "Answers"), element("table", {}, ...answers));
};

const show = (api) => {
  const schemas = api.components?.schemas || {};
  document.querySelector("#about").textContent = `${api.info.description} Version ${api.info.version}.`;
  const operations = document.querySelector("#operations");
  operations.replaceChildren();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const [method, it] of Object.entries(item)) operations.append(operation(path, method, it, schemas));
  }
  const list = document.querySelector("#schemas");
  for (const [name, schema] of Object.entries(schemas)) {
    list.append(element("details", {}, element("summary", {}, element("code", {}, name)), pretty(schema)));
  }
};

document.querySelector("#credential").addEventListener("submit", (event) => event.preventDefault());
document.querySelector("#filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const one of document.querySelectorAll("#operations details")) one.hidden = !one.dataset.text.includes(wanted);
});
fetch("/api/openapi.json").then((answer) => answer.json()).then(show);
