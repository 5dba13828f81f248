//! The page for people who come from dagu names each key, action and type that the checker knows, and what becomes of
//! it here.

use std::collections::{BTreeMap, BTreeSet};

use hivekeep_manifest::{ManifestKind, dag::action::builtins, read_dag, schema};
use serde_json::Value;

use super::{ALL, Stage};
use crate::run::RunFold;

const PAGE: &str = include_str!("../../../../docs/guides/coming-from-dagu.md");
/// Parts of the messages of what a run refuses when it comes to the step.
const REFUSED: [&str; 3] = ["cannot be run yet", "is not here", "there is no action"];

/// Values of the root's keys, which all stand before steps.
const ROOT: &str = "
name: x
description: x
group: x
labels: [a=b]
tags: [a]
type: chain
tasks: [{ name: t, description: d }]\\ntype: agent\\nllm: { model: m }
params: [{ name: p, default: x }]
consts: [{ c: x }]
env: [{ E: x }]
dotenv: [.env]
secrets: []
tools: [jq@1]
working_dir: .
shell: sh
shell_args: [-e]
schedule: 0 1 * * *
skip_if_successful: true
catchup_window: 1h
overlap_policy: all
preconditions: 'true'
steps: [{ id: c, action: noop }]
handler_on: { exit: { action: noop } }
defaults: { timeout_sec: 9 }
retry_policy: { limit: 1, interval_sec: 0 }
queue: q
max_active_steps: 1
max_active_runs: 1
timeout_sec: 60
delay_sec: 0
restart_wait_sec: 1
max_clean_up_time_sec: 1
max_output_size: 1000
hist_retention_days: 1
hist_retention_runs: 1
log_dir: x
log_output: merged
artifacts: { enabled: true }
container: { image: x }
resources: { limits: { cpu: '1' } }
run_config: {}
webhook: {}
actions: { a.b: { input_schema: { type: object }, template: { run: 'true' } } }
step_types: {}
delivery: { destinations: [{ name: d, condition: on_failure, webhook: { url: https://example.org/ } }] }
mail_on: { failure: true }\\nerror_mail: { to: a@example.org }
error_mail: {}
info_mail: {}
smtp: {}
worker_selector: { gpu: 'true' }
otel: {}
ssh: {}
s3: {}
redis: {}
llm: { model: m }
harness: { provider: codex }
harnesses: { own: { binary: echo } }
kubernetes: {}
registry_auths: {}
";

/// Values of a step's keys, with what they need beside them; `run` where nothing says what the step does.
const STEP: &str = "
id: s
name: s
description: x
run: 'true'
action: noop
fork: false, run: 'true'
foreach: { items: [1], steps: [{ id: i, action: noop }] }
command: 'true'
exec: { command: 'true' }
script: 'true'
shell: sh, command: 'true'
shell_args: [-e], shell: sh, command: 'true'
shell_packages: [jq], command: 'true'
working_dir: .
env: [{ E: x }]
depends: [b]
dependencies: [a]
output: OUT
output_schema: { type: object }, run: 'echo {}'
outputs: [{ name: o }], id: s, run: 'echo o=1 >> \"$DAGU_OUTPUT_FILE\"'
inputs: [{ path: a }]
stdout: out
stderr: err
log_output: merged
continue_on: failed
retry_policy: { limit: 1, interval_sec: 0 }
repeat_policy: { repeat: while, condition: 'false' }
preconditions: 'true'
timeout_sec: 9
signal_on_stop: SIGINT
mail_on_error: true
call: child
params: a=1, call: child
parallel: [1], call: child
container: { image: x }
type: noop
with: { shell: sh }
config: {}, command: 'true'
approval: {}
worker_selector: { gpu: 'true' }
llm: { model: m }, type: chat, messages: [{ role: user, content: hi }]
messages: [{ role: user, content: hi }], type: chat
tools: [child], action: chat.completion, with: { prompt: hi }
agent: {}, type: agent
value: x, type: router, routes: { x: b }
routes: { x: b }, type: router, value: x
";

/// Settings that actions need.
const ACTIONS: &str = "
archive.create: { source: a, destination: b }
archive.extract: { source: a }
archive.list: { source: a }
artifact.read: { path: a }
artifact.write: { path: a, content: x }
chat.completion: { prompt: hi }
container.run: { image: x, command: x }
docker.run: { image: x, command: x }
dag.enqueue: { dag: child }
dag.run: { dag: child }
data.convert: { from: json, to: yaml, data: x }
data.pick: { from: json, select: .a, data: x }
exec: { command: 'true' }
file.copy: { source: a, destination: b }
file.delete: { path: a }
file.list: { path: a }
file.mkdir: { path: a }
file.move: { source: a, destination: b }
file.read: { path: a }
file.stat: { path: a }
file.write: { path: a, content: x }
git.checkout: { repository: a, path: b }
git.worktree.add: { branch: a }
git.worktree.remove: { branch: a }
harness.run: { prompt: hi, provider: codex }
http.request: { method: GET, url: 'https://x.test' }
human.task: { prompt: hi }
jq.filter: { filter: ., data: 1 }
log.write: { message: hi }
mail.send: { to: a@x.test, subject: x, message: y }
outputs.write: { values: { a: 1 } }
router.route: { value: x, routes: { x: b } }
state.delete: { key: a }
state.diff: { key: a, value: 1 }
state.get: { key: a }
state.set: { key: a, value: 1 }
template.render: { template: x }
wait.duration: { duration: 1ms }
wait.file: { path: / }
wait.http: { url: 'https://x.test' }
wait.until: { until: '2020-01-01T00:00:00Z' }
";

/// Commands and further keys that types need.
const TYPES: &str = "
command: command: 'true'
shell: command: 'true'
http: command: GET https://x.test
mail: with: { to: a@x.test, subject: x, message: y }
jq: command: ., with: { data: 1 }
dag: call: child
subworkflow: call: child
parallel: call: child, parallel: [1]
archive: command: create, with: { source: a, destination: b }
chat: messages: [{ role: user, content: hi }]
harness: command: hi, with: { provider: codex }
log: command: hi
noop: description: x
router: value: x, routes: { x: b }
template: script: x
docker: command: x, with: { image: x }
container: command: x, with: { image: x }
";

/// Rows of a table of the page: the first cell without its quotes, and whether that is refused.
fn rows(heading: &str) -> BTreeMap<&'static str, bool> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading));
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.trim_end_matches('`');
        match cells.next()? {
            "refused" => Some((name, true)),
            "works" | "differs" => Some((name, false)),
            other => panic!("{name}: {other}"),
        }
    };
    section.unwrap_or_default().lines().filter_map(row).collect()
}

/// Entry of a table of values.
fn entry(table: &'static str, name: &str) -> Option<&'static str> {
    table.lines().find(|line| line.split_once(": ").is_some_and(|(key, _)| key == name))
}

/// A text with a DAG that others call, and a step that others name.
fn text(root: &str, step: &str) -> String {
    let steps = match root.starts_with("steps:") {
        true => String::new(),
        false => format!("steps: [{{ {step} }}, {{ id: b, action: noop }}]\n"),
    };
    format!("{root}\n{steps}") + "---\nname: child\nsteps: [{ action: noop }]\n"
}

fn waits(state: &RunFold) -> bool {
    state.work().is_some_and(|work| work.progress.waiting().next().is_some())
}

impl Stage {
    /// Whether a text is refused: by the checker, when its run begins, or by its steps.
    async fn refuses(&self, text: &str) -> Option<String> {
        if let Err(problems) = read_dag(text, None) {
            return problems.first().map(ToString::to_string);
        }
        let id = self.begin(text, Value::Null).await.expect("begun").to_string();
        let ended = self.runs().0.until(ALL, &id, waits).await;
        let state = ended.expect("it is there").state;
        let of_run = state.refused().map(|error| error.message.clone());
        let mut errors =
            state.left.values().filter_map(|left| Some(left.error.as_ref()?.message.clone()));
        of_run.or_else(|| errors.find(|error| REFUSED.iter().any(|part| error.contains(part))))
    }

    /// Rows that say something else than what becomes of their text.
    async fn wrong(&self, heading: &str, text: impl Fn(&str) -> String) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, refused) in rows(heading) {
            let text = text(name);
            let told = self.refuses(&text).await;
            if told.is_some() != refused {
                let said = if refused { "refused" } else { "taken" };
                wrong.push(format!("`{name}` is said to be {said}: {told:?} of\n{text}"));
            }
        }
        wrong
    }
}

fn names<'n>(all: impl IntoIterator<Item = &'n str>) -> BTreeSet<&'n str> {
    all.into_iter().collect()
}

