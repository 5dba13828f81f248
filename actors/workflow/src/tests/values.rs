//! Values of runs: secrets, outputs by a schema, actions of a file's own, and runs that are put into a queue.

use std::fs;

use hivekeep_kernel::{RunId, User};
use hivekeep_plan::progress::RunOutcome::{Failed, PartlySucceeded, Succeeded};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ALL, Stage};
use crate::{Options, SecretOptions, dag_file::checked, run::RunFold};

fn options(folder: &TempDir, user: u32) -> Options {
    let secret = SecretOptions {
        file: Some(folder.path().join("token")),
        env: None,
        users: vec![User::Uid(user)],
    };
    Options { secrets: [("team/token".to_owned(), secret)].into(), ..Options::default() }
}

/// Everything that is kept of a run, and everything that is told of it.
async fn kept(stage: &Stage, id: RunId) -> String {
    let runs = stage.runs();
    let (_, records) = runs.told(ALL, &id.to_string()).await.expect("it is there");
    let events = runs.events(ALL, id, 0, 1_000).await.expect("they are read").events;
    let events: Vec<_> = events.iter().map(|it| &it.event.payload).collect();
    let records = serde_json::to_string(&records).expect("they serialise");
    format!("{records} {}", json!(events))
}

fn error(run: &RunFold) -> (String, String) {
    let error = run.left.values().find_map(|left| left.error.clone());
    error.map(|error| (error.code.to_string(), error.message.clone())).unwrap_or_default()
}

const SECRETS: &str = r#"
type: chain
working_dir: .
secrets: [{ name: TOKEN, ref: team/token }, { name: OTHER, provider: file, key: other.txt }]
preconditions: ['test -n "$TOKEN"']
handler_on: { exit: { run: 'echo "$TOKEN" > exit' } }
steps:
- id: a
  env: [{ URL: 'x://u:${env.TOKEN}@h' }]
  run: 'printf %s "$URL $OTHER" > seen; echo "v=$TOKEN" >> "$DAGU_OUTPUT_FILE"; echo "{\"t\": [\"$TOKEN\"]}"; echo "$OTHER" >&2'
  outputs: [{ name: v }]
  output: { all: { from: stdout, decode: json } }
- { id: b, run: 'echo "$TOKEN"', output: VAR, stdout: { outputs: { field: pub } } }
- { id: c, run: 'echo "no $TOKEN" >&2; exit 3', continue_on: failed }
- { id: d, action: log.write, with: { message: 'say ${env.TOKEN}' } }
- { id: e, foreach: { items: [1], steps: [{ id: f, run: 'printf %s "$TOKEN" > looped; echo $TOKEN' }] } }
- { id: g, run: "printf rotated-1 > THERE" }
- { id: h, run: 'printf %s "$TOKEN" > rotated; echo "$TOKEN"' }
"#;

#[tokio::test]
async fn secrets_are_given_to_steps_and_neither_recorded_nor_shown() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("token");
    fs::write(&file, "hunter2-hunter2\n").expect("written");
    let stage = Stage::with(options(&folder, 0)).await;
    fs::create_dir_all(stage.guest.folder()).expect("made");
    fs::write(stage.guest.folder().join("other.txt"), "s3cr3t other\n").expect("written");
    let text = SECRETS.replace("THERE", &file.display().to_string());
    let id = stage.begin(&text, Value::Null).await.expect("begun");
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(PartlySucceeded), "{:#?}", run.left);
    let seen = ["seen", "looped", "rotated", "exit"].map(|it| stage.file(it).unwrap_or_default());
    let there =
        ["x://u:hunter2-hunter2@h s3cr3t other", "hunter2-hunter2", "rotated-1", "rotated-1\n"];
    assert_eq!(seen, there);
    let kept = kept(&stage, id).await;
    assert!(kept.contains("***************") && kept.contains("team/token"), "{kept}");
    for secret in ["hunter2", "s3cr3t", "rotated-1\\n", "\"rotated-1\""] {
        assert!(!kept.contains(secret), "{secret} in {kept}");
    }
    for child in run.children.values().flat_map(|children| children.iter()) {
        assert!(!self::kept(&stage, child.id).await.contains("hunter2"));
    }
}

