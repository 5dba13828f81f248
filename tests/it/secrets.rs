//! Secrets, sent to a daemon in each way that one can come in, and then looked for in everything that it wrote.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::mpsc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use regex::bytes::Regex;
use serde_json::{Value, json};

use crate::{
    home::wait_until,
    http_api::{Api, bearer},
    wire::Wire,
};

/// Text that is no secret, kept where all that is kept is: the search finds it, or finds nothing.
const MARKER: &str = "Marker/of+what=is.kept";
/// A file that has a secret because that is what it is for.
const KEYS: [&str; 1] = ["state/mcp-token"];

/// Secrets by the way they come in. Each has what base64 and the encoding of URLs change.
struct Secrets(BTreeMap<&'static str, String>);

impl Secrets {
    fn of(ways: &[&'static str]) -> Self {
        let one = |(nth, way): (usize, &&'static str)| {
            (*way, format!("Zq7/kX+9v{nth:02}=2mWt4e8Rb{}Yc1", "xKd".repeat(nth % 3)))
        };
        Self(ways.iter().enumerate().map(one).collect())
    }

    fn get(&self, way: &str) -> &str {
        &self.0[way]
    }
}

/// What a text looks like as it is, in base64 wherever in its input it stands, and in a URL.
fn forms(text: &str) -> Vec<String> {
    let mut forms = vec![text.to_owned()];
    for before in 0..3 {
        let input = [&[b'.'; 3][..before], text.as_bytes()].concat();
        let encoded = STANDARD_NO_PAD.encode(&input);
        // Without the characters that what stands before and behind it has a part in.
        let from = [0, 2, 3][before];
        let core = encoded[from..encoded.len() - usize::from(input.len() % 3 != 0)].to_owned();
        forms.push(core.replace('+', "-").replace('/', "_"));
        forms.push(core);
    }
    forms.extend([
        url_encoded(text, ["%2F", "%2B", "%3D"]),
        url_encoded(text, ["%2f", "%2b", "%3d"]),
    ]);
    forms.push(text.replace('/', "\\/"));
    forms
}

fn url_encoded(text: &str, [slash, plus, equals]: [&str; 3]) -> String {
    text.replace('/', slash).replace('+', plus).replace('=', equals)
}

/// Looks for all forms of secrets at once; each with the way that it came in.
struct Search<'s> {
    any: Regex,
    ways: BTreeMap<String, &'s str>,
}

impl<'s> Search<'s> {
    fn of(secrets: &[(&'s str, &str)]) -> Self {
        let each =
            secrets.iter().flat_map(|(way, one)| forms(one).into_iter().map(|form| (form, *way)));
        let ways: BTreeMap<_, _> = each.collect();
        let literals: Vec<_> = ways.keys().map(|form| regex::escape(form)).collect();
        Self { any: Regex::new(&literals.join("|")).expect("literals"), ways }
    }

    /// What is found in a text, with what stands around it.
    fn found(&self, text: &[u8]) -> Vec<String> {
        let found = self.any.find_iter(text).map(|found| {
            let form = String::from_utf8_lossy(found.as_bytes()).into_owned();
            let around = &text[found.start().saturating_sub(200)..text.len().min(found.end() + 50)];
            format!("{} as {form}: {}", self.ways[&form], String::from_utf8_lossy(around))
        });
        found.take(3).collect()
    }
}

fn has(text: &[u8], part: &str) -> bool {
    Regex::new(&regex::escape(part)).expect("a literal").is_match(text)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("reads");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Everything that the daemon wrote and tells: its files, and what its commands and routes show.
fn everything(api: &Api) -> Vec<(String, Vec<u8>)> {
    let root = api.home.path("");
    let kept = files(&root).into_iter().filter_map(|path| {
        let name = path.strip_prefix(&root).expect("below it").display().to_string();
        let bytes = std::fs::read(&path).ok()?;
        (!KEYS.contains(&name.as_str())).then_some((name, bytes))
    });
    let told = [
        &["events", "--json"][..],
        &["logs", "--json"],
        &["audit", "list", "--json"],
        &["approvals", "--all", "--json"],
        &["approvals", "grants", "--json"],
        &["artifact", "list", "--json"],
        &["sessions", "--json"],
        &["credential", "list", "--json"],
        &["policy", "rules", "--json"],
        &["ps", "--json"],
        &["config"],
    ]
    .map(|args| (args.join(" "), api.home.ok(args).into_bytes()));
    let routes = [
        "/api/audit",
        "/api/audit/export",
        "/api/approvals?all=true",
        "/api/artifacts",
        "/api/sessions",
        "/api/chats",
        "/api/actors",
        "/api/policy/rules",
        "/api/grants",
    ]
    .map(|path| (path.to_owned(), api.get(&api.operator, path).text.into_bytes()));
    kept.chain(told).chain(routes).collect()
}

/// The ways, as calls: tool, input, and whether the caller is to be told of the secret.
fn calls(secrets: &Secrets) -> Vec<(&'static str, Value)> {
    let url = |way: &str, rest: &str| {
        let encoded = url_encoded(secrets.get(way), ["%2F", "%2B", "%3D"]);
        format!("http://somebody:{encoded}@127.0.0.1:9/{rest}")
    };
    let git = |token: Value| {
        json!({ "workspace_id": "w", "path": "r", "url": "http://127.0.0.1:9/r.git",
            "credential": { "username": "somebody", "token": token } })
    };
    let header = format!("Authorization: Bearer {}", secrets.get("header of a command"));
    vec![
        ("git_clone", git(json!(secrets.get("git credential")))),
        ("git_clone", git(json!([secrets.get("git credential of a wrong type")]))),
        ("git_clone", json!({ "workspace_id": "w", "path": "r", "url": url("git URL", "r.git") })),
        (
            "exec",
            json!({ "workspace_id": "w", "command": "true",
            "env": { "API_KEY": secrets.get("env of exec") } }),
        ),
        (
            "exec",
            json!({ "workspace_id": "w", "command": "true",
            "env": { "DB_PASSWORD": { "x": secrets.get("env of a wrong type") } } }),
        ),
        (
            "cmd_run",
            json!({ "command": "true", "env_additions": { "AUTH_TOKEN": secrets.get("env of cmd.run") } }),
        ),
        (
            "process_start",
            json!({ "command": "true",
            "env": [format!("CLIENT_SECRET={}", secrets.get("env of a process"))] }),
        ),
        ("cmd_run", json!({ "command": "curl", "args": ["-H", header, "http://127.0.0.1:9/"] })),
        ("web_fetch", json!({ "url": url("web URL", "page") })),
        ("workspace_list", json!({ "password": secrets.get("field that nobody knows") })),
    ]
}

const WAYS: [&str; 11] = [
    "git credential",
    "git credential of a wrong type",
    "git URL",
    "env of exec",
    "env of a wrong type",
    "env of cmd.run",
    "env of a process",
    "header of a command",
    "web URL",
    "field that nobody knows",
    "key of a provider",
];

/// A provider of searches that tells which key it was shown.
fn provider() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = format!("http://{}/search", listener.local_addr().expect("an address"));
    let (told, shown) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while let Some(Ok(line)) =
                lines.next().filter(|line| !matches!(line, Ok(text) if text.is_empty()))
            {
                if let Some((name, value)) = line.split_once(": ")
                    && name.eq_ignore_ascii_case("x-subscription-token")
                {
                    let _nobody_asks = told.send(value.to_owned());
                }
            }
            let body = r#"{"web":{"results":[]}}"#;
            let _gone = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (address, shown)
}

/// A daemon that keeps all it can, with a marker in what it keeps and a large result.
fn daemon(secrets: &Secrets, provider: &str) -> Api {
    let providers = json!([{ "kind": "brave", "url": provider, "key_env": "HIDDEN_PROVIDER_KEY" }]);
    let asks =
        json!([{ "name": "asks", "effect": "ask", "tools": ["git_clone", "exec", "cmd.run"] }]);
    let api = Api::with(&[
        ("HIVEKEEP_AUDIT__ENABLED", "true"),
        ("HIVEKEEP_DAEMON__LOG_LEVEL", "debug,rmcp=warn"),
        ("HIVEKEEP_DAEMON__FREE_SPACE_FLOOR_MB", "0"),
        ("HIVEKEEP_REGISTRY__RATE__ENABLED", "false"),
        ("HIVEKEEP_POLICY__RULES", &asks.to_string()),
        ("HIVEKEEP_WEB__PROVIDERS", &providers.to_string()),
        ("HIVEKEEP_WEB__ALLOW_NETWORKS", r#"["127.0.0.0/8"]"#),
        ("HIVEKEEP_WEB__PORTS", "[]"),
        ("HIVEKEEP_HTTP__MCP__ENABLED", "true"),
        ("HIVEKEEP_HTTP__MCP__BIND", "127.0.0.1:0"),
        ("HIDDEN_PROVIDER_KEY", secrets.get("key of a provider")),
    ]);
    let description = "\u{1}".repeat(2_048);
    for id in 0..360 {
        let script =
            json!({ "name": format!("s{id}"), "code": MARKER, "description": description });
        api.invoke(&api.session, "aegis_script_save", &json!({ "input": script })).of(200);
    }
    let large =
        api.invoke(&api.session, "aegis_script_list", &json!({ "input": { "limit": 500 } }));
    assert_eq!(large.of(200)["truncated"], true);
    api
}

/// Makes each call over HTTP: as it is, with a key, explained, and approved by a token that is used twice;
/// the tokens.
fn over_http(api: &Api, secrets: &Secrets) -> Vec<String> {
    let session = api.open(&api.session, &json!({}));
    let mut tokens = Vec::new();
    for (nth, (tool, input)) in calls(secrets).into_iter().enumerate() {
        let body = json!({ "session_id": session, "input": input });
        api.invoke(&api.session, tool, &body);
        let key = format!("key-{nth}");
        let headers = [("Authorization", &*bearer(&api.session)), ("Idempotency-Key", &key)];
        let path = format!("/api/tools/{tool}/invoke");
        api.raw("POST", &path, &headers, Some(&body.to_string()));
        let explained = json!({ "tool_id": tool, "session_id": session, "input": input });
        api.post(&api.operator, "/api/policy/explain", &explained);
        let minted = api.post(&api.operator, &format!("/api/tools/{tool}/approvals"), &body);
        // An input of a wrong type gets none.
        if minted.status == 201 {
            let token =
                minted.json()["approval"]["approval_token"].as_str().expect("a token").to_owned();
            let approved =
                json!({ "session_id": session, "input": input, "approval_token": token });
            for _ in 0..2 {
                api.invoke(&api.session, tool, &approved);
            }
            tokens.push(token);
        }
        for approval in api.get(&api.operator, "/api/approvals").of(200)["approvals"]
            .as_array()
            .expect("a list")
        {
            let path =
                format!("/api/approvals/{}/approve", approval["id"].as_str().expect("an id"));
            api.post(&api.operator, &path, &json!({ "why": "a test", "remember": "session" }))
                .of(200);
        }
        api.invoke(&api.session, tool, &body);
        api.invoke(&api.session, tool, &json!({ "input": input, "approval_token": "made-up" }));
    }
    tokens
}

/// Makes each call over MCP, where a person denies what waits, and over MCP's HTTP with a credential.
fn over_mcp(api: &Api, secrets: &Secrets) {
    let mut wire = Wire::mcp(&api.home);
    for (id, (tool, input)) in calls(secrets).into_iter().enumerate() {
        let params = json!({ "name": tool, "arguments": input });
        wire.send(
            &json!({ "jsonrpc": "2.0", "id": id + 10, "method": "tools/call", "params": params }),
        );
        if ["git_clone", "exec", "cmd_run"].contains(&tool) {
            // Those of a wrong type are refused before anybody is asked.
            wait_until("it is refused, or waits for a person", || {
                let waits = api.home.json(&["approvals", "--json"]);
                let Some(one) = waits.as_array().and_then(|all| all.first()) else {
                    return api
                        .home
                        .ok(&["audit", "list", "--json"])
                        .contains("\"door\":\"mcp_stdio\"");
                };
                api.home.ok(&[
                    "approvals",
                    "deny",
                    one["id"].as_str().expect("an id"),
                    "--why",
                    "a test",
                ]);
                true
            });
        }
        wire.answer(id as i64 + 10);
    }
    let url = api.home.json(&["status", "--json"])["mcp_http"].as_str().expect("open").to_owned();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    for token in [&api.session, &format!("{}x", api.session)] {
        let headers =
            [("Authorization", &*bearer(token)), ("Accept", "application/json, text/event-stream")];
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } } });
        let mut stream = std::net::TcpStream::connect(&address).expect("connects");
        let body = hello.to_string();
        let mut request = format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        stream.write_all(request.as_bytes()).expect("writes");
        assert!(matches!(crate::http_api::head(stream).0, 200 | 401));
    }
}

