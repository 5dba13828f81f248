//! Actions that are no commands and ask nobody.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError, User, codes::RATE_LIMITED, lock};
use hivekeep_plan::progress::RunOutcome::{Aborted, Failed, Succeeded};
use hivekeep_ports::{Mail, Mails, OutboundAnswer, OutboundRequest, OutboundRequests};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{ALL, Stage};
use crate::run::RunFold;

/// Servers of the web and of mails, with what they were sent.
#[derive(Clone, Default)]
pub(super) struct FakeServers(Arc<Mutex<(Vec<OutboundRequest>, Vec<Mail>)>>);

impl FakeServers {
    /// What was sent so far.
    pub(super) fn sent(&self) -> (Vec<OutboundRequest>, Vec<Mail>) {
        lock(&self.0).clone()
    }
}

#[async_trait]
impl OutboundRequests for FakeServers {
    async fn send(&self, request: OutboundRequest) -> Result<OutboundAnswer, ToolError> {
        let count = {
            let mut sent = lock(&self.0);
            sent.0.push(request.clone());
            sent.0.iter().filter(|it| it.url == request.url).count()
        };
        let refused = |status: u16| {
            let error = ToolError::new(Layer::Result, RATE_LIMITED, "no").detail("status", status);
            Err(if status == 503 { error.retryable() } else { error })
        };
        match request.url.as_str() {
            url if url.ends_with("/never") => refused(404),
            url if url.ends_with("/soon") && count < 2 => refused(503),
            _ => Ok(OutboundAnswer {
                status: 200,
                headers: BTreeMap::from([("x-a".to_owned(), "b".to_owned())]),
                body: r#"{"name": "Ann"}"#.to_owned(),
            }),
        }
    }
}

#[async_trait]
impl Mails for FakeServers {
    async fn send(&self, _: User, mail: Mail) -> Result<String, ToolError> {
        lock(&self.0).1.push(mail);
        Ok("<1@here>".to_owned())
    }
}

fn error(run: &RunFold) -> String {
    let mut errors = run.left.values().filter_map(|left| left.error.clone());
    errors.next().map_or_else(String::new, |error| error.message)
}

#[tokio::test]
async fn files_are_written_read_and_changed_as_their_settings_say() {
    let stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
params: [{ name: who, type: string, default: "it's $HOME `x`" }]
steps:
- { id: w, action: file.write, with: { path: "a b/c.txt", content: "${params.who}\n", create_dirs: true, mode: "0640" }, output: W }
- { action: file.copy, with: { source: "a b", destination: d, recursive: true } }
- { action: file.move, with: { source: d/c.txt, destination: d/e.csv } }
- { id: l, action: file.list, with: { path: ., recursive: true, pattern: "**/*.{txt,csv}" }, output: { n: { from: stdout, decode: json, select: .count }, first: { from: stdout, decode: json, select: ".entries[0].path" } } }
- { id: s, action: file.stat, with: { path: "a b/c.txt" }, output: { mode: { from: stdout, decode: json, select: .mode } } }
- { id: r, action: file.read, with: { path: d/e.csv }, stdout: read.txt }
- { action: file.mkdir, with: { path: made/deep } }
- { action: file.delete, with: { path: made, recursive: true } }
- { action: file.delete, with: { path: made, missing_ok: true } }
- { action: file.write, with: { path: not, content: x, dry_run: true } }
- { action: artifact.write, with: { path: r/x.md, content: "X: y" } }
- { id: ar, action: artifact.read, with: { path: r/x.md } }
- { id: al, action: artifact.list, with: { recursive: true }, output: { path: { from: stdout, decode: json, select: ".entries[0].path" } } }
- { run: "echo made", stdout: { artifact: s/t.txt } }
- { run: "printf '%s|' '${l.output.n}' '${l.output.first}' '${s.output.mode}' \"$(cat ${ar.stdout})\" '${al.output.path}' \"$(cat $DAG_RUN_ARTIFACTS_DIR/s/t.txt)\" > told" }
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("read.txt").as_deref(), Some("it's $HOME `x`\n"));
    assert_eq!(stage.file("told").as_deref(), Some("2|a b/c.txt|0640|X: y|r/x.md|made|"));
    assert!(stage.file("d/c.txt").is_none() && stage.file("not").is_none());
    assert!(!stage.guest.folder().join("made").exists());
    for (step, why) in [
        ("file.write, with: { path: read.txt, content: x }", "set overwrite to true"),
        ("file.write, with: { path: no/x, content: x }", "set create_dirs to true"),
        ("file.write, with: { path: x, content: x, mode: rwx }", "octal"),
        ("file.read, with: { path: gone }", "there is no file"),
        ("file.read, with: { path: read.txt, max_bytes: 3 }", "larger than 3"),
        ("file.copy, with: { source: d, destination: f }", "set recursive to true"),
        ("file.copy, with: { source: d, destination: d/f, recursive: true }", "is within"),
        ("file.copy, with: { source: told, destination: ./told, overwrite: true }", "the same"),
        ("file.delete, with: { path: d }", "set recursive to true"),
        ("file.delete, with: { path: /, recursive: true }", "the root"),
        ("file.stat, with: { path: gone }", "there is no file"),
        ("artifact.write, with: { path: ../x, content: x }", "not a path among"),
    ] {
        let run =
            stage.ran(&format!("working_dir: .\nsteps: [{{ action: {step} }}]"), Value::Null).await;
        assert_eq!(run.outcome(), Some(Failed), "{step}");
        assert!(error(&run).contains(why), "{step}: {run:#?}");
    }
    assert_eq!(stage.file("read.txt").as_deref(), Some("it's $HOME `x`\n"), "nothing was changed");
}

