//! Webhooks: requests that begin runs of watched files.

use std::collections::BTreeMap;

use hivekeep_kernel::{CredentialId, RunId, User};
use hivekeep_plan::progress::RunOutcome::Succeeded;
use hivekeep_ports::{WebhookRefusal, WebhookRequest, WebhookTarget};

use super::{Stage, schedules::STEP};
use crate::{Options, RunTrigger, webhooks::WebhookKeys};

const TOLD: &str = "steps: [{ run: \"printf '%s|%s' \\\"$WEBHOOK_PAYLOAD\\\" \\\"$WEBHOOK_HEADERS\\\" > told\" }]\n";

struct Hook {
    id: CredentialId,
    keys: WebhookKeys,
}

impl Hook {
    fn new() -> Self {
        Self { id: CredentialId::new(), keys: WebhookKeys::default() }
    }

    async fn ask(
        &self,
        stage: &Stage,
        key: Option<&str>,
        body: &str,
    ) -> Result<RunId, WebhookRefusal> {
        let named = |text: &str| text.to_owned();
        let target = WebhookTarget {
            dag: named("hooked"),
            place: named("here"),
            file: named("dags/a.yaml"),
        };
        let headers = [("x-event", "push"), ("x-other", "no"), ("authorization", "Bearer x")];
        let headers: BTreeMap<_, _> =
            headers.map(|(name, value)| (named(name), vec![named(value)])).into();
        let request = WebhookRequest {
            hook: self.id,
            target,
            key: key.map(str::to_owned),
            body: body.to_owned(),
            headers,
        };
        self.keys.begin(&stage.folders(), request).await
    }
}

#[tokio::test]
async fn a_body_is_text_of_the_run_whatever_it_holds() {
    let stage = Stage::watching().await;
    let hook = Hook::new();
    let keys =
        "name: hooked\nworking_dir: .\nwebhook: { forward_headers: [X-Event, Authorization] }\n";
    let typed = "params: [{ name: n, type: integer, default: 1 }]\n";
    let own = "params: [{ name: WEBHOOK_PAYLOAD, type: string }]\n";
    for (params, body, payload) in [
        ("", r#"{"a": 1, "b": "x' $(date) `y`"}"#, r#"{"a":1,"b":"x' $(date) `y`"}"#),
        (typed, r#"{"payload": {"branch": "main"}, "other": 1}"#, r#"{"branch":"main"}"#),
        (own, "[1, 2]", "[1,2]"),
        ("", "not ${DAG_NAME}\n", "not ${DAG_NAME}\n"),
        (typed, "", "{}"),
    ] {
        stage.write("a.yaml", &format!("{keys}{params}{TOLD}"));
        stage.look().await;
        let id = hook.ask(&stage, None, body).await.expect("begun");
        let over = stage.over(id).await;
        assert_eq!(over.outcome(), Some(Succeeded), "{body}: {:#?}", over.left);
        assert_eq!(over.begun.user, User::Uid(0), "the file's owner");
        let told = format!(r#"{payload}|{{"x-event":["push"]}}"#);
        assert_eq!(stage.file("told").as_deref(), Some(&*told), "{body}");
    }
}

#[tokio::test]
async fn a_key_begins_one_run_also_for_a_daemon_that_died_and_for_many_at_a_time() {
    let mut stage = Stage::watching().await;
    stage.write("a.yaml", &format!("name: hooked\n{STEP}"));
    stage.look().await;
    let hook = Hook::new();
    let both = tokio::join!(hook.ask(&stage, Some("k"), "{}"), hook.ask(&stage, Some("k"), ""));
    let (Ok(first), Ok(second)) = both else { panic!("{both:?}") };
    assert_eq!(first, second);
    stage.over(first).await;
    for _ in 0..2 {
        stage.rig = stage.rig.crashed().await;
        // The keys are those of the runs.
        let hook = Hook { id: hook.id, keys: WebhookKeys::default() };
        assert_eq!(hook.ask(&stage, Some("k"), "{}").await.expect("known"), first);
        let reused = hook.ask(&stage, Some("k"), "other").await;
        assert!(matches!(reused, Err(WebhookRefusal::KeyReused)), "{reused:?}");
        let other = Hook::new().ask(&stage, Some("k"), "{}").await.expect("another's");
        assert_ne!(other, first);
        stage.over(other).await;
    }
    assert_eq!(stage.file("done").map(|done| done.lines().count()), Some(3));
    let run = stage.runs().0.get(super::ALL, &first.to_string()).expect("there").state;
    let trigger = RunTrigger::Webhook { hook: hook.id, key: Some("k".to_owned()) };
    assert_eq!(run.begun.trigger, trigger);
    let again = RunId::new();
    let (told, _) = stage.runs().told(super::ALL, &first.to_string()).await.expect("read");
    let of = (User::Uid(0), hivekeep_kernel::SessionId::new());
    stage.runs().begin_again(&told.state, again, of).await.expect("begun");
    assert_eq!(stage.over(again).await.begun.given["WEBHOOK_PAYLOAD"], "{}");
}

#[tokio::test]
async fn a_flood_is_refused_and_so_is_what_is_not_there_or_not_valid() {
    let options =
        Options { folders: vec!["here".to_owned()], max_running: 4, ..Options::default() };
    let stage = Stage::bounded(options).await;
    let hook = Hook::new();
    let gone = hook.ask(&stage, None, "").await;
    assert!(matches!(gone, Err(WebhookRefusal::NotThere)), "{gone:?}");
    stage.write("a.yaml", "name: hooked\nworking_dir: .\nsteps: [{ run: 'while test ! -e go; do sleep 0.02; done' }]\n");
    stage.look().await;
    let mut begun = Vec::new();
    for n in 0..20 {
        match hook.ask(&stage, Some(&n.to_string()), "{}").await {
            Ok(id) => begun.push(id),
            Err(refusal) => assert!(matches!(refusal, WebhookRefusal::Full(_)), "{refusal:?}"),
        }
    }
    assert_eq!(begun.len(), 3, "one place is left to others");
    std::fs::write(stage.guest.folder().join("go"), "").expect("written");
    for id in begun {
        assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    }
    // Whoever was refused may use the key again.
    hook.ask(&stage, Some("19"), "{}").await.expect("begun");
    stage.write("a.yaml", "name: hooked\nsteps: [{ runn: x }]\n");
    let invalid = hook.ask(&stage, None, "").await;
    assert!(matches!(invalid, Err(WebhookRefusal::Invalid(_))), "{invalid:?}");
}
