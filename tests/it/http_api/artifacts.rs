//! Results that are too large, over HTTP: a truncated answer, and the whole as a file of its owner's.

use serde_json::{Value, json};

use super::{Answer, Api, bearer, credential};

/// Scripts whose list is larger than its budget of 4 MiB: as JSON, each has 12 KiB.
const SCRIPTS: usize = 360;

struct Large {
    api: Api,
    /// The answer to the call.
    answer: Value,
    uri: String,
}

/// A daemon that keeps a large result of the session's credential.
fn large() -> Large {
    let api = Api::with(&[
        ("HIVEKEEP_REGISTRY__RATE__ENABLED", "false"),
        // A host that runs tests may be short of space.
        ("HIVEKEEP_DAEMON__FREE_SPACE_FLOOR_MB", "0"),
    ]);
    let description = "\u{1}".repeat(2_048);
    for id in 0..SCRIPTS {
        let script = json!({ "name": format!("s{id}"), "code": "1", "description": description });
        api.invoke(&api.session, "aegis_script_save", &json!({ "input": script })).of(200);
    }
    let call = json!({ "input": { "limit": 500 }, "tool_call_id": "c1" });
    let answer = api.invoke(&api.session, "aegis_script_list", &call).of(200);
    let uri = answer["result"]["artifacts"][0]["uri"].as_str().expect("a URI").to_owned();
    Large { api, answer, uri }
}

fn ranged(api: &Api, token: &str, path: &str, range: &str) -> Answer {
    api.raw("GET", path, &[("Authorization", &bearer(token)), ("Range", range)], None)
}

