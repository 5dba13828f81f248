//! Ways into a DAG: one with every form of reference leaves the same bytes by each of them.

use std::{collections::BTreeMap, fs};

use hivekeep_kernel::{CredentialId, RunId};
use hivekeep_plan::{
    plan::NodeIndex,
    progress::{
        RetryFrom,
        RunOutcome::{Failed, Succeeded},
    },
};
use hivekeep_ports::{WebhookRequest, WebhookTarget};
use hivekeep_runtime::runs::RunQueue;
use serde_json::{Value, json};

use super::{Stage, schedules::recent};
use crate::webhooks::WebhookKeys;

/// Parameter that would be something if it were read again.
const WHO: &str = "$(touch pwned) `touch pwned` 'q' \"d\" ${env.HOME} \\";

/// DAG whose steps write what their texts become, each to a file of its own.
const EVERY: &str = r#"
name: every
type: graph
working_dir: .
dotenv: .env.every
consts: [{ service: api }, { image: "${consts.service}:1" }]
params:
- first
- { name: who, default: WHO }
- { name: two, default: 2nd }
- { name: tick, eval: "`printf t`$(printf k)-${params.two}" }
env: [{ GREETING: "hi ${params.who}" }, { EMPTY: "" }, { COPY: "$GREETING/${EMPTY:-none}" }]
preconditions: [{ eval: "`printf ${params.tick}`", expected: tk-2nd }]
steps:
- id: make
  run: |
    printf 'x=%s\n' '${consts.image}' >> "$DAGU_OUTPUT_FILE"
    printf 'meta={"tag":"t"}\n' >> "$DAGU_OUTPUT_FILE"
    printf '{"items":[{"id":7},{"id":8}],"half":0.5,"none":null}'
    echo warned >&2
    printf 'b: [1, 2]\n' > made.yaml
  outputs: [{ name: x }, { name: meta, type: json }]
  output:
    all: { from: stdout, decode: json, select: .items }
    half: { from: stdout, decode: json, select: .half }
    err: { from: stderr }
    file: { from: file, path: made.yaml, decode: yaml, select: ".b[1]" }
    lit: { value: "${params.two}-$1" }
- { id: told, depends: make, run: "printf '{\"label\":\"good\"}'", stdout: { outputs: { decode: json } } }
- { id: old, depends: told, run: "printf 'old %s' '${consts.service}'", output: OLD }
- { id: ends, depends: old, run: exit 3, continue_on: { failure: true, mark_success: true } }
- id: each
  depends: ends
  foreach:
    items: "${make.output.all}"
    as: it
    key: "k${foreach.it.id}"
    collect: { got: "${foreach.it.id}${steps.said.outputs.v}" }
    steps:
    - id: said
      env: [{ V: "${foreach.it} ${foreach.index} ${foreach.key} ${params.who} ${steps.make.outputs.x} $OLD" }]
      run: 'printf %s "$V" > out.each${foreach.index}; echo v=-${foreach.index} >> "$DAGU_OUTPUT_FILE"'
      outputs: [{ name: v }]
- id: many
  depends: each
  action: dag.run
  with: { dag: item, params: "n=${ITEM.id} ${GREETING}" }
  parallel: { items: "${make.output.all}" }
- id: write
  depends: many
  preconditions: [{ condition: "${make.output.half}", expected: "0.5" }, { eval: "`printf $OLD`", expected: "re:^old" }]
  env:
  - V: |
      ${params.who}|${params.tick}|${params.two}|$1|${1}|${who}|$tick|${params}
      ${env.GREETING}|$GREETING|${GREETING:0:2}|${EMPTY:-none}|$COPY|${env.DOT}|$DOT|${consts.image}|$OLD
      ${steps.make.outputs.x}|${steps.make.outputs.meta}|${make.output.all[1].id}|${make.output.half}|${make.output.err}
      ${make.output.file}|${make.output.lit}|${told.outputs.label}|${ends.exit_code}|${each.output.outputs}|${each.output.items[1].key}
      ${many.output.summary}|${many.output.results[0].name}|${context.dag.name}|${context.run.id}|${context.step.name}
      \${params.who}|\$DOT|\\${params.two}|$(no command)|`no command`|${params.missing}|${steps.no.outputs.x}|$MISSING
  run: |
    test -e mended || exit 1
    printf %s "$V" > out.text
    cat > out.run <<'END'
    ${params.tick}|${env.DOT}|${consts.image}|${steps.make.outputs.x}|${make.output.all}|${context.dag.name}|$DOT|\${params.two}|`no command`
    END
- { id: argue, depends: write, exec: { command: /bin/sh, args: [-c, 'printf "%s|" "$@" > out.args', sh, "${params.who}", "$COPY", "\\$DOT", "${told.outputs.label}"] } }
---
name: item
working_dir: .
params: [{ name: n, default: "0" }, { name: rest, default: none }]
steps: [{ id: say, env: [{ V: "${params.n} ${params.rest} ${context.dag.name}" }], run: 'printf %s "$V" > out.item${params.n}' }]
"#;

/// Texts that the steps of [`EVERY`] leave, by file.
type LeftFiles = BTreeMap<String, String>;

impl Stage {
    /// Files that a run leaves, without its id; they are gone then.
    fn taken(&self, run: RunId) -> LeftFiles {
        let (mut left, id) = (LeftFiles::new(), run.to_string());
        for entry in fs::read_dir(self.guest.folder()).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
            if name.starts_with("out.") {
                let text = fs::read_to_string(&path).expect("read");
                left.insert(name, text.replace(&id, "RUN"));
                fs::remove_file(path).expect("removed");
            }
        }
        left
    }

    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.guest.folder()).expect("made");
        fs::write(self.guest.folder().join(name), text).expect("written");
    }
}