#[test]
fn no_secret_that_came_in_is_in_anything_that_was_written() {
    let secrets = Secrets::of(&WAYS);
    let (address, shown) = provider();
    let mut api = daemon(&secrets, &address);
    let tokens = over_http(&api, &secrets);
    assert!(tokens.len() > 5, "{tokens:?}");
    over_mcp(&api, &secrets);
    api.invoke(&api.session, "web_search", &json!({ "input": { "query": "hives" } }));
    let key = shown.recv_timeout(crate::home::PATIENCE).expect("the provider was asked");
    assert_eq!(key, secrets.get("key of a provider"), "it was used");
    // Credentials, also those that are none: near ones are no less secret.
    let near = format!("{}0", &api.operator[..api.operator.len() - 1]);
    api.get(&near, "/api/tools");

    let mut wanted: Vec<(&str, &str)> =
        secrets.0.iter().map(|(way, one)| (*way, one.as_str())).collect();
    wanted.extend(tokens.iter().map(|token| ("approval token", token.as_str())));
    for credential in [&api.operator, &api.session, &api.reader, &near] {
        wanted.push(("credential", credential.strip_prefix("hivekeep_").expect("its prefix")));
    }
    let search = Search::of(&wanted);
    // Twice: what is held back is written when the daemon ends.
    for run in ["it runs", "it has ended and begun again"] {
        let all = everything(&api);
        assert!(
            all.iter().any(|(place, text)| place.contains("journal") && has(text, MARKER)),
            "{run}"
        );
        assert!(
            all.iter().any(|(place, text)| place.contains("artifacts/") && text.len() > 4 << 20)
        );
        assert!(
            all.iter().any(|(place, text)| place.contains("log") && has(text, "DEBUG")),
            "{run}"
        );
        let leaks = all.iter().flat_map(|(place, text)| {
            search.found(text).into_iter().map(move |found| format!("in {place}: {found}"))
        });
        let leaks: Vec<_> = leaks.collect();
        assert!(leaks.is_empty(), "{run}:\n{}", leaks.join("\n\n"));
        api.home.ok(&["stop"]);
        api.daemon.as_mut().expect("it ran").wait();
        api.daemon = Some(api.home.daemon());
        api.find();
    }
}

#[test]
fn a_text_is_found_in_each_form_that_it_can_have() {
    let secret = "Zq7/kX+9v00=2mWt4e8RbYc1";
    for before in ["", "a", "ab", "user:"] {
        for behind in ["", "!", "!!"] {
            let encoded = STANDARD_NO_PAD.encode(format!("{before}{secret}{behind}"));
            let url = encoded.replace('+', "-").replace('/', "_");
            for text in [encoded, url] {
                assert_eq!(
                    Search::of(&[("a way", secret)]).found(text.as_bytes()).len(),
                    1,
                    "{text}"
                );
            }
        }
    }
    assert!(forms(secret).contains(&"Zq7%2FkX%2B9v00%3D2mWt4e8RbYc1".to_owned()));
}
