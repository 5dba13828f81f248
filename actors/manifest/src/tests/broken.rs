use super::{AGENT, WORKFLOW, assert_judged, misjudged, told};
use crate::{MAX_PROBLEMS, ManifestKind, read_workflow};

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
fn a_dag_of_today_is_refused_at_the_place_of_the_problem() {
    let texts = [
        ("steps:\n  - {run: x, command: y}\n", "2:14 steps[0].command", "`run` stands for it"),
        ("steps:\n  - {action: noop, type: noop}\n", "2:20 steps[0].type", "old notation"),
        ("steps:\n  - {run: x, action: noop}\n", "2:14 steps[0].action", "excludes `run`"),
        ("steps:\n  - {run: x, timeoutSec: 1}\n", "2:14 steps[0].timeoutSec", "`timeout_sec`"),
        ("steps:\n  a: {run: x}\n", "2:3 steps", "are a list"),
        ("steps:\n  - run: ' '\n", "2:10 steps[0].run", "not valid"),
        ("steps:\n  - run: [' ']\n", "2:10 steps[0].run", "not blank"),
        ("steps:\n  - run: [{a: b, c: d}]\n", "2:11 steps[0].run[0]", "in quotes"),
        ("steps:\n  - run: [\"a\\nb\"]\n", "2:10 steps[0].run", "one line"),
        ("steps:\n  - {run: x, with: {shel: sh}}\n", "2:21 steps[0].with.shel", "`shell`"),
        ("steps:\n  - {run: x, with: {shell: direct}}\n", "2:28 steps[0].with.shell", ""),
        ("steps:\n  - {run: x, with: {shell_args: [-c]}}\n", "2:20 steps[0].with", "needs `shell`"),
        ("steps:\n  - action: http.reqest\n", "2:13 steps[0].action", "`http.request`"),
        ("steps:\n  - action: git.worktree.move\n", "2:13 steps[0].action", "git.worktree."),
        ("steps:\n  - action: 'a b'\n", "2:13 steps[0].action", "no action `a b`"),
        ("steps:\n  - action: ssh.run\n", "2:13 steps[0].action", "`ssh` by `run`"),
        ("steps:\n  - action: k8s.run\n", "2:13 steps[0].action", "not here"),
        ("steps:\n  - action: redis.get\n", "2:13 steps[0].action", "not here"),
        ("steps:\n  - action: duckdb@v1\n", "2:13 steps[0].action", "not here"),
        (
            "steps:\n  - {action: http.request, with: {method: GET}}\n",
            "2:34 steps[0].with",
            "`url` is missing",
        ),
        (
            "steps:\n  - {action: log.write, with: {message: x, level: y}}\n",
            "2:44 steps[0].with.level",
            "not a key",
        ),
        (
            "steps:\n  - {action: file.read, with: {path: x, max_bytes: many}}\n",
            "2:52 steps[0].with.max_bytes",
            "A whole number",
        ),
        (
            "steps:\n  - {action: git.worktree.add, with: {branch: ''}}\n",
            "2:47 steps[0].with.branch",
            "not blank",
        ),
        (
            "steps:\n  - {action: jq.filter, with: {filter: ., data: 1, input: x}}\n",
            "2:31 steps[0].with",
            "excludes `input`",
        ),
        ("steps: [{run: x}]\notel: {}\n", "2:1 otel", "not here"),
        ("steps: [{run: x}]\nssh: {host: a}\n", "2:1 ssh", "not here"),
        ("steps: [{run: x}]\nworker_selector: {gpu: true}\n", "2:1 worker_selector", "one host"),
        ("type: build\nsteps: [{run: x}]\n", "1:7 type", "not here"),
        (
            "type: graph\nsteps:\n  - {id: r, action: router.route, with: {value: x, routes: {a: [z]}}}\n",
            "3:64 steps[0].with.routes.a",
            "no step `z`",
        ),
        (
            "steps:\n  - {name: ' a ', run: x}\n  - {name: a, run: x}\n",
            "3:12 steps[1].name",
            "the same",
        ),
        (
            "steps:\n  - {name: b, run: x}\n  - {id: b, run: x}\n",
            "3:10 steps[1].id",
            "another step is named",
        ),
        (
            "steps: [{container: {image: a, env: [B]}, run: x}]\n",
            "1:38 steps[0].container.env[0]",
            "`B`",
        ),
        ("steps: [{id: ENV, run: x}]\n", "1:14 steps[0].id", "reserved"),
        (
            "steps:\n  - {id: a, run: x, depends: b}\n  - {id: b, run: x, depends: a}\n",
            "2:21 steps[0].depends",
            "in a cycle",
        ),
        ("steps: [{id: a, run: x, depends: ' a'}]\n", "1:34 steps[0].depends[0]", "no step ` a`"),
        ("steps: [{run: x, outputs: null}]\n", "1:18 steps[0].outputs", "a list"),
        ("steps: [{id: a, run: x, outputs: []}]\n", "1:34 steps[0].outputs", "an output"),
        ("steps: [{run: x, outputs: [{name: a}]}]\n", "1:18 steps[0].outputs", "an `id`"),
        (
            "steps: [{id: a, run: x, outputs: [{name: b}, {name: b}]}]\n",
            "1:53 steps[0].outputs[1].name",
            "another output",
        ),
        (
            "steps: [{id: a, run: x, outputs: [{name: b, type: yaml}]}]\n",
            "1:51 steps[0].outputs[0].type",
            "`json`",
        ),
        ("steps: [{run: x, output: {a: {from: file}}}]\n", "1:30 steps[0].output.a", "each other"),
        ("steps: [{run: x, output: {a: {from: x}}}]\n", "1:30 steps[0].output.a", "neither"),
        ("steps: [{run: x, stderr: {outputs: a}}]\n", "1:27 steps[0].stderr.outputs", "`stdout`"),
        ("consts: {a: 1}\nsteps: [{run: x}]\n", "1:9 consts", "a list"),
        ("consts: [{a: 1, b: 2}]\nsteps: [{run: x}]\n", "1:10 consts[0]", "exactly one"),
        ("consts: [{1a: 1}]\nsteps: [{run: x}]\n", "1:11 consts[0].1a", "not a name"),
        ("params: [{name: 1a, default: x}]\nsteps: [{run: x}]\n", "1:17 params[0].name", "`1a`"),
        (
            "params: [{name: a, type: integer, default: x}]\nsteps: [{run: x}]\n",
            "1:44 params[0].default",
            "`type`",
        ),
        ("params: [{name: a, tpye: integer}]\nsteps: [{run: x}]\n", "1:10 params[0]", "its keys"),
        ("env: [A]\nsteps: [{run: x}]\n", "1:7 env[0]", "`A` is not `NAME=value`"),
        ("env: {1A: x}\nsteps: [{run: x}]\n", "1:7 env.1A", "not a name"),
        (
            "secrets: [{name: DAG_X, ref: a}]\nsteps: [{run: x}]\n",
            "1:18 secrets[0].name",
            "`DAG_X`",
        ),
        ("secrets: [{name: X, key: a}]\nsteps: [{run: x}]\n", "1:11 secrets[0]", "`provider`"),
        (
            "steps: [{run: x, preconditions: [{condition: a, eval: b, expected: c}]}]\n",
            "1:34 steps[0].preconditions[0]",
            "excludes `eval`",
        ),
        ("preconditions: [{eval: a}]\nsteps: [{run: x}]\n", "1:17 preconditions[0]", "`expected`"),
        ("preconditions: {condition: a}\nsteps: [{run: x}]\n", "1:16 preconditions", "a list"),
        ("steps: [{run: x, parallel: [1]}]\n", "1:18 steps[0].parallel", "`action: dag.run`"),
        ("steps: [{action: noop, parallel: [1]}]\n", "1:24 steps[0].parallel", "`action: dag.run`"),
        (
            "steps: [{action: dag.run, with: {dag: a}, parallel: [{a: [1]}]}]\n",
            "1:54 steps[0].parallel[0]",
            "an item",
        ),
        ("steps: [{action: human.task, with: {prompt: x}}]\n", "1:9 steps[0]", "explicit `id`"),
        (
            "steps: [{id: a, action: human.task, timeout_sec: 0, with: {prompt: x}}]\n",
            "1:37 steps[0].timeout_sec",
            "has no `timeout_sec`",
        ),
        (
            "steps: [{id: a, action: human.task, with: {prompt: x, form: {type: list}}}]\n",
            "1:68 steps[0].with.form.type",
            "`object`",
        ),
        (
            "steps: [{id: a, action: human.task, with: {prompt: x, form: {type: object, required: [b]}}}]\n",
            "1:87 steps[0].with.form.required[0]",
            "`b` is not a property",
        ),
        (
            "steps: [{id: a, action: human.task, with: {prompt: x, form: {type: object, properties: {b: {type: list}}}}}]\n",
            "1:99 steps[0].with.form.properties.b.type",
            "`string`",
        ),
        (
            "handler_on: {exit: {id: a, action: human.task, with: {prompt: x}}}\nsteps: [{run: x}]\n",
            "1:36 handler_on.exit.action",
            "a handler has no",
        ),
        (
            "steps:\n  - foreach: {items: [1], steps: [{id: a, action: human.task, with: {prompt: x}}]}\n",
            "2:51 steps[0].foreach.steps[0].action",
            "`foreach` has no",
        ),
        (
            "steps:\n  - {id: a, run: x}\n  - foreach: {items: [1], steps: [{id: a, run: x}]}\n",
            "3:40 steps[1].foreach.steps[0].id",
            "around `foreach`",
        ),
        (
            "steps:\n  - {id: a, run: x}\n  - foreach: {items: [1], steps: [{run: x, depends: a}]}\n",
            "3:53 steps[1].foreach.steps[0].depends[0]",
            "no step `a`",
        ),
        (
            "steps:\n  - foreach: {items: [1], as: key, steps: [{run: x}]}\n",
            "2:31 steps[0].foreach.as",
            "reserved",
        ),
        ("steps:\n  - foreach: {items: [1], steps: []}\n", "2:34 steps[0].foreach.steps", ""),
        (
            "steps:\n  - {run: x, foreach: {items: [1], steps: [{run: x}]}}\n",
            "2:14 steps[0].foreach",
            "excludes `run`",
        ),
        ("type: agent\ntasks: [{name: a, description: b}]\nsteps: [{run: x}]\n", "1:1 : ", "`llm`"),
        ("type: agent\nllm: {}\nsteps: [{run: x}]\n", "1:1 tasks", "at least one"),
        ("tasks: [{name: a, description: b}]\nsteps: [{run: x}]\n", "1:1 tasks", "`type: agent`"),
        (
            "type: agent\nllm: {}\ntasks: [{name: a, description: b}, {name: a, description: b}]\nsteps: [{run: x}]\n",
            "3:43 tasks[1].name",
            "another task",
        ),
        (
            "type: agent\nllm: {}\ntasks: [{name: a, description: b}]\nsteps: [{run: x, depends: []}]\n",
            "4:18 steps[0].depends",
            "the agent chooses",
        ),
        (
            "type: agent\nllm: {}\ntasks: [{name: a, description: b}]\nsteps: [{name: __agent__, run: x}]\n",
            "4:16 steps[0].name",
            "reserved",
        ),
        (
            "actions: {a: {input_schema: {}, template: {run: x, action: noop}}}\nsteps: [{action: a}]\n",
            "1:43 actions.a.template",
            "exactly one",
        ),
        (
            "actions: {noop: {input_schema: {}, template: {run: x}}}\nsteps: [{action: noop}]\n",
            "1:11 actions.noop",
            "there already",
        ),
        (
            "schedule: {stop: {at: '2030-01-31T09:00:00Z'}}\nsteps: [{run: x}]\n",
            "1:18 schedule.stop",
            "a single time",
        ),
        ("defaults: {run: x}\nsteps: [{run: x}]\n", "1:12 defaults.run", "no default"),
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

/// Parts that are put in place of the human state, behind its name.
#[test]
fn texts_and_keys_of_a_workflow_are_refused_at_their_places() {
    let state = |body: &str| WORKFLOW.replace("kind: Human\n      prompt: Is it good?", body);
    let cases = [
        (
            state("kind: Human\n      prompt: '{{WIRTE.output}}'"),
            "25:15 spec.states.DONE.prompt",
            "there is no `WIRTE`",
        ),
        (
            state("kind: Human\n      prompt: '{{#if input}}'"),
            "25:15 spec.states.DONE.prompt",
            "is not a usable template",
        ),
        (
            state("kind: Human\n      prompt: '{{output}}'"),
            "25:15 spec.states.DONE.prompt",
            "there is no `output`",
        ),
        (
            state("kind: System\n      command: x\n      env: {A: '{{shout input}}'}"),
            "26:16 spec.states.DONE.env.A",
            "there is no helper `shout`",
        ),
        (
            state("kind: System\n      command: update_blackboard\n      env: {input: x}"),
            "26:13 spec.states.DONE.env.input",
            "choose another key",
        ),
        (
            state("kind: Subworkflow\n      workflow_id: x\n      result_key: context"),
            "26:19 spec.states.DONE.result_key",
            "choose another key",
        ),
        (
            state(
                "kind: ContainerRun\n      name: x\n      image: i\n      command: [x]\n      volumes: [{name: workspaec, mount_path: /a}]",
            ),
            "28:24 spec.states.DONE.volumes[0].name",
            "did you mean `workspace`",
        ),
        (
            state(
                "kind: ContainerRun\n      name: x\n      image: i\n      command: [x]\n      volumes: [{name: workspace, mount_path: /a/../b}]",
            ),
            "28:47 spec.states.DONE.volumes[0].mount_path",
            "`..`",
        ),
        (
            state(
                "kind: ContainerRun\n      name: x\n      image: i\n      command: [x]\n      volumes: [{name: workspace, mount_path: /a}, {name: workspace, mount_path: /a/}]",
            ),
            "28:82 spec.states.DONE.volumes[1].mount_path",
            "another volume",
        ),
        (
            state(
                "kind: ParallelAgents\n      agents: [{agent: a, input: x}]\n      consensus: {strategy: majority, min_judges_required: 2}",
            ),
            "26:60 spec.states.DONE.consensus.min_judges_required",
            "2 of 1 agents",
        ),
        (WORKFLOW.replace("DONE", "score"), "23:5 spec.states.score", "choose another name"),
        (
            WORKFLOW.replace("  states:", "  context: {human: 1}\n  states:"),
            "7:13 spec.context.human",
            "choose another key",
        ),
        (
            WORKFLOW.replace("  states:", "  context: {DONE: 1}\n  states:"),
            "7:13 spec.context.DONE",
            "a state has the same name",
        ),
        (
            WORKFLOW.replace(
                "condition: on_failure",
                "condition: custom\n          expression: otput.ok",
            ),
            "22:23 spec.states.CHECK.transitions[1].expression",
            "`otput` is not one of",
        ),
        (
            WORKFLOW.replace("condition: on_failure", "condition: exit_code\n          value: '3'"),
            "22:18 spec.states.CHECK.transitions[1].value",
            "without quotes",
        ),
        (
            WORKFLOW.replace(
                "condition: on_failure",
                "condition: score_and_confidence_above\n          score_threshold: 1",
            ),
            "21:22 spec.states.CHECK.transitions[1].condition",
            "`confidence_threshold`",
        ),
        (
            WORKFLOW.replace("condition: exit_code_zero", "condition: always"),
            "21:22 spec.states.CHECK.transitions[1].condition",
            "`always` stands before it",
        ),
        (
            WORKFLOW.replace(
                "  name: refine",
                "  name: refine\n  output_template: {a: [{b: '{{c}}'}]}",
            ),
            "5:29 metadata.output_template.a[0].b",
            "there is no `c`",
        ),
    ];
    assert_judged(&misjudged(ManifestKind::Workflow, cases));
}

#[test]
fn a_registered_workflow_goes_somewhere_by_each_score() {
    let scored = |conditions: &[&str]| {
        let transition =
            |condition| format!("        - {{condition: {condition}, target: DONE}}\n");
        let list: String = conditions.iter().map(transition).collect();
        let from = WORKFLOW.find("        - condition: exit_code_zero").expect("it is there");
        let to = WORKFLOW.find("    DONE:").expect("it is there");
        let text = format!("{}{list}{}", &WORKFLOW[..from], &WORKFLOW[to..]);
        assert_eq!(told(ManifestKind::Workflow, &text), Vec::<String>::new());
        read_workflow(&text, None).map(drop).map_err(|problems| problems[0].to_string())
    };
    let (above, below) = ("score_above, threshold: 0.5", "score_below, threshold: 0.5");
    assert_eq!(scored(&[above, below]), Ok(()));
    assert_eq!(scored(&["on_success", "on_failure"]), Ok(()));
    let told = scored(&[above, "always"]).expect_err("no way for a low score");
    assert!(told.contains("19:7") || told.contains("`score_below`"), "{told}");
    let told = scored(&[above, below, "on_success"]).expect_err("two measures");
    assert!(told.contains("transitions[2].condition"), "{told}");
    let told = scored(&["score_between, min: 0, max: 1"]).expect_err("no way for a low score");
    assert!(told.contains("`score_below`"), "{told}");
}

#[test]
fn agents_of_a_workflow_are_those_that_there_are() {
    let judged = |agent: &str, judge: &str| {
        format!(
            "apiVersion: 100monkeys.ai/v1\nkind: Workflow\nmetadata: {{ name: w }}\nspec:\n  \
             initial_state: A\n  states:\n    A:\n      kind: Agent\n      agent: '{agent}'\n      \
             input: x\n      judges: [{{ agent_id: '{judge}' }}]\n      transitions: []\n"
        )
    };
    let known = ["coder", "judge"];
    let text = judged("coder", "judge");
    assert!(read_workflow(&text, Some(&known)).is_ok());
    assert!(read_workflow(&judged("{{intent}}", "judge"), Some(&known)).is_ok());
    let text = judged("codr", "nobody");
    assert!(read_workflow(&text, None).is_ok());
    let problems = read_workflow(&text, Some(&known)).expect_err("neither is there");
    let told: Vec<_> = problems.iter().map(|it| (it.path.as_str(), it.message.as_str())).collect();
    assert_eq!(
        told,
        [
            ("spec.states.A.agent", "there is no agent `codr`: did you mean `coder`?"),
            ("spec.states.A.judges[0].agent_id", "there is no agent `nobody`"),
        ]
    );
    let many: String = (0..3_000).map(|n| format!("{{ agent_id: n{n} }}, ")).collect();
    let text = judged("coder", "judge").replace("{ agent_id: 'judge' }", &many);
    let known: Vec<_> = (0..500).map(|n| format!("known-{n}")).collect();
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    let problems = read_workflow(&text, Some(&known)).expect_err("none is there");
    assert_eq!(problems.len(), MAX_PROBLEMS);
}

#[test]
fn a_flood_of_problems_is_cut() {
    let text: String = (0..500).map(|n| format!("x{n}: 1\n")).collect();
    assert_eq!(told(ManifestKind::Dag, &format!("{text}steps: [x]\n")).len(), MAX_PROBLEMS);
    let list: String = (0..500).map(|_| "  - {name: a}\n").collect();
    assert_eq!(told(ManifestKind::Dag, &format!("steps:\n{list}")).len(), MAX_PROBLEMS);
}
