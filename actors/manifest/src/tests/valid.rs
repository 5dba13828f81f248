use serde_json::Value;

use super::{AGENT, WORKFLOW, valid};
use crate::{ManifestKind, read_agent, schema};

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
metadata: { name: build, output_template: { result: '{{DONE.output}}' } }
spec:
  initial_state: PANEL
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
        - { condition: custom, expression: state_output.ok, target: CHILD }
        - { condition: always, target: PANEL, feedback: again }
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
        - { condition: input_equals, value: 'yes', target: CHILD }
    CHILD:
      kind: Subworkflow
      workflow_id: other
      mode: blocking
      result_key: child
      transitions: [{ condition: always, target: BOTH }]
    BOTH:
      kind: ParallelContainerRun
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

#[test]
fn valid_manifests_are_accepted() {
    valid(ManifestKind::Agent, AGENT);
    valid(ManifestKind::Agent, FULL_AGENT);
    valid(ManifestKind::Agent, PUBLISHED_AGENT);
    valid(ManifestKind::Workflow, WORKFLOW);
    valid(ManifestKind::Workflow, FULL_WORKFLOW);
    DAGS.iter().for_each(|text| valid(ManifestKind::Dag, text));
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
        let mut missing = Vec::new();
        walk(schema(kind), "", &mut missing);
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
