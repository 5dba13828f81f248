use serde_json::Value;

use super::{AGENT, WORKFLOW, valid};
use crate::{
    ManifestKind,
    dag::{DagManifest, DagType, NoticeClass},
    parse_workflow, read_agent, read_dag, schema,
};

const FULL_AGENT: &str = "\
apiVersion: 100monkeys.ai/v1
kind: Agent
metadata: { name: full, version: 1.2.3, labels: { team: core } }
spec:
  runtime: { image: ghcr.io/acme/runtime:1, image_pull_policy: Never, isolation: docker }
  task: { instruction: Do it., input_data: { n: 1 } }
  context:
    - { type: text, content: hello }
    - { type: url, url: 'https://example.org/a', description: a page }
  execution:
    mode: iterative
    max_iterations: 10
    iteration_timeout: 5m
    validation:
      - { type: exit_code }
      - { type: json_schema, schema: { type: object }, min_score: 0.5 }
      - { type: regex, pattern: '^ok', target: stderr }
      - { type: multi_judge, judges: [a, b], consensus: best_of_n, criteria: good }
    tool_validation:
      - { type: semantic, judge_agent: judge, criteria: safe }
    delivery:
      destinations:
        - { name: me, condition: on_failure, email: { to: a@example.org } }
  security:
    network: { mode: deny, allowlist: [example.org] }
    filesystem: { read: [/workspace], write: [/workspace/out] }
    resources: { cpu: 500, memory: 512Mi, disk: 1Gi, timeout: 30s }
  schedule: { type: cron, cron: '0 9 * * 1-5', timezone: Europe/Berlin }
  tools: [fs.read, cmd.run]
  env: { TOKEN: 'secret:token' }
  volumes:
    - { name: a, mount_path: /workspace/a, size_limit: 1Gi }
    - { name: ab, mount_path: /workspace/ab, size_limit: 1024, storage_class: persistent }
  input_schema: { type: object, properties: { n: { type: integer } } }
  output_handler: { type: webhook, url: 'https://example.org', required: true }
  builtin_dispatchers:
    - name: cmd
      capabilities:
        - name: cmd.run
          subcommand_allowlist: [python, pip, bash]
";

/// Forms that published examples have beside those of [`FULL_AGENT`].
const PUBLISHED_AGENT: &str = "\
apiVersion: 100monkeys.ai/v1
kind: AgentManifest
metadata: { name: published, version: 1.10.0 }
spec:
  runtime: { language: python, version: '3.11', isolation: microvm }
  task: { instruction: Do it. }
  execution:
    memory: false
    validation:
      system: { must_succeed: true, allow_stderr: false, timeout_seconds: 90 }
      output: { format: json, schema: { type: object }, regex: '^.' }
      script: { path: /workspace/check.sh, description: a check, timeout_seconds: 30 }
      semantic: { enabled: true, model: fast, prompt: 'Good? {criteria}', threshold: 0.8, fallback_on_unavailable: fail }
";