#[tokio::test]
async fn a_secret_goes_where_it_would_be_recorded_by_nobody() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("token"), "hunter2").expect("written");
    let stage = Stage::with(options(&folder, 0)).await;
    for step in [
        "{ action: dag.run, with: { dag: sub, params: { p: '${env.TOKEN}' } } }",
        "{ foreach: { items: ['${env.TOKEN}'], steps: [{ run: 'true' }] } }",
        "{ action: state.set, with: { key: k, value: '${env.TOKEN}' } }",
        "{ action: toy.echo, with: { x: ['${env.TOKEN}'] } }",
        "{ action: chat.completion, with: { model: m, prompt: 'a ${env.TOKEN}' } }",
        "{ action: harness.run, with: { provider: codex, prompt: 'a ${env.TOKEN}' } }",
    ] {
        let text = format!(
            "secrets: [{{ name: TOKEN, ref: team/token }}]\nsteps: [{step}]\n---\nname: sub\nsteps: [{{ run: 'true' }}]\n"
        );
        let id = stage.begin(&text, Value::Null).await.expect("begun");
        let run = stage.over(id).await;
        let (code, message) = error(&run);
        assert_eq!((run.outcome(), code.as_str()), (Some(Failed), "step_failed"), "{step}");
        assert!(message.contains("a secret is in what"), "{step}: {message}");
        assert!(!kept(&stage, id).await.contains("hunter2"), "{step}");
    }
    assert!(stage.guest.called().is_empty());
}

#[tokio::test]
async fn a_run_without_one_of_its_secrets_does_not_begin() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("token"), "hunter2").expect("written");
    for (user, secret, code) in [
        (1, "{ name: S, ref: team/token }", "secret_unreadable"),
        (0, "{ name: S, ref: team/other }", "secret_unreadable"),
        (0, "{ name: S, provider: env, key: PATH }", "secret_unreadable"),
        (0, "{ name: S, provider: file, key: none.txt }", "secret_unreadable"),
        (0, "{ name: S, provider: vault, key: a/b }", "dag_invalid"),
        (0, "{ name: S, provider: file, key: a, options: { x: y } }", "dag_invalid"),
        (0, "{ name: S, provider: env, key: team/token }", ""),
    ] {
        let stage = Stage::with(options(&folder, user)).await;
        let text = format!("working_dir: .\nsecrets: [{secret}]\nsteps: [{{ run: touch done }}]\n");
        let run = stage.ran(&text, Value::Null).await;
        let told = run.refused().map(|error| error.code.to_string()).unwrap_or_default();
        assert_eq!(
            (told.as_str(), stage.file("done").is_some()),
            (code, code.is_empty()),
            "{secret}"
        );
    }
}

#[tokio::test]
async fn an_output_that_does_not_fit_its_schema_fails_its_step() {
    let stage = Stage::new().await;
    let schema = "{ type: object, required: [n], properties: { n: { type: integer } } }";
    for (written, code, seen) in [
        ("{\"n\": 3, \"more\": [1]}", "", "3 [1] 3"),
        ("{\"n\": \"3\"}", "output_invalid", ""),
        ("n=3", "output_invalid", ""),
        ("", "output_invalid", ""),
    ] {
        let text = format!(
            "working_dir: .\nsteps:\n- {{ id: a, run: 'printf %s ''{written}''', output_schema: {schema} }}\n\
             - {{ id: b, depends: a, run: 'echo ${{steps.a.outputs.n}} ${{steps.a.outputs.more}} ${{a.output.n}} > seen' }}\n"
        );
        let run = stage.ran(&text, Value::Null).await;
        assert_eq!(error(&run).0, code, "{written}: {:?}", run.left);
        let left = stage.file("seen").unwrap_or_default();
        let _gone = fs::remove_file(stage.guest.folder().join("seen"));
        assert_eq!(left.trim(), seen, "{written}");
    }
}

