//! Receivers of a run's end.

use hivekeep_plan::progress::{
    RetryFrom,
    RunOutcome::{Failed, Succeeded},
};
use hivekeep_ports::{Mails, OutboundRequests};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{ALL, Stage, actions::FakeServers};
use crate::run::RunFold;

async fn served() -> (Stage, FakeServers) {
    let servers = FakeServers::default();
    let offered = servers.clone();
    let stage = Stage::offering(move |ports| {
        ports.offer::<dyn OutboundRequests>(std::sync::Arc::new(offered.clone()));
        ports.offer::<dyn Mails>(std::sync::Arc::new(offered.clone()));
    })
    .await;
    (stage, servers)
}

async fn closed(stage: &Stage, run: &RunFold) -> Vec<&'static str> {
    let id = run.begun.id;
    let names = async || {
        let page = stage.runs().events(ALL, id, 0, 1_000).await.expect("read");
        page.events.into_iter().map(|event| event.event.event_type).collect::<Vec<_>>()
    };
    eventually("it is closed", async || names().await.last() == Some(&"session_closed")).await;
    names().await.into_iter().filter(|name| name.starts_with("delivery")).collect()
}

const TEXT: &str = r#"
name: told
type: chain
working_dir: .
mail_on: { failure: true, success: true }
error_mail: { to: ops@example.org, prefix: "[bad]" }
info_mail: { to: [a@example.org, b@example.org] }
delivery:
  destinations:
  - { name: chat, condition: on_success, webhook: { url: "https://a/soon", body: { text: "${context.run.status} ${steps.a.outputs.v}" }, retry: { max_attempts: 2, backoff: 1ms } } }
  - { name: all, rest: { url: "https://a/all", method: PUT, headers: { X-Run: "${context.run.id}" } } }
  - { name: never, condition: on_failure, webhook: { url: "https://a/never" } }
steps:
- { id: a, run: "echo 'v=a \"b\"' >> $DAGU_OUTPUT_FILE", outputs: [{ name: v }] }
- { id: b, run: "test -e mended || exit 3" }
"#;

#[tokio::test]
async fn an_end_is_told_to_those_who_are_to_know_it_each_once() {
    let (stage, servers) = served().await;
    let run = stage.ran(TEXT, Value::Null).await;
    assert_eq!(run.outcome(), Some(Failed));
    let told = closed(&stage, &run).await;
    let one = ["delivery_started", "delivery_completed"];
    assert_eq!(told, [one.as_slice(), &["delivery_started", "delivery_failed"], &one].concat());
    let id = run.begun.id;
    {
        let (requests, mails) = servers.sent();
        assert_eq!((requests.len(), mails.len()), (2, 1), "{requests:?}");
        assert_eq!(requests[0].headers["X-Run"], id.to_string());
        assert_eq!((&*requests[0].method, &*requests[0].key), ("PUT", &*format!("{id}-0-1")));
        let body: Value = serde_json::from_str(&requests[0].body).expect("JSON");
        assert_eq!(
            (&body["status"], &body["run_id"], &body["errors"]),
            (&json!("failed"), &json!(id), &json!(["b: its command ended with status 3"]))
        );
        assert_eq!(
            (&*mails[0].subject, &mails[0].to[..]),
            ("[bad] told: failed", &["ops@example.org".to_owned()][..])
        );
        assert!(mails[0].body.contains("b: its command ended with status 3"), "{}", mails[0].body);
    }
    std::fs::write(stage.guest.folder().join("mended"), "").expect("written");
    stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("it goes on");
    assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    let told = closed(&stage, &run).await;
    let again = ["delivery_started", "delivery_retried", "delivery_started", "delivery_completed"];
    assert_eq!(told[6..], [again.as_slice(), &one, &one].concat());
    let (requests, mails) = servers.sent();
    let bodies: Vec<_> = requests[2..].iter().map(|it| (&*it.url, &*it.body, &*it.key)).collect();
    let key = format!("{id}-1-0");
    let chat = ("https://a/soon", r#"{"text":"succeeded a \"b\""}"#, &*key);
    assert_eq!(bodies[..2], [chat, chat], "the same key for a second attempt");
    assert_eq!((mails.len(), mails[1].to.len(), &*mails[1].subject), (2, 2, "told: succeeded"));
}

/// The daemon dies behind any of the last records: each receiver is told, under one key.
#[tokio::test]
async fn a_daemon_that_dies_tells_each_receiver_at_least_once() {
    for behind in 0..7 {
        let (mut stage, servers) = served().await;
        let id = stage.begin(&TEXT.replace("exit 3", "true"), Value::Null).await.expect("begun");
        let over = stage.over(id).await;
        let names = async |stage: &Stage| {
            let page = stage.runs().events(ALL, id, 0, 1_000).await.expect("read");
            page.events.iter().filter(|it| it.event.event_type.starts_with("delivery")).count()
        };
        while names(&stage).await < behind {
            tokio::task::yield_now().await;
        }
        stage.rig = stage.rig.crashed().await;
        let _events = closed(&stage, &over).await;
        let (requests, mails) = servers.sent();
        let mut keys: Vec<_> =
            requests.iter().map(|it| &it.key).chain(mails.iter().map(|it| &it.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(
            keys,
            [0, 1, 4].map(|place| format!("{id}-0-{place}")).iter().collect::<Vec<_>>(),
            "behind {behind}"
        );
    }
}

#[tokio::test]
async fn what_no_run_obeys_of_receivers_is_refused_by_its_name() {
    let (stage, servers) = served().await;
    for (keys, named) in [
        ("mail_on: { wait: true }", "`mail_on.wait`"),
        ("mail_on: { failure: true }", "`error_mail.to`"),
        ("mail_on: { success: true }\ninfo_mail: { to: a@b, attach_logs: true }", "attach_logs"),
        ("delivery: { destinations: [{ name: a, sms: { to: '1' } }] }", "`sms`"),
        (
            "delivery: { destinations: [{ name: a, transform: { script: x }, rest: { url: x } }] }",
            "`transform`",
        ),
        (
            "delivery: { destinations: [{ name: a, rest: { url: x, retry: { max_attempts: 99 } } }] }",
            "`retry`",
        ),
    ] {
        let run = stage.ran(&format!("{keys}\nsteps: [{{ run: touch no }}]\n"), Value::Null).await;
        let refused = run.refused().map(|error| error.message.clone()).unwrap_or_default();
        assert!(refused.contains(named), "{keys}: {refused}");
    }
    let (requests, mails) = servers.sent();
    assert!(requests.is_empty() && mails.is_empty() && stage.file("no").is_none());
}