#[tokio::test]
async fn texts_are_made_by_templates_and_filters() {
    let stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
steps:
- { id: t, action: template.render, with: { template: "Hi ${X} {{ .name | upper }}", data: { name: "${params.n}" } }, output: T }
- { action: template.render, with: { template: "{{ .n }}", data: { n: 1 }, output: out/t.txt } }
- { id: raw, run: "echo '{\"items\": [{\"v\": 1}, {\"v\": 2}]}'" }
- { id: j, action: jq.filter, with: { filter: ".items | map(.v) | add", data: { items: [{ v: 3 }] } }, output: J }
- { id: k, action: jq.filter, with: { filter: ".items[].v", data: '{"items": [{"v": "x"}]}', raw: true }, output: K }
- { run: "printf '%s|' \"$T\" \"$J\" \"$K\" \"$(cat out/t.txt)\" > told" }
params: [{ name: n, default: ann }]
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("told").as_deref(), Some("Hi ${X} ANN|3|x|1|"));
    for (step, why) in [
        ("template.render, with: { template: '{{ .gone }}' }", "gone"),
        ("jq.filter, with: { filter: '.[', data: 1 }", "cannot be read"),
        ("jq.filter, with: { filter: ., input: gone }", "there is no file"),
    ] {
        let run =
            stage.ran(&format!("working_dir: .\nsteps: [{{ action: {step} }}]"), Value::Null).await;
        assert!(error(&run).contains(why), "{step}: {run:#?}");
    }
}

#[tokio::test]
async fn state_outlives_runs_and_daemons_and_has_versions() {
    let mut stage = Stage::new().await;
    let text = r#"
name: counter
type: chain
working_dir: .
steps:
- { id: get, action: state.get, with: { key: n, default: none }, output: { v: { from: stdout, decode: json, select: .value } } }
- { id: set, action: state.set, with: { key: n, value: { seen: "${get.output.v}" } }, output: { v: { from: stdout, decode: json, select: .version } } }
- { id: diff, action: state.diff, with: { key: m, value: [1], update: true }, output: { c: { from: stdout, decode: json, select: .changed } } }
- { run: "printf '%s|' '${get.output.v}' '${set.output.v}' '${diff.output.c}' >> told" }
"#;
    for _ in 0..2 {
        let run = stage.ran(text, Value::Null).await;
        assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
        stage.rig = stage.rig.crashed().await;
    }
    let expected = r#"none|1|true|{"seen":"none"}|2|false|"#;
    assert_eq!(stage.file("told").as_deref(), Some(expected));
    for (with, action, outcome) in [
        ("{ key: n, value: 1, expected_version: 1 }", "set", Failed),
        ("{ key: n, value: 1, expected_version: 2 }", "set", Succeeded),
        ("{ key: n, value: 1, create_only: true }", "set", Failed),
        ("{ key: gone, required: true }", "get", Failed),
        ("{ key: n, scope: global, required: true }", "get", Failed),
        ("{ key: n, scope: custom, namespace: counter, required: true }", "get", Succeeded),
        ("{ prefix: n, include_values: true }", "list", Succeeded),
        ("{ key: n }", "delete", Succeeded),
        ("{ key: n, required: true }", "get", Failed),
    ] {
        let text = format!("name: counter\nsteps: [{{ action: state.{action}, with: {with} }}]");
        let run = stage.ran(&text, Value::Null).await;
        assert_eq!(run.outcome(), Some(outcome), "{action} {with}: {}", error(&run));
    }
    let large = format!(
        "steps: [{{ action: state.set, with: {{ key: n, value: {} }} }}]",
        "x".repeat(70_000)
    );
    assert!(error(&stage.ran(&large, Value::Null).await).contains("are allowed"));
}