const FULL_WORKFLOW: &str = "\
apiVersion: 100monkeys.ai/v1
kind: Workflow
metadata: { name: build, output_template: { result: '{{BOTH.output}}', of: [{ n: '{{limit}}' }] } }
spec:
  initial_state: PANEL
  context: { limit: 3, unit-test: { a: b } }
  max_total_transitions: 20
  storage:
    workspace: { storage_class: ephemeral, ttl_hours: 1 }
    shared_volumes: [{ name: cache, size_limit_bytes: 1000 }]
  states:
    PANEL:
      kind: ParallelAgents
      agents: [{ agent: a, input: x }, { agent: b, input: x, weight: 2 }]
      consensus:
        strategy: majority
        confidence_weighting: { agreement_factor: 0.6, self_confidence_factor: 0.4 }
      max_state_visits: 3
      transitions:
        - { condition: score_between, min: 0.5, max: 0.9, target: RUN }
        - { condition: consensus, threshold: 0.9, agreement: 0.8, target: RUN }
        - { condition: custom, expression: 'state_output.ok && score > blackboard.limit', target: CHILD }
        - { condition: custom, expression: '{{ RUN.exit_code >= limit }}', target: CHILD }
        - { condition: score_and_confidence_above, threshold: 0.5, target: CHILD }
        - { condition: always, target: PANEL, feedback: 'again: {{PANEL.consensus.score}}' }
    RUN:
      kind: ContainerRun
      name: run
      image: python:3.11-slim
      run_as_user: '65534:65534'
      command: [python, solution.py]
      volumes: [{ name: cache, mount_path: /cache, read_only: true }]
      resources: { cpu: 500, memory: 256Mi, timeout: 600 }
      retry: { max_attempts: 2, backoff: 5s }
      transitions:
        - { condition: exit_code, value: 3, target: PANEL }
        - { condition: input_equals, value: 'yes', target: NOTE }
    NOTE:
      kind: System
      command: update_blackboard
      env: { rounds: '{{state.visit}}' }
      transitions: [{ condition: on_success, target: CHILD }]
    CHILD:
      kind: Subworkflow
      workflow_id: other
      mode: blocking
      result_key: child
      input: '{{default rounds 0}} {{unit-test.a}} {{workspace_volume_id}}'
      transitions: [{ condition: always, target: BOTH }]
    BOTH:
      kind: ParallelContainerRun
      output_handler: { type: agent, agent_id: tell, input_template: '{{child}}: {{output}}' }
      steps: [{ name: a, image: i, command: [x], run_as_user: 1000 }, { name: b, image: i, command: [x] }]
      completion: best_effort
      transitions: []
";

const DAGS: [&str; 8] = [
    "steps:\n  - echo hello\n  - make test\n",
    "name: etl\nschedule: '0 * * * *'\nsteps:\n  - name: a\n    command: echo 1\n    output: OUT\n  - - command: one\n    - command: [two, three]\n  - name: b\n    script: |\n      #!/bin/sh\n      echo ${OUT}\n",
    "type: graph\nsteps:\n  a:\n    command: x\n  b:\n    command: y\n    depends: a\n  c:\n    id: last\n    command: z\n    depends: [a, b]\n",
    "type: graph\nsteps:\n  - {name: route, type: router, value: '${X}', routes: {'re:^a': [b], c: c}}\n  - {name: b, command: x}\n  - {name: c, type: noop}\n",
    "schedule: {start: ['0 8 * * *', {at: '2030-01-31T09:00:00Z'}], stop: 'CRON_TZ=Asia/Tokyo 0 18 * * *'}\nparams:\n  - A: 1\n  - {name: B, type: string, required: true}\nenv:\n  - X=1\n  - Y: 2\npreconditions:\n  - test -f x\n  - {condition: '${A}', expected: 're:^1$'}\nsteps:\n  - {call: child, params: A=1, parallel: {items: [1, 2], max_concurrent: 3}}\nhandler_on:\n  failure: {command: notify}\n  exit: {command: cleanup}\n---\nname: child\nsteps: [echo]\n",
    "container: {image: 'alpine:3', volumes: ['/a:/b:ro'], pull_policy: missing}\nsteps:\n  - command: ls\n    container: {exec: running}\n    retry_policy: {limit: 3, interval_sec: 5, backoff: 1.5, exit_code: [1, 2]}\n    continue_on: {failure: true, output: 're:warn'}\n  - command: poll\n    repeat_policy: {repeat: until, condition: '${S}', expected: done, interval_sec: 1}\n    continue_on: skipped\n",
    "steps:\n  - {name: fetch, type: http, command: 'GET https://example.org', with: {timeout: 5}}\n  - {name: ask, command: deploy, approval: {prompt: ok?, input: [why], required: [why], rewind_to: fetch}}\n  - {output: {version: 1}}\n",
    "labels: {team: core}\nhist_retention_days: 7\nretry_policy: {limit: 1, interval_sec: 60}\nsteps:\n  - {exec: {command: ls, args: [-l, 3]}, signal_on_stop: SIGINT, stdout: a, stderr: b}\n",
];

