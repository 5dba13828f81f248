use super::{AGENT, WORKFLOW, assert_judged, misjudged, told};
use crate::{MAX_PROBLEMS, ManifestKind};

#[test]
fn a_dag_is_refused_at_the_place_of_the_problem() {
    let texts = [
        ("steps:\n  - comand: echo\n", "2:5 steps[0].comand: ", "did you mean `command`"),
        (
            "steps:\n  - command: x\n    continueOn: failed\n",
            "3:5 steps[0].continueOn",
            "write `continue_on`",
        ),
        ("step:\n  - x\n", "1:1 step: ", "did you mean `steps`"),
        ("name: a b\nsteps: [x]\n", "1:7 name: ", "at most 40 letters"),
        ("steps: 5\n", "1:8 steps: ", "expected a list or a mapping"),
        ("steps: []\n", "1:8 steps: ", "needs a step"),
        (
            "steps:\n  - name: a\n    command: x\n  - name: a\n    command: y\n",
            "4:11 steps[1].name",
            "the same",
        ),
        ("steps:\n  - {id: env, command: x}\n", "2:10 steps[0].id", "reserved"),
        ("steps:\n  - {id: 1a, command: x}\n", "2:10 steps[0].id", "a letter, then"),
        (
            "steps:\n  - {id: b, command: x}\n  - {name: b, command: x}\n",
            "2:10 steps[0].id",
            "another step is named",
        ),
        (
            "steps:\n  - {name: a, command: x}\n  - {name: b, command: x, depends: a}\n",
            "3:27 steps[1].depends",
            "type: graph",
        ),
        (
            "type: graph\nsteps:\n  - {name: alpha, command: x}\n  - {name: b, command: x, depends: alhpa}\n",
            "4:36 steps[1].depends",
            "did you mean `alpha`",
        ),
        (
            "type: graph\nsteps:\n  a: {command: x, depends: c}\n  b: {command: x, depends: a}\n  c: {command: x, depends: [b]}\n",
            "3:19 steps.a.depends",
            "`a` after `c` after `b` after `a`",
        ),
        (
            "type: graph\nsteps:\n  a: {command: x, depends: a}\n",
            "3:19 steps.a.depends",
            "cannot follow itself",
        ),
        ("steps:\n  - {type: dokcer, command: x}\n", "2:12 steps[0].type", "did you mean `docker`"),
        ("steps:\n  - {type: noop, command: x}\n", "2:18 steps[0].command", "has no `command`"),
        ("steps:\n  - {type: http, command: [a, b]}\n", "2:27 steps[0].command", "has one command"),
        ("steps:\n  - {name: a}\n", "2:5 steps[0]", "does nothing"),
        ("steps:\n  - {command: x, parallel: [1]}\n", "2:18 steps[0].parallel", "needs `call`"),
        (
            "steps:\n  - {call: x, parallel: {items: [1], max_concurrent: 1001}}\n",
            "2:54 steps[0].parallel.max_concurrent",
            "at most 1000",
        ),
        ("steps:\n  - {command: x, stdout: o, stderr: o}\n", "2:37 steps[0].stderr", "same file"),
        (
            "steps:\n  - {command: x, signal_on_stop: TERM}\n",
            "2:34 steps[0].signal_on_stop",
            "SIGINT",
        ),
        (
            "steps:\n  - {command: x, retry_policy: {limit: 1}}\n",
            "2:32 steps[0].retry_policy",
            "`interval_sec` is missing",
        ),
        (
            "steps:\n  - {command: x, retry_policy: {limit: 1, interval_sec: 1, backoff: 0.5}}\n",
            "2:69 steps[0].retry_policy.backoff",
            "more than 1",
        ),
        (
            "steps:\n  - {command: x, repeat_policy: {repeat: while}}\n",
            "2:33 steps[0].repeat_policy",
            "`condition` or `exit_code`",
        ),
        (
            "steps:\n  - {command: x, preconditions: [{condition: a, expected: 're:('}]}\n",
            "2:59 steps[0].preconditions[0].expected",
            "regular expression",
        ),
        (
            "steps:\n  - {command: x, container: {image: a, exec: b}}\n",
            "2:29 steps[0].container",
            "exactly one",
        ),
        (
            "steps:\n  - {command: x, worker_selector: {}, approval: {}}\n",
            "2:18 steps[0].worker_selector",
            "excludes `approval`",
        ),
        (
            "steps:\n  - {command: x, approval: {required: [a]}}\n",
            "2:40 steps[0].approval.required[0]",
            "not asked for",
        ),
        (
            "steps:\n  - {command: x, approval: {rewind_to: b}}\n  - {name: b, command: y}\n",
            "2:40 steps[0].approval.rewind_to",
            "neither this step",
        ),
        ("schedule: '61 * * * *'\nsteps: [x]\n", "1:11 schedule", "cron"),
        ("schedule: '* * * *'\nsteps: [x]\n", "1:11 schedule", "five fields, and this one 4"),
        ("schedule: [{at: tomorrow}]\nsteps: [x]\n", "1:17 schedule[0].at", "RFC 3339"),
        (
            "hist_retention_days: 1\nhist_retention_runs: 1\nsteps: [x]\n",
            "2:1 hist_retention_runs",
            "excludes",
        ),
        (
            "handler_on:\n  sucess: {command: x}\nsteps: [x]\n",
            "2:3 handler_on.sucess",
            "did you mean `success`",
        ),
        (
            "type: graph\nsteps:\n  - {name: r, type: router, value: x, routes: {a: z}}\n",
            "3:51 steps[0].routes.a",
            "no step `z`",
        ),
        ("steps: [x]\n---\nsteps: [y]\n", "3:1 : ", "needs a `name`"),
        ("name: a\nsteps: [x]\n---\nname: a\nsteps: [y]\n", "4:7 name", "another document"),
        ("steps:\n  - a\n - b\n", "3:", ""),
        ("steps: [x]\nsteps: [y]\n", "2:1 : ", "steps"),
        ("steps: [*x]\n", "1:9 : ", ""),
        ("", "1:1 : ", "no document"),
    ];
    let texts = texts.map(|(text, place, words)| (text.to_owned(), place, words));
    assert_judged(&misjudged(ManifestKind::Dag, texts));
}