#[test]
fn a_result_that_is_too_large_is_truncated_and_downloaded_whole_or_in_ranges() {
    let Large { api, answer, uri } = large();
    assert_eq!((&answer["status"], &answer["truncated"]), (&json!("completed"), &json!(true)));
    let result = &answer["result"];
    assert_eq!(result["truncated"], true);
    assert_eq!(result.get("structured"), None, "a part would look whole");
    let artifact = &result["artifacts"][0];
    assert_eq!(artifact["mime_type"], "application/json");
    assert_eq!(
        (&artifact["bytes"], &artifact["name"]),
        (&result["bytes"], &json!("aegis_script_list.json"))
    );
    assert_eq!(result["metadata"]["tool_call_id"], "c1");
    let redacted =
        json!([{ "path": "$", "reason": "result_budget_exceeded", "bytes": artifact["bytes"] }]);
    assert_eq!(result["redactions"], redacted);
    let preview = result["preview"].as_str().expect("a preview");
    assert!(preview.starts_with("{\"scripts\":[") && preview.len() <= 2_048, "{preview}");
    let events = answer["events"].as_array().expect("events");
    let kinds: Vec<_> =
        events.iter().map(|event| event["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["tool.call_started", "tool.call_completed", "tool.result_truncated"]);

    let whole = api.get(&api.session, &uri);
    assert_eq!(whole.status, 200);
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "bytes"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(whole.headers[name], value, "{name}");
    }
    let id = uri.rsplit('/').next().expect("an id");
    assert_eq!(whole.headers["content-disposition"], format!("attachment; filename=\"{id}.json\""));
    assert_eq!(whole.headers["content-length"], whole.text.len().to_string());
    assert_eq!(artifact["bytes"], whole.text.len());
    assert!(whole.text.starts_with(preview));
    assert_eq!(whole.json()["total"], SCRIPTS);

    let length = whole.text.len();
    let range = ranged(&api, &api.session, &uri, "bytes=2-8");
    assert_eq!((range.status, range.text.as_str()), (206, "scripts"));
    assert_eq!(range.headers["content-range"], format!("bytes 2-8/{length}"));
    let tail = ranged(&api, &api.session, &uri, "bytes=-300000");
    assert_eq!((tail.status, tail.text.len()), (206, 300_000), "more than is read at once");
    assert!(whole.text.ends_with(&tail.text));
    let beyond = ranged(&api, &api.session, &uri, &format!("bytes={length}-"));
    assert_eq!(beyond.headers["content-range"], format!("bytes */{length}"));
    beyond.plain(416);
    assert_eq!(ranged(&api, &api.session, &uri, "bytes=0-1,4-5").status, 200);

    // It is the same result as its user's sessions read over MCP.
    let resource = &result["metadata"]["artifact_resource_uri"];
    let read = json!({ "input": { "uri": resource, "length": 9 } });
    let read = api.invoke(&api.session, "artifact_read", &read).of(200);
    assert_eq!(read["result"]["structured"]["text"], "{\"scripts");
    api.invoke(&api.session, "artifact_delete", &json!({ "input": { "uri": resource } })).of(200);
    api.get(&api.session, &uri).plain(404);
}

#[test]
fn an_artifact_is_its_owners_and_the_operators_and_its_id_is_no_path() {
    let Large { api, uri, .. } = large();
    let id = uri.rsplit('/').next().expect("an id");
    let other = credential(&api.home, "other", "session");
    let nobody = "art_0192f0c1a2b37c4d8e5f60718293a4b5";
    for tail in ["", "/info"] {
        let ask = |token: &str, id: &str| api.get(token, &format!("/api/artifacts/{id}{tail}"));
        let theirs = ask(&other, id).plain(404).replace(id, "ID");
        assert_eq!(theirs, ask(&other, nobody).plain(404).replace(nobody, "ID"), "the same words");
        assert_eq!(ask(&api.session, id).status, 200);
        assert_eq!(ask(&api.operator, id).status, 200);
        assert_eq!(
            ranged(&api, &other, &format!("/api/artifacts/{id}{tail}"), "bytes=0-1").status,
            404
        );
    }
    assert_eq!(
        api.get(&other, "/api/artifacts").of(200),
        json!({ "artifacts": [], "total": 0, "next": null })
    );
    let own = api.get(&api.session, "/api/artifacts").of(200);
    assert_eq!((&own["total"], &own["artifacts"][0]["uri"]), (&json!(1), &json!(uri)));
    assert_eq!(own["artifacts"][0]["tool_id"], "aegis_script_list");
    // A read-only credential sees that it is there, and not what it says.
    assert_eq!(api.get(&api.reader, "/api/artifacts").of(200)["total"], 1);
    assert!(api.get(&api.reader, &uri).plain(403).contains("operator"));
    api.raw("GET", &uri, &[], None).plain(401);

    std::fs::write(api.home.path("state/artifacts/secret"), "not for you").expect("written");
    for trick in [
        "..%2f..%2fconfig.toml",
        "%2e%2e%2fmcp-token",
        "..",
        "%2e%2e",
        "secret",
        "%2fetc%2fpasswd",
        "..%5c..%5cmcp-token",
        &format!("{id}%00"),
        &format!("{id}%2f..%2fsecret"),
        &format!(".%2f{id}"),
        &format!("{id}.part"),
        &id.to_uppercase(),
        &format!("hivekeep:%2f%2fartifacts%2f{id}"),
        &"a".repeat(4_000),
    ] {
        for tail in ["", "/info"] {
            let answer = api.get(&api.operator, &format!("/api/artifacts/{trick}{tail}"));
            assert!(!answer.text.contains("not for you"), "{trick}");
            answer.plain(404);
        }
    }
    for query in ["?limit=0", "?limit=201", "?after=nothing", "?after=..%2fx"] {
        assert_eq!(
            api.get(&api.operator, &format!("/api/artifacts{query}")).code(400),
            "tool_invalid_input"
        );
    }
}

#[test]
fn a_result_that_finds_no_room_is_refused_as_too_large() {
    let api = Api::with(&[
        ("HIVEKEEP_REGISTRY__RATE__ENABLED", "false"),
        ("HIVEKEEP_DAEMON__FREE_SPACE_FLOOR_MB", "0"),
        ("HIVEKEEP_ARTIFACT__MAX_USER_MB", "1"),
    ]);
    let description = "\u{1}".repeat(2_048);
    for id in 0..SCRIPTS {
        let script = json!({ "name": format!("s{id}"), "code": "1", "description": description });
        api.invoke(&api.session, "aegis_script_save", &json!({ "input": script })).of(200);
    }
    let refused = api
        .invoke(&api.session, "aegis_script_list", &json!({ "input": { "limit": 500 } }))
        .of(422);
    assert_eq!(refused["error"]["code"], "tool_result_too_large");
    assert_eq!(refused["error"]["details"]["not_kept"]["code"], "artifacts_full", "{refused}");
}