const DAGS_OF_TODAY: [&str; 9] = [
    "steps:\n  - {id: a, run: make, outputs: [{name: image}, {name: meta, type: json}]}\n  - {id: b, depends: [a], run: ['echo ${steps.a.outputs.image}', 'a: b', {c: d}, 5]}\n",
    "consts:\n  - service: api\n  - url: 'https://x/${consts.service}'\nparams:\n  - {name: env, type: string, enum: [a, b], default: a, required: true}\n  - {name: day, eval: $(date)}\n  - PLAIN=1\n  - {OTHER: 2}\nsteps:\n  - run: |\n      echo ${consts.url}\n      echo ${params.env}\n    with: {shell: [bash, -e], shell_args: [-c], shell_packages: [jq]}\n",
    "steps:\n  - {id: ask, action: human.task, with: {prompt: 'Now?', form: {type: object, properties: {why: {type: string, pattern: ^a}, n: {enum: [1, 2]}}, required: [why], additionalProperties: true}}}\n  - {depends: ask, run: 'echo ${steps.ask.outputs.why}'}\n",
    "steps:\n  - id: all\n    foreach:\n      items: ['a', {b: 1}]\n      as: one\n      key: '${foreach.one}'\n      max_concurrent: 2\n      steps:\n        - {id: first, run: 'x ${foreach.one.b}', outputs: [{name: o}]}\n        - {depends: first, run: 'y ${steps.first.outputs.o} ${foreach.index}'}\n      collect: {o: '${steps.first.outputs.o}'}\n    output: ALL\n  - {action: dag.run, with: {dag: child, params: {a: '${ITEM.a}'}}, parallel: {items: [{a: 1}], max_concurrent: 3}}\n---\nname: child\nsteps: [{run: x}]\n",
    "type: agent\nllm: {provider: a, model: [{provider: a, name: b}], max_context_tokens: 0}\ntasks: [{name: a, description: b}]\nsteps:\n  - {id: a, run: x, outputs: [{name: o}]}\n  - {name: b, run: 'echo ${steps.a.outputs.o}'}\n",
    "harnesses: {mine: {binary: x, prompt_mode: flag, prompt_flag: --p}, codex: null}\nharness: {provider: mine, fallback: [{provider: codex}]}\nactions:\n  team.greet: {input_schema: {type: object}, template: {run: 'echo {{ .input.name }}'}}\nsteps:\n  - {action: harness.run, with: {prompt: x, yolo: true}}\n  - {action: team.greet, with: {name: y}}\n  - {action: fs.read, with: {path: x}}\n",
    "schedule: [{expression: '0 1 * * *', kind: cron}, {at: '2030-01-31T09:00:00Z', profile: p}]\nsecrets: [{name: A, ref: a/b}, {name: B, provider: env, key: C, options: {x: y}}]\ntools: ['jqlang/jq@jq-1.7.1']\nresources: {limits: {cpu: 500m, memory: 512Mi}}\nlabels: [a, {b: 1}]\nworker_selector: local\nsteps:\n  - {run: x, retry_policy: {limit: '${params.n}', interval_sec: 5}, stdout: {artifact: a, outputs: {fields: {b: {decode: json, select: .b}, c: 1}}}, stderr: {artifact: e}}\n  - {run: x, output: {v: {from: file, path: a, decode: yaml, select: .x}, w: {value: [1]}, l: {k: 1}}, preconditions: [{eval: $(x), expected: 're:^y'}, test -f z]}\n",
    "type: graph\nsteps:\n  - {id: ' route ', action: router.route, with: {value: '${params.x}', routes: {'re:^a': [b]}}}\n  - {id: b, run: x, depends: null, dependencies: ['scripts/**']}\n  - {name: '42', depends: [], run: y}\n  - {run: z, depends: [42], container: {image: a, pull_policy: true}}\n",
    "defaults: {retry_policy: {limit: 1, interval_sec: 1}, env: {A: 1}}\nhandler_on: {failure: {action: mail.send, with: {to: [a], subject: s, message: ''}}}\nsteps:\n  - {action: state.set, with: {key: a, value: null, create_only: '${params.once}'}}\n  - {action: noop}\n",
];