#[test]
fn an_agent_is_refused_at_the_place_of_the_problem() {
    let changes = [
        ("kind: Agent", "kind: Agnt", "2:7 kind", "expected `Agent`"),
        ("name: reviewer", "name: Reviewer", "4:9 metadata.name", "`a-z`"),
        ("version: 1.0.0", "version: 1.0", "5:12 metadata.version", "in quotes"),
        ("version: 1.0.0", "version: '1.0'", "5:12 metadata.version", "as `1.2.3`"),
        ("    version: '3.11'\n", "", "8:5 spec.runtime", "needs `version`"),
        (
            "    version: '3.11'",
            "    version: '3.11'\n    image: a/b",
            "10:5 spec.runtime.image",
            "in place of",
        ),
        ("    version: '3.11'", "    version: 3.11", "9:14 spec.runtime.version", "in quotes"),
        ("Review the change.", "'  '", "11:18 spec.task.instruction", "not blank"),
        ("  task:", "  schdule: {}\n  task:", "10:3 spec.schdule", "did you mean `schedule`"),
        (
            "  task:",
            "  schedule: {type: cron, cron: x}\n  task:",
            "10:32 spec.schedule.cron",
            "five fields",
        ),
        (
            "  task:",
            "  schedule: {type: cron, cron: '0 9 * * *', timezone: Europe/Berlln}\n  task:",
            "10:55 spec.schedule.timezone",
            "not a time zone",
        ),
        (
            "  task:",
            "  schedule: {type: cron, cron: '0 9 30 2 *'}\n  task:",
            "10:32 spec.schedule.cron",
            "no time that ever comes",
        ),
        (
            "  task:",
            "  volumes: [{name: a, mount_path: /tmp, size_limit: 1}]\n  task:",
            "10:35 spec.volumes[0].mount_path",
            "`/workspace` or below",
        ),
        (
            "  task:",
            "  volumes:\n  - {name: a, mount_path: /workspace/a, size_limit: 1}\n  - {name: b, mount_path: /workspace/a/b, size_limit: 1}\n  task:",
            "12:27 spec.volumes[1].mount_path",
            "overlaps",
        ),
        (
            "  task:",
            "  execution: {validation: [{type: regex, pattern: '('}]}\n  task:",
            "10:51 spec.execution.validation[0].pattern",
            "regular expression",
        ),
        (
            "  task:",
            "  execution: {validation: [{type: regexp}]}\n  task:",
            "10:35 spec.execution.validation[0].type",
            "`regex`",
        ),
        (
            "  task:",
            "  execution: {tool_validation: [{type: exit_code}]}\n  task:",
            "10:40 spec.execution.tool_validation[0].type",
            "`semantic`",
        ),
        (
            "  task:",
            "  contexts: [{service: imap, required: true}]\n  task:",
            "10:3 spec.contexts",
            "add a source",
        ),
        (
            "  task:",
            "  execution: {memory: true}\n  task:",
            "10:23 spec.execution.memory",
            "name `vault`",
        ),
        (
            "  task:",
            "  execution: {validation: {output: {format: pdf}}}\n  task:",
            "10:45 spec.execution.validation.output.format",
            "judge that by `script`",
        ),
        (
            "  task:",
            "  execution: {validation: {output: {schema: {type: object}}}}\n  task:",
            "10:37 spec.execution.validation.output.schema",
            "needs `format: json`",
        ),
        (
            "  task:",
            "  execution: {validation: {semantic: {fallback_on_unavailable: skip}}}\n  task:",
            "10:64 spec.execution.validation.semantic.fallback_on_unavailable",
            "write `fail`",
        ),
        (
            "  task:",
            "  execution: {validation: {systm: {}}}\n  task:",
            "10:28 spec.execution.validation.systm",
            "did you mean `system`",
        ),
        ("  task:", "  tools: [a, b, a]\n  task:", "10:17 spec.tools[2]", "twice"),
        (
            "  task:",
            "  input_schema: {type: nothing}\n  task:",
            "10:24 spec.input_schema.type",
            "JSON Schema",
        ),
        (
            "  task:",
            "  security: {resources: {memory: 5 apples}}\n  task:",
            "10:34 spec.security.resources.memory",
            "`512Mi`",
        ),
    ];
    let texts = changes.map(|(from, to, place, words)| (AGENT.replacen(from, to, 1), place, words));
    assert_judged(&misjudged(ManifestKind::Agent, texts));
    let two = (format!("{AGENT}---\na: 1\n"), "13:1 : ", "another document");
    assert_judged(&misjudged(ManifestKind::Agent, [two]));
}

