// Preloaded into testers that know no credentials: gives every request that has
// none the bearer token of the door under test.
//
// usage: BEARER_TOKEN=... NODE_OPTIONS="--import .../bearer.mjs" node TESTER

import http from "node:http";

const bearer = `Bearer ${process.env.BEARER_TOKEN}`;

// fetch, and the undici package: they share the dispatcher under this symbol,
// which Node makes with its first request.
await fetch("data:,");
const dispatcher = Symbol.for("undici.globalDispatcher.1");
globalThis[dispatcher] = globalThis[dispatcher].compose((dispatch) => (options, handler) => {
  const headers = options.headers ?? [];
  const list = Array.isArray(headers) ? headers : Object.entries(headers).flat();
  const given = list.some((name, at) => at % 2 === 0 && /^authorization$/i.test(name));
  return dispatch(given ? options : { ...options, headers: [...list, "authorization", bearer] }, handler);
});

// node:http.
const request = http.request;
http.request = (options, ...rest) =>
  request({ ...options, headers: { authorization: bearer, ...options.headers } }, ...rest);