#[test]
fn valid_manifests_are_accepted() {
    valid(ManifestKind::Agent, AGENT);
    valid(ManifestKind::Agent, FULL_AGENT);
    valid(ManifestKind::Agent, PUBLISHED_AGENT);
    valid(ManifestKind::Workflow, WORKFLOW);
    valid(ManifestKind::Workflow, FULL_WORKFLOW);
    let agents = parse_workflow(FULL_WORKFLOW).expect("valid").spec.agents().len();
    assert_eq!(agents, 3);
    DAGS.iter().for_each(|text| valid(ManifestKind::Dag, text));
    DAGS_OF_TODAY.iter().for_each(|text| valid(ManifestKind::Dag, text));
}

#[test]
fn an_agent_is_read_with_the_tools_that_there_are() {
    let tools = ["fs.read", "cmd.run", "vault"];
    let read = read_agent(FULL_AGENT, &tools).expect("valid");
    assert_eq!(read.metadata.name, "full");
    let dotless = FULL_AGENT.replace("fs.read", "fs_read");
    assert!(read_agent(&dotless, &tools).is_ok(), "a dot is as good as an underscore");
    let unknown = read_agent(FULL_AGENT, &["fs.raed"]).expect_err("neither is there");
    let told: Vec<_> = unknown.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("spec.tools[0]: there is no tool `fs.read`: did you mean `fs.raed`"));
    let broken = read_agent("a: 1", &tools).expect_err("broken").len();
    assert_eq!(broken, crate::check(ManifestKind::Agent, "a: 1").len());
}

#[test]
fn a_dag_is_read_with_the_tools_that_there_are() {
    let text = DAGS_OF_TODAY[5];
    let read = read_dag(text, Some(&["fs_read"])).expect("a dot is as good as an underscore");
    assert_eq!(read.documents[0].order(), DagType::Graph);
    let refused = read_dag(text, Some(&["fs.write"])).expect_err("it is not there");
    assert!(refused[0].message.contains("no action `fs.read`"), "{refused:?}");
    let order = |text: &str| read_dag(text, None).expect("valid").documents[0].order();
    assert_eq!(order("steps: [a, b]\n"), DagType::Chain);
    assert_eq!(order("steps: [a, {run: b}]\n"), DagType::Graph);
    let again = serde_json::to_value(&read.documents).expect("writes");
    let again: Vec<DagManifest> = serde_json::from_value(again).expect("reads");
    assert_eq!(again, read.documents);
}