/// The daemon dies behind each record: a value is set once.
#[tokio::test]
async fn state_is_set_once_however_the_daemon_dies() {
    let text = "name: c\nsteps: [{ action: state.set, with: { key: n, value: 1 }, output: { v: { from: stdout, decode: json, select: .version } } }]";
    for behind in 1..8 {
        let mut stage = Stage::new().await;
        let id = stage.begin(text, Value::Null).await.expect("begun");
        while stage.runs().events(ALL, id, 0, 100).await.map_or(0, |page| page.total) < behind {
            tokio::task::yield_now().await;
        }
        stage.rig = stage.rig.crashed().await;
        let run = stage.over(id).await;
        assert_eq!(run.outcome(), Some(Succeeded), "behind {behind}: {:#?}", run.left);
        let get = text.replace("state.set", "state.get").replace(", value: 1", "");
        let run = stage.ran(&get, Value::Null);
        let version = run.await.left.values().find_map(|left| left.output.clone());
        assert_eq!(version, Some(json!({ "v": 1 })), "behind {behind}");
    }
}

#[tokio::test]
async fn a_wait_is_a_time_in_the_records_or_a_look() {
    let mut stage = Stage::new().await;
    let text = "type: chain\nworking_dir: .\nsteps:\n\
        - { id: w, action: wait.duration, with: { duration: 1500ms }, preconditions: ['echo x >> judged'] }\n\
        - { run: touch after }";
    let (began, id) = (Instant::now(), stage.begin(text, Value::Null).await.expect("begun"));
    let paused = || {
        let state = stage.runs().0.get(ALL, &id.to_string()).expect("it is there").state;
        state.work().is_some_and(|work| work.progress.wakes_at().is_some())
    };
    while !paused() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stage.rig = stage.rig.crashed().await;
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert!(began.elapsed() >= Duration::from_millis(1_500) && stage.file("after").is_some());
    assert_eq!(stage.file("judged").as_deref(), Some("x\n"), "conditions are judged once");

    let text = "type: graph\nworking_dir: .\nsteps:\n\
        - { id: f, action: wait.file, with: { path: flag } }\n\
        - { id: g, run: sleep 0.2; touch flag }\n\
        - { id: u, action: wait.until, with: { until: '2020-01-02T03:04:05Z' } }";
    assert_eq!(stage.outcome(text).await, Succeeded);
    for (step, why) in [
        ("wait.file, with: { path: never }, timeout_sec: 1", "ran out of its time"),
        ("wait.duration, with: { duration: soon }", "time span"),
        ("wait.until, with: { until: tomorrow }", "a time as"),
        ("wait.duration, with: { duration: 9999999h }", "days away"),
    ] {
        let run =
            stage.ran(&format!("working_dir: .\nsteps: [{{ action: {step} }}]"), Value::Null).await;
        assert!(error(&run).contains(why), "{step}: {run:#?}");
    }
    let id = stage
        .begin("steps: [{ action: wait.duration, with: { duration: 1h } }]", Value::Null)
        .await;
    let id = id.expect("begun");
    tokio::time::sleep(Duration::from_millis(100)).await;
    stage.runs().stop(ALL, id).await.expect("written");
    assert_eq!(stage.over(id).await.outcome(), Some(Aborted));
}

