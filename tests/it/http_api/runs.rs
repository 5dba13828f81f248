//! Runs of DAGs, followed by their owner.

use serde_json::{Value, json};

use super::{Api, credential, events::Stream};

#[test]
fn a_run_is_followed_to_its_end_and_goes_on_where_a_client_left_it() {
    let api = Api::start();
    let text = "name: small\ntype: chain\nsteps: [{ action: noop }, { action: log.write, with: { message: hi } }]";
    let begun =
        api.invoke(&api.session, "dag_start", &json!({ "input": { "yaml": text } })).of(200);
    let id = begun["result"]["structured"]["run_id"].as_str().expect("an id").to_owned();
    let path = format!("/api/runs/{id}/events");
    let all = |headers: &[(&str, &str)]| -> Vec<(u64, String)> {
        let mut stream = Stream::at(&api, &api.session, &path, headers);
        std::iter::from_fn(|| stream.next()).map(|(id, kind, _)| (id, kind)).collect()
    };
    let whole = all(&[]);
    assert!(whole.iter().map(|(id, _)| *id).eq(1..=whole.len() as u64), "{whole:?}");
    let kinds: Vec<_> = whole.iter().map(|(_, kind)| kind.as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"run_begun"), Some(&"session_closed")));
    assert_eq!(kinds.iter().filter(|kind| **kind == "step_ended").count(), 2, "{kinds:?}");
    assert_eq!(all(&[("Last-Event-ID", "2")]), whole[2..]);

    let other = credential(&api.home, "other", "session");
    for token in [&other, &api.operator] {
        api.get(token, &path).plain(404);
    }
    api.get(&api.reader, &path).plain(403);
    let shown = json!({ "input": { "run_id": id } });
    let shown = api.invoke(&api.session, "dag_runs", &shown).of(200);
    let run: &Value = &shown["result"]["structured"]["run"];
    assert_eq!((&run["status"], &run["total_steps"]), (&json!("succeeded"), &json!(2)), "{run}");
}