/// Each text has one notice, at the place and with the words that stand behind it.
#[test]
fn references_without_a_value_are_noticed() {
    use NoticeClass::{Defect, Runtime};
    for text in DAGS_OF_TODAY {
        let notices = read_dag(text, None).expect(text).notices;
        assert!(notices.iter().all(|notice| notice.class == Runtime), "{text}: {notices:#?}");
    }
    for (text, class, place, words) in [
        ("steps: [{run: 'echo ${consts.a}'}]", Defect, "steps[0].run", "${consts.a}"),
        (
            "consts: [{a: '${consts.b}'}, {b: 1}]\nsteps: [{run: x}]",
            Defect,
            "consts[0].a",
            "before",
        ),
        ("consts: [{a: '${env.B}'}]\nsteps: [{run: x}]", Defect, "consts[0].a", "constants"),
        ("steps: [{run: '${params.a}'}]", Runtime, "steps[0].run", "no such parameter"),
        (
            "params: [{name: a, type: string}]\nsteps: [{run: '${params.a}'}]",
            Runtime,
            "steps[0].run",
            "caller",
        ),
        (
            "params: [{name: a, eval: '${params.b}'}]\nsteps: [{run: x}]",
            Runtime,
            "params[0].eval",
            "b}",
        ),
        ("steps: [{run: '${params}'}]", Runtime, "steps[0].run", "no parameters"),
        ("env: ['A=${env.A}']\nsteps: [{run: x}]", Runtime, "env[0]", "before this place"),
        ("steps: [{env: {A: '${env.B}', B: 1}, run: '${env.A}'}]", Runtime, "steps[0].env.A", "B}"),
        ("steps: [{run: '${steps.a.outputs.b}'}]", Defect, "steps[0].run", "no step"),
        ("env: {A: '${steps.a.outputs.b}'}\nsteps: [{run: x}]", Defect, "env.A", "not known here"),
        (
            "handler_on: {exit: {run: '${steps.a.outputs.b}'}}\nsteps: [x]",
            Defect,
            "handler_on.exit.run",
            "not known here",
        ),
        ("steps: [{id: a, run: '${steps.a.outputs.b}'}]", Defect, "steps[0].run", "its own"),
        (
            "steps: [{id: a, run: x}, {depends: a, run: '${steps.a.outputs.b}'}]",
            Defect,
            "steps[1].run",
            "declares no",
        ),
        (
            "steps: [{id: a, run: x, outputs: [{name: b}]}, {run: '${steps.a.outputs.b}'}]",
            Defect,
            "steps[1].run",
            "`depends`",
        ),
        ("steps: [{run: '${foreach.item}'}]", Defect, "steps[0].run", "no `foreach`"),
        (
            "steps: [{foreach: {items: [1], as: a, steps: [{run: '${foreach.b}'}]}}]",
            Defect,
            "steps[0].foreach.steps[0].run",
            "this name",
        ),
        ("steps: [{run: '${context.run.name}'}]", Defect, "steps[0].run", "no such field"),
        ("steps: [{run: '${run.id}'}]", Runtime, "steps[0].run", "the run gives it"),
        ("steps: [{id: a, with: {b: c}}]", Defect, "steps[0]", "does nothing"),
        (
            "steps: [{action: template.render, with: {template: '${consts.a}', output: '${consts.b}'}}]",
            Defect,
            "steps[0].with.output",
            "b}",
        ),
        (
            "steps: [{run: '\\${consts.a} ${consts.a.b} $consts.a ${A} ${ITEM} ${b.output} ${consts.c}'}]",
            Defect,
            "steps[0].run",
            "${consts.c}",
        ),
    ] {
        let notices = read_dag(text, None).expect(text).notices;
        let [notice] = notices.as_slice() else { panic!("{text}: {notices:#?}") };
        assert_eq!((notice.class, &*notice.told.path), (class, place), "{text}");
        assert!(notice.told.message.contains(words), "{text}: {notice:?}");
    }
}

#[test]
fn aliases_and_merges_are_read() {
    let text = "steps:\n  - &a\n    command: echo\n    timeout_sec: 5\n  - <<: *a\n    timeout_sec: 6\n  - *a\n";
    valid(ManifestKind::Dag, text);
}

/// Every key of a schema has a description: people and models read it.
#[test]
fn every_key_is_described() {
    fn walk(schema: &Value, at: &str, missing: &mut Vec<String>) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                if property.get("description").is_none() && property.get("const").is_none() {
                    missing.push(format!("{at}/{name}"));
                }
            }
        }
        match schema {
            Value::Object(map) => {
                map.iter().for_each(|(key, below)| walk(below, &format!("{at}/{key}"), missing))
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, at, missing)),
            _ => {}
        }
    }
    for kind in ManifestKind::ALL {
        let bytes = schema(kind).to_string().len();
        assert!(bytes < 64 * 1024, "{kind:?}: {bytes} bytes");
        let mut missing = Vec::new();
        walk(schema(kind), "", &mut missing);
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