#[test]
fn the_page_names_what_the_checker_knows() {
    let whole = schema(ManifestKind::Dag);
    let keys = |of: &'static str| {
        let properties = whole.pointer(of).and_then(Value::as_object).expect("properties");
        names(properties.keys().map(String::as_str))
    };
    let told = |heading| names(rows(heading).into_keys());
    assert_eq!(told("Keys of the root"), keys("/properties"));
    assert_eq!(told("Keys of a step"), keys("/$defs/DagStep/properties"));
    let (mut told, of_others) = (told("Actions"), |name: &&str| name.contains('*'));
    told.retain(|name| !of_others(name));
    assert_eq!(told, names(builtins()));
    // A message lists the types.
    let problems = read_dag("steps: [{ type: zzzzzzzzzzzz }]", None).expect_err("no type");
    let list = problems[0].message.split("types are ").nth(1).expect("a list");
    assert_eq!(names(rows("Types of the old notation").into_keys()), names(list.split(", ")));
}

#[tokio::test]
async fn what_the_page_says_is_refused_is_and_nothing_else() {
    let stage = Stage::new().await;
    let root = |key: &str| {
        let entry = entry(ROOT, key).unwrap_or_else(|| panic!("a value of {key}"));
        text(&entry.replace("\\n", "\n"), "id: a, action: noop")
    };
    let step = |key: &str| {
        let entry = entry(STEP, key).unwrap_or_else(|| panic!("a value of {key}"));
        let does =
            ["run:", "action:", "foreach:", "command:", "exec:", "script:", "call:", "type:"];
        let more = if does.iter().any(|it| entry.contains(it)) { "" } else { ", run: 'true'" };
        text("type: graph", &format!("{entry}{more}"))
    };
    let action = |name: &str| {
        let with = entry(ACTIONS, name).and_then(|entry| entry.split_once(": "));
        let with = with.map_or("{}", |(_, with)| with);
        text("type: graph", &format!("id: a, action: '{}', with: {with}", name.replace('*', "x")))
    };
    let old = |name: &str| {
        let more = entry(TYPES, name).and_then(|entry| entry.split_once(": "));
        let more = more.map_or("command: x", |(_, more)| more);
        text("type: graph", &format!("id: a, type: {name}, {more}"))
    };
    let mut wrong = stage.wrong("Keys of the root", root).await;
    wrong.extend(stage.wrong("Keys of a step", step).await);
    wrong.extend(stage.wrong("Actions", action).await);
    wrong.extend(stage.wrong("Types of the old notation", old).await);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