#[tokio::test]
async fn an_action_of_a_files_own_runs_as_the_step_that_it_makes() {
    let stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
params: [{ name: who, default: "it's me" }]
actions:
  note.add:
    input_schema: { type: object, required: [text], properties: { text: { type: string }, file: { type: string, default: notes } } }
    output_schema: { type: object }
    template: { action: exec, with: { command: sh, args: [-c, 'echo "$1" >> {{ .input.file }}; echo "{\"lines\": 1}"', sh, { $input: text }] } }
steps:
- { id: a, action: note.add, with: { text: 'hi ${params.who}; $(date)' } }
- { run: 'echo ${steps.a.outputs.lines} >> notes' }
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("notes").as_deref(), Some("hi it's me; $(date)\n1\n"));
    let wrong = text.replace("text: 'hi", "test: 'hi");
    let refused = checked(None, wrong, None).await.expect_err("it is refused");
    assert!(refused.is(crate::codes::DAG_INVALID) && refused.message.contains("note.add"));
}

#[tokio::test]
async fn a_run_is_put_into_a_queue_once_and_not_waited_for() {
    let mut stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
steps:
- { id: a, action: dag.enqueue, with: { dag: sub, queue: slow, params: { n: '7' } }, output: ONE }
- { id: b, action: dag.enqueue, with: { dag: sub }, parallel: { items: [1, 2] }, output: MORE }
- { run: 'printf "%s\n" "$ONE" "$MORE" > queued' }
---
name: sub
params: [{ name: n, default: '0' }]
working_dir: .
steps: [{ run: 'while test ! -e go; do sleep 0.02; done; echo ${params.n} >> done' }]
"#;
    let id = stage.begin(text, Value::Null).await.expect("begun");
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    let queued = stage.file("queued").unwrap_or_default();
    let mut lines = queued.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let (one, more) = (lines.next().expect("a line"), lines.next().expect("a line"));
    assert_eq!(
        (&one["name"], &one["queue"], &one["status"]),
        (&json!("sub"), &json!("slow"), &json!("queued"))
    );
    assert_eq!(more["summary"], json!({ "total": 2, "queued": 2 }));
    let ids: Vec<RunId> = [&one, &more["runs"][0], &more["runs"][1]]
        .map(|row| row["dagRunId"].as_str().expect("an id").parse().expect("an id"))
        .into();
    assert!(stage.file("done").is_none(), "nothing waits for them");
    stage.rig = stage.rig.crashed().await;
    fs::write(stage.guest.folder().join("go"), "").expect("written");
    for id in ids {
        assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    }
    assert_eq!(stage.file("done").map(|done| done.lines().count()), Some(3));
    let own = "name: own\nsteps: [{ action: dag.enqueue, with: { dag: none } }]\n";
    assert_eq!(stage.outcome(own).await, Failed);
}

#[tokio::test]
async fn a_repository_is_checked_out_at_a_revision() {
    let stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
steps:
- run: |
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q -b main from && cd from && echo 1 > f && git add f && git commit -qm 1 && git tag one
    echo 2 > f && git commit -qam 2
- { id: a, action: git.checkout, with: { repository: ../from, path: to, ref: one, depth: 0 } }
- { run: 'cat to/f > got; echo ${steps.a.outputs.cloned} ${steps.a.outputs.changed} >> got' }
- { id: b, action: git.checkout, with: { repository: ../from, path: to, token: unused } }
- { run: 'cat to/f >> got; echo ${steps.b.outputs.cloned} ${steps.b.outputs.changed} >> got; echo 3 > to/f' }
- { id: c, action: git.checkout, with: { repository: ../from, path: to, ref: origin/main }, continue_on: failed }
- { id: d, action: git.checkout, with: { repository: ../from, path: to, ref: main, force: true } }
- { run: 'cat to/f >> got; echo ${steps.d.outputs.commit} | wc -c >> got' }
- { action: git.checkout, with: { repository: ../from, path: to, ref: --all } }
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Failed), "{:#?}", run.left);
    let got = stage.file("got").unwrap_or_default();
    assert_eq!(got, "1\ntrue true\n2\nfalse true\n2\n41\n", "{:#?}", run.left);
}