/// Files as they have to be, by the rules of each field.
fn expected() -> LeftFiles {
    let (who, hi) = (WHO, format!("hi {WHO}"));
    let quoted = Value::String(WHO.to_owned());
    let params = format!(r#"{{"1":"first","who":{quoted},"two":"2nd","tick":"tk-2nd"}}"#);
    let text = format!(
        "{who}|tk-2nd|2nd|first|first|{who}|tk-2nd|{params}\n\
         {hi}|{hi}|hi|none|{hi}/none|dot|dot|api:1|old api\n\
         api:1|{{\"tag\":\"t\"}}|8|0.5|warned\n\
         2|2nd-first|good|3|[{{\"got\":\"7-0\"}},{{\"got\":\"8-1\"}}]|k8\n\
         {{\"total\":2,\"succeeded\":2,\"failed\":0}}|item|every|RUN|write\n\
         ${{params.who}}|$DOT|\\\\2nd|$(no command)|`no command`|${{params.missing}}|${{steps.no.outputs.x}}|$MISSING\n"
    );
    let run =
        "tk-2nd|dot|api:1|api:1|[{\"id\":7},{\"id\":8}]|every|$DOT|${params.two}|`no command`\n";
    let mut files = LeftFiles::from([
        ("out.text".to_owned(), text),
        ("out.run".to_owned(), run.to_owned()),
        ("out.args".to_owned(), format!("{who}|{hi}/none|$DOT|good|")),
    ]);
    for (at, id) in [7, 8].into_iter().enumerate() {
        let each = format!("{{\"id\":{id}}} {at} k{id} {who} api:1 old api");
        files.insert(format!("out.each{at}"), each);
        files.insert(format!("out.item{id}"), format!("{id} {hi} item"));
    }
    files
}

#[tokio::test]
async fn one_dag_leaves_the_same_bytes_by_each_way_in() {
    let (time, cron) = recent();
    let text = EVERY.replace("WHO", &Value::String(WHO.to_owned()).to_string());
    let mut stage = Stage::watching().await;
    stage.put(".env.every", "DOT=dot\n");
    stage.put("mended", "");
    let wanted = expected();
    let same = |way: &str, stage: &Stage, run: RunId| {
        assert_eq!(stage.taken(run), wanted, "{way}");
        assert!(stage.file("pwned").is_none(), "{way}");
    };

    // Beginnings by a caller: parameters in each form, all of them the defaults.
    let queue = || Some(RunQueue { name: "narrow".to_owned(), priority: 1 });
    for (way, queue, given) in [
        ("start", None, json!({ "1": "first", "who": WHO })),
        ("start without parameters", None, Value::Null),
        ("enqueue", queue(), json!(["first", { "who": WHO }])),
    ] {
        let id = stage.begin_in(queue, &text, given).await.expect("begun");
        let run = stage.over(id).await;
        assert_eq!(run.outcome(), Some(Succeeded), "{way}: {:?} {:#?}", run.refused(), run.left);
        same(way, &stage, id);
    }

    let calls = "name: caller\nworking_dir: .\nparams: [{ name: w }]\nsteps: [{ id: a, action: dag.run, \
                 with: { dag: every, params: 'first who=\"${params.w}\"' } }]\n---";
    let run = stage.ran(&format!("{calls}{text}"), json!({ "w": WHO })).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.results);
    let child = run.children.values().next().and_then(|all| all.first()).expect("a child").id;
    same("call", &stage, child);

    // A run that fails before it has written all, whole again, from there, and a step of it alone.
    let id = stage.begin(&text, Value::Null).await.expect("begun");
    fs::remove_file(stage.guest.folder().join("mended")).expect("removed");
    assert_eq!(stage.over(id).await.outcome(), Some(Failed));
    stage.put("mended", "");
    let mut before = stage.taken(id);
    let write = NodeIndex(6);
    for (way, from, kept) in [
        ("retry", RetryFrom::Failed, &["out.each0", "out.each1", "out.item7", "out.item8"][..]),
        ("retry of a step", RetryFrom::Node { node: write, behind: false }, &["out.args"]),
        ("retry of all", RetryFrom::Beginning, &[]),
    ] {
        stage.runs().retry(super::ALL, id, from).await.expect("it goes on");
        let run = stage.over(id).await;
        assert_eq!(run.outcome(), Some(Succeeded), "{way}: {:#?}", run.left);
        let done = stage.taken(id);
        assert!(kept.iter().all(|name| !done.contains_key(*name)), "{way}: {done:#?}");
        before.extend(done);
        assert_eq!(before, wanted, "{way}");
    }

    stage.write("every.yaml", &format!("schedule: '{cron}'\n{}", text.trim_start()));
    stage.look().await;
    stage = stage.away().await;
    let told = stage.told("schedule_begun").await;
    assert_eq!(told["scheduled_for"], json!(time));
    let id = serde_json::from_value(told["run_id"].clone()).expect("an id");
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    same("schedule", &stage, id);

    let request = WebhookRequest {
        hook: CredentialId::new(),
        target: WebhookTarget {
            dag: "every".to_owned(),
            place: "here".to_owned(),
            file: "dags/every.yaml".to_owned(),
        },
        key: None,
        body: String::new(),
        headers: BTreeMap::new(),
    };
    let id = WebhookKeys::default().begin(&stage.folders(), request).await.expect("begun");
    let run = stage.over(id).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    same("webhook", &stage, id);
}