#[tokio::test]
async fn requests_and_mails_are_sent_for_the_owner() {
    let stage = Stage::new().await;
    let servers = FakeServers::default();
    stage.rig.daemon.ports.offer::<dyn OutboundRequests>(Arc::new(servers.clone()));
    stage.rig.daemon.ports.offer::<dyn Mails>(Arc::new(servers.clone()));
    let text = r#"
type: chain
working_dir: .
steps:
- { id: h, action: http.request, with: { method: post, url: "https://a.test/x", query: { q: "a b" }, headers: { X-T: "${params.t}" }, body: "{}", silent: true }, output: { n: { from: stdout, decode: json, select: .name } } }
- { id: j, action: http.request, with: { method: GET, url: "https://a.test/y", format: json }, output: { s: { from: stdout, decode: json, select: .status_code } } }
- { id: w, action: wait.http, with: { url: "https://a.test/soon" } }
- { id: m, action: mail.send, with: { to: [a@b.test], from: me@b.test, subject: "Hi ${h.output.n}", message: "${j.output.s}" } }
- { id: p, type: http, command: "GET https://a.test/z", config: { silent: true } }
params: [{ name: t, default: "1" }]
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    let sent = lock(&servers.0).clone();
    let first = &sent.0[0];
    assert_eq!((first.method.as_str(), first.url.as_str()), ("POST", "https://a.test/x?q=a+b"));
    assert_eq!(first.headers.get("X-T").map(String::as_str), Some("1"));
    assert_eq!(sent.0.len(), 5, "{:?}", sent.0);
    assert_eq!((&*sent.1[0].subject, &*sent.1[0].body), ("Hi Ann", "200"));
    assert_eq!(sent.1[0].reply_to.as_deref(), Some("me@b.test"));
    for (step, outcome, why) in [
        (
            "http.request, with: { method: GET, url: 'https://a.test/never' }, continue_on: { exit_code: [1] }",
            Some(1),
            "no",
        ),
        ("http.request, with: { method: GET, url: nowhere }", Some(1), "not a URL"),
        (
            "http.request, with: { method: GET, url: 'https://a.test', skip_tls_verify: true }",
            Some(1),
            "is not here",
        ),
        (
            "wait.http, with: { url: 'https://a.test/never' }, timeout_sec: 1",
            Some(1),
            "404 answered, not 200",
        ),
        (
            "mail.send, with: { to: a@b.test, subject: a, message: b, attachments: [x] }",
            Some(1),
            "is not here",
        ),
    ] {
        let run = stage.ran(&format!("steps: [{{ action: {step} }}]"), Value::Null).await;
        assert!(error(&run).contains(why), "{step}: {run:#?}");
        let node =
            run.work().and_then(|work| work.progress.node(hivekeep_plan::plan::NodeIndex(0)));
        let code = node.and_then(|node| match &node.phase {
            hivekeep_plan::progress::NodePhase::Ended(result) => result.exit_code,
            _ => None,
        });
        assert_eq!(code, outcome, "{step}");
    }
}

#[tokio::test]
async fn worktrees_are_added_once_and_removed() {
    let stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
env: [{ GIT_AUTHOR_NAME: a }, { GIT_AUTHOR_EMAIL: a@b.test }, { GIT_COMMITTER_NAME: a }, { GIT_COMMITTER_EMAIL: a@b.test }]
steps:
- { run: "git init -q r && cd r && echo x > f && git add f && git commit -q -m one" }
- { id: a, working_dir: ./r, action: git.worktree.add }
- { id: b, working_dir: ./r, action: git.worktree.add, with: { branch: f/x, create_branch: true, base: HEAD-none }, continue_on: failed }
- { id: c, working_dir: ./r, action: git.worktree.add, with: { branch: f/x, create_branch: true, path: ../w } }
- { id: d, working_dir: ./r, action: git.worktree.add, with: { branch: f/x, path: ../w } }
- { run: "printf '%s|' \"$(cat ${steps.a.outputs.path}/f)\" ${steps.a.outputs.branch_created} ${steps.c.outputs.worktree_created} ${steps.d.outputs.worktree_created} ${steps.d.outputs.branch_created} > told; echo y > w/f" }
- { id: e, working_dir: ./r, action: git.worktree.remove, with: { path: ../w }, continue_on: failed }
- { id: f, working_dir: ./r, action: git.worktree.remove, with: { path: ../w, branch: f/x, force: true, delete_branch: true } }
- { id: g, working_dir: ./r, action: git.worktree.remove, with: { branch: f/x } }
- { run: "printf '%s|' ${steps.f.outputs.worktree_removed} ${steps.f.outputs.branch_deleted} ${steps.g.outputs.worktree_removed} >> told; git -C r branch --list 'f/*' >> told" }
"#;
    let run = stage.ran(text, Value::Null).await;
    let told = stage.file("told");
    let expected = "x|true|true|false|false|true|true|false|";
    assert_eq!(told.as_deref(), Some(expected), "{:#?}", run.left);
    let errors: Vec<_> = run.left.values().filter_map(|left| left.error.clone()).collect();
    assert!(errors.iter().any(|it| it.message.contains("no revision")), "{errors:?}");
    assert!(errors.iter().any(|it| it.message.contains("has changes")), "{errors:?}");
}

#[tokio::test]
async fn a_text_that_goes_to_a_file_leaves_no_result_in_the_guest() {
    for (keys, read) in [("", "${l.stdout}"), ("stdout: out,", "out")] {
        let stage = Stage::new().await;
        let step = format!("{{ id: l, {keys} action: log.write, with: {{ message: hi }} }}");
        let dag = format!(
            "type: chain\nworking_dir: .\nsteps: [{step}, {{ run: 'cat {read} > told; cat told' }}]"
        );
        let run = stage.ran(&dag, Value::Null).await;
        assert_eq!(run.outcome(), Some(Succeeded), "{keys}: {:#?}", run.left);
        assert_eq!(stage.file("told").as_deref().map(str::trim), Some("hi"), "{keys}");
        eventually("results are acknowledged", async || stage.guest.kept().1.is_empty()).await;
    }
}