#[test]
fn a_workflow_is_refused_at_the_place_of_the_problem() {
    let changes = [
        (
            "initial_state: WRITE",
            "initial_state: WRIET",
            "6:18 spec.initial_state",
            "did you mean `WRITE`",
        ),
        (
            "target: CHECK",
            "target: CHEKC",
            "14:19 spec.states.WRITE.transitions[0].target",
            "did you mean `CHECK`",
        ),
        ("kind: System", "kind: Sytem", "16:13 spec.states.CHECK.kind", "`System`"),
        ("      kind: System\n", "", "16:7 spec.states.CHECK", "`kind` is missing"),
        (
            "command: make test",
            "comand: make test",
            "16:7 spec.states.CHECK",
            "`command` is missing",
        ),
        (
            "condition: exit_code_zero",
            "condition: exit_code",
            "19:22 spec.states.CHECK.transitions[0].condition",
            "needs `value`",
        ),
        (
            "condition: always",
            "condition: always\n          threshold: 0.5",
            "14:11 spec.states.WRITE.transitions[0].threshold",
            "says nothing",
        ),
        (
            "condition: always",
            "condition: score_above\n          threshold: 1.5",
            "14:22 spec.states.WRITE.transitions[0].threshold",
            "at most 1",
        ),
        (
            "          target: DONE",
            "          target: WRITE",
            "8:5 spec.states.WRITE",
            "never ends",
        ),
        (
            "kind: Human",
            "kind: ContainerRun\n      name: x\n      image: i\n      command: [x]\n      run_as_user: root",
            "28:20 spec.states.DONE",
            "65534:65534",
        ),
        ("initial_state: WRITE", "initial_state: DONE", "8:5 spec.states.WRITE", "never entered"),
        (
            "    DONE:\n      kind: Human\n      prompt: Is it good?",
            "    DONE:\n      kind: Subworkflow\n      workflow_id: x",
            "24:7 spec.states.DONE",
            "`result_key` is missing",
        ),
    ];
    let texts =
        changes.map(|(from, to, place, words)| (WORKFLOW.replacen(from, to, 1), place, words));
    assert_judged(&misjudged(ManifestKind::Workflow, texts));
}

#[test]
fn a_flood_of_problems_is_cut() {
    let text: String = (0..500).map(|n| format!("x{n}: 1\n")).collect();
    assert_eq!(told(ManifestKind::Dag, &format!("{text}steps: [x]\n")).len(), MAX_PROBLEMS);
    let list: String = (0..500).map(|_| "  - {name: a}\n").collect();
    assert_eq!(told(ManifestKind::Dag, &format!("steps:\n{list}")).len(), MAX_PROBLEMS);
}
