//! Each field of a manifest changes an execution's plan, or is refused by its name.

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{AgentId, Effect, ToolSpec};
use hivekeep_manifest::{ManifestKind, parse_agent, schema};
use hivekeep_runtime::Family;
use serde_json::{Value, json};

use super::*;

/// What a field does.
enum Does {
    /// The plan is another one.
    Changes,
    /// The execution is refused, by this name.
    Refused(&'static str),
    /// It is about something else than an execution, and changes none.
    Nothing,
}
use Does::{Changes, Nothing, Refused};

/// A field below `spec`, a value that it has no default of, and what that does.
fn fields() -> Vec<(&'static str, Value, Does)> {
    let judge = || json!([{ "type": "semantic", "judge_agent": "j", "criteria": "c" }]);
    let exit = json!([judge()[0], { "type": "exit_code" }]);
    let many = vec![json!({ "type": "url", "url": "https://a.b" }); 33].into();
    let rules = json!({ "output": { "regex": "a" } });
    let container = json!({ "type": "container", "image": "a/b", "command": ["c"] });
    let mut large = container.clone();
    large["resources"] = json!({ "memory": "9Ti" });
    let receiver =
        |webhook: Value| json!({ "destinations": [{ "name": "a", "webhook": webhook }] });
    let volume = json!([{ "name": "v", "mount_path": "/workspace", "size_limit": "1Gi" }]);
    let all_files = json!({ "read": ["/workspace"], "write": ["/workspace"] });
    let dispatcher = json!([{ "name": "cmd", "capabilities": [{ "name": "cmd.run" }] }]);
    vec![
        // The words of a manifest for its readers, and an image that is not looked for by them yet.
        ("runtime.language", json!("rust"), Nothing),
        ("runtime.version", json!("3.12"), Nothing),
        ("runtime.image", json!("python/3"), Changes),
        ("runtime.image_pull_policy", json!("Always"), Refused("spec.runtime.image_pull_policy")),
        ("runtime.isolation", json!("docker"), Refused("spec.runtime.isolation")),
        ("runtime.isolation", json!("process"), Changes),
        ("runtime.model", json!("smart"), Changes),
        ("runtime.temperature", json!(0.5), Changes),
        ("runtime.program", json!("codex"), Changes),
        ("runtime.command", json!({ "argv": ["true"], "wire": "chat" }), Changes),
        ("task.instruction", json!("Do that."), Changes),
        ("task.prompt_template", json!("{{instruction}} {{input}}"), Changes),
        ("task.input_data", json!({ "depth": 3 }), Changes),
        ("context", json!([{ "type": "text", "content": "Read this." }]), Changes),
        ("context", json!([{ "type": "url", "url": "https://a.b" }]), Changes),
        ("context", json!([{ "type": "file", "path": "a", "place": "b" }]), Changes),
        ("context", json!([{ "type": "directory", "path": "a" }]), Changes),
        ("context", many, Refused("spec.context")),
        ("contexts", json!([{ "service": "imap" }]), Refused("spec.contexts")),
        ("execution.mode", json!("iterative"), Changes),
        ("execution.max_retries", json!(3), Changes),
        ("execution.max_iterations", json!(3), Changes),
        ("execution.iteration_timeout", json!("5m"), Changes),
        ("execution.llm_timeout_seconds", json!(5), Changes),
        ("execution.memory", json!(true), Refused("spec.execution.memory")),
        ("execution.validation", json!([]), Nothing),
        ("execution.validation", judge(), Changes),
        ("execution.validation", rules, Refused("spec.execution.validation")),
        ("execution.validation", exit, Refused("spec.execution.validation[1]")),
        ("execution.tool_validation", judge(), Changes),
        ("execution.delivery", json!({ "destinations": [] }), Nothing),
        ("execution.delivery", receiver(json!({ "url": "https://a.b" })), Changes),
        ("execution.delivery", receiver(json!({ "uri": "a" })), Refused("destinations[0].webhook")),
        ("execution.budget", json!({ "tokens": 5 }), Changes),
        ("execution.compaction", json!({ "tokens": 5_000 }), Changes),
        ("execution.checkpoint", json!("none"), Nothing),
        ("execution.checkpoint", json!("turn"), Changes),
        ("security.network", json!({ "mode": "none" }), Changes),
        ("security.filesystem", json!({ "read": [] }), Refused("spec.security.filesystem")),
        ("security.filesystem", all_files, Changes),
        ("security.resources.cpu", json!(500), Changes),
        ("security.resources.memory", json!("1Gi"), Changes),
        ("security.resources.disk", json!("1Gi"), Changes),
        ("security.resources.timeout", json!("1h"), Changes),
        // Another matter: the agent's schedule obeys it.
        ("schedule", json!({ "type": "interval", "seconds": 60 }), Nothing),
        ("tools", json!(["fs.read"]), Changes),
        ("env", json!({ "A": "b" }), Changes),
        ("volumes", volume, Changes),
        ("advanced", json!({ "warm_pool_size": 1 }), Refused("spec.advanced")),
        ("input_schema", json!({ "required": ["path"] }), Refused("/: ")),
        ("security_context", json!("strict"), Changes),
        ("output_handler", container, Changes),
        ("output_handler", large, Refused("spec.output_handler.resources.memory")),
        ("builtin_dispatchers", dispatcher, Refused("spec.builtin_dispatchers")),
    ]
}

/// Name, family and effect of a tool.
type NamedTool = (&'static str, &'static str, Effect);
const COMMAND: NamedTool = ("cmd.run", "dispatch", Effect::Write);
const READ: NamedTool = ("fs.read", "fs", Effect::Read);
const SEARCH: NamedTool = ("aegis.agent.search", "agents", Effect::Read);
const FORK: NamedTool = ("workspace_fork", "snapshots & forking", Effect::Write);

/// A host with both kinds of machines, and tools.
fn host(tools: &[NamedTool]) -> MachineHost {
    let template = crate::AgentFamily::tools()[0].spec;
    let tool = |(name, family, effect): &NamedTool| -> &'static ToolSpec {
        Box::leak(Box::new(ToolSpec { name, family, effect: *effect, ..template }))
    };
    MachineHost {
        tools: tools.iter().map(tool).collect(),
        runs_program: false,
        reads_files: false,
        transforms: false,
        bounds: Some(Arc::new(crate::tests::machines::bounds())),
        has_image: false,
    }
}

/// Agent with a field set, which need not be valid as a whole.
fn agent(path: &str, value: Value) -> AgentManifest {
    let mut agent = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": "a", "version": "1.0.0" },
        "spec": {
            "runtime": { "language": "python", "version": "3.11" },
            "task": { "instruction": "Do it." },
        },
    });
    // Numbers of iterations are of an agent that has several.
    if path.starts_with("execution.max_") {
        agent["spec"]["execution"] = json!({ "mode": "iterative" });
    }
    let at = path.split('.').fold(&mut agent["spec"], |at, key| &mut at[key]);
    *at = value;
    serde_json::from_value(agent).expect(path)
}

fn plan(manifest: AgentManifest, input: Value) -> Result<ExecutionPlan, ToolError> {
    let Value::Object(input) = input else { panic!("an object") };
    planned(manifest, input, host(&[COMMAND]))
}

fn planned(
    manifest: AgentManifest,
    input: JsonObject,
    host: MachineHost,
) -> Result<ExecutionPlan, ToolError> {
    let request = ExecutionRequest {
        intent: Some("Now".to_owned()),
        input,
        chat: None,
        host,
        scheduled_for: None,
    };
    let id = "agent_00000000000000000000000000000001".parse::<AgentId>().expect("an id");
    ExecutionPlan::of(id, manifest, request, &Options::default())
}

#[test]
fn each_field_changes_the_plan_or_is_refused_by_its_name() {
    let base = |path: &str| {
        let bare = if path.starts_with("execution.max_") { "execution.mode" } else { "tools" };
        let value = if bare == "tools" { json!([]) } else { json!("iterative") };
        plan(agent(bare, value), json!({})).expect("planned")
    };
    for (path, value, does) in fields() {
        let planned = plan(agent(path, value), json!({}));
        match does {
            Changes => assert_ne!(planned.expect(path), base(path), "{path}"),
            Nothing => assert_eq!(planned.expect(path), base(path), "{path}"),
            Refused(name) => {
                let refused = planned.expect_err(path);
                let text = refused.message.clone() + &json!(refused.details).to_string();
                assert!(text.contains(name), "{path}: {refused}");
            }
        }
    }
}

#[test]
fn no_field_of_the_schema_is_left_out() {
    let schema = schema(ManifestKind::Agent);
    let keys = |definition: &str, prefix: &str| -> BTreeSet<String> {
        let properties = schema["$defs"][definition]["properties"].as_object();
        let keys = properties.expect(definition).keys();
        keys.map(|key| format!("{prefix}{key}")).collect()
    };
    let mut all = keys("AgentSpec", "");
    for (part, definition) in [
        ("runtime", "AgentRuntime"),
        ("task", "AgentTask"),
        ("execution", "AgentExecution"),
        ("security", "AgentSecurity"),
    ] {
        assert!(all.remove(part), "{part}");
        all.extend(keys(definition, &format!("{part}.")));
    }
    assert!(all.remove("security.resources"));
    all.extend(keys("ResourceLimits", "security.resources."));
    let told: BTreeSet<_> = fields().into_iter().map(|(path, ..)| path.to_owned()).collect();
    assert_eq!(all, told);
}

#[test]
fn all_fields_that_nothing_obeys_are_named_at_once() {
    let text = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: a, version: 1.0.0 }\nspec:\n  \
        runtime: { language: python, version: '3.11', isolation: docker }\n  task: { instruction: Do it. }\n  \
        env: { A: 'secret:b' }\n";
    let refused = plan(parse_agent(text).expect("valid"), json!({})).expect_err("refused");
    assert_eq!(refused.code, "agent_field_unsupported");
    let fields = refused.details["fields"].as_array().expect("fields");
    let names: Vec<_> = fields.iter().map(|field| field["field"].as_str().expect("one")).collect();
    assert_eq!(names, ["spec.runtime.isolation", "spec.env.A"]);
    assert!(fields[0]["instead"].as_str().expect("text").contains("inherit"));
}

/// What is asked of a machine by a spec, for these tools, or the fields that are refused.
fn machine(spec: &Value, tools: &[NamedTool]) -> Result<Option<AgentMachinePlan>, Vec<String>> {
    let mut agent = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": "a", "version": "1.0.0" },
        "spec": { "runtime": { "language": "python" }, "task": { "instruction": "Do it." } },
    });
    for (key, value) in spec.as_object().expect("fields") {
        agent["spec"][key] = value.clone();
    }
    let agent = serde_json::from_value(agent).expect("a manifest");
    planned(agent, JsonObject::new(), host(tools)).map(|plan| plan.machine).map_err(|refused| {
        let fields = refused.details["fields"].as_array().expect("fields");
        let name = |field: &Value| field["field"].as_str().expect("one").to_owned();
        fields.iter().map(name).collect()
    })
}

#[test]
fn a_machine_is_bound_as_it_is_asked_or_the_field_is_refused() {
    let network = |network: Value| json!({ "security": { "network": network } });
    let files = |files: Value| json!({ "security": { "filesystem": files } });
    let size = |key: &str, size: Value| json!({ "security": { "resources": { key: size } } });
    let volume = |more: Value| {
        let mut volume = json!({ "name": "v", "mount_path": "/workspace", "size_limit": "2Gi" });
        volume.as_object_mut().expect("one").extend(more.as_object().expect("fields").clone());
        json!({ "volumes": [volume] })
    };
    for (spec, asked, egress) in [
        (network(json!({})), json!({ "allow_internet": true }), vec![]),
        (network(json!({ "mode": "none" })), json!({ "allow_internet": false }), vec![]),
        (network(json!({ "mode": "deny" })), json!({ "allow_internet": false }), vec![]),
        (network(json!({ "allowlist": [] })), json!({ "allow_internet": false }), vec![]),
        (network(json!({ "allowlist": ["a.b"] })), json!({ "allow_internet": false }), vec!["a.b"]),
        (
            network(json!({ "mode": "none", "allowlist": ["a.b"], "denylist": ["c"] })),
            json!({ "allow_internet": false }),
            vec![],
        ),
        (size("cpu", json!(1001)), json!({ "vcpus": 2 }), vec![]),
        (size("memory", json!("100M")), json!({ "memory_mb": 96 }), vec![]),
        (size("memory", json!(1)), json!({ "memory_mb": 64 }), vec![]),
        (size("disk", json!("1500Mi")), json!({ "disk_gb": 2 }), vec![]),
        (volume(json!({})), json!({ "disk_gb": 2 }), vec![]),
        (json!({ "runtime": { "isolation": "microvm" } }), json!({ "isolation": "vm" }), vec![]),
        (json!({ "runtime": { "image": "a/b" } }), json!({ "base_image": "a/b" }), vec![]),
        (json!({ "runtime": { "program": "opencode" } }), json!({ "memory_mb": 2048 }), vec![]),
        (
            json!({ "runtime": { "program": "opencode" },
                "security": { "resources": { "memory": "100M" } } }),
            json!({ "memory_mb": 96 }),
            vec![],
        ),
    ] {
        let planned = machine(&spec, &[COMMAND]).unwrap_or_else(|it| panic!("{spec}: {it:?}"));
        let planned = planned.unwrap_or_else(|| panic!("{spec}"));
        assert_eq!(
            (Value::Object(planned.request), planned.egress),
            (asked, egress.into_iter().map(str::to_owned).collect()),
            "{spec}"
        );
    }
    let all = json!(["/", "/tmp"]);
    let own = json!(["/workspace/"]);
    let closed = || network(json!({ "mode": "none" }));
    let image = json!({ "runtime": { "image": "a/b" } });
    for (spec, tools, refused) in [
        (
            network(json!({ "denylist": ["a.b"] })),
            &[COMMAND][..],
            Some("security.network.denylist"),
        ),
        (closed(), &[COMMAND, FORK], Some("security.network")),
        (network(json!({})), &[COMMAND, FORK], None),
        (closed(), &[SEARCH], None),
        (size("memory", json!("9Gi")), &[COMMAND], Some("security.resources.memory")),
        (size("cpu", json!(9000)), &[COMMAND], Some("security.resources.cpu")),
        (size("disk", json!("1Ti")), &[COMMAND], Some("security.resources.disk")),
        (size("disk", json!("1Ti")), &[SEARCH], None),
        (files(json!({ "read": all, "write": own })), &[COMMAND, READ], None),
        (files(json!({ "read": own, "write": [] })), &[READ, SEARCH], None),
        (files(json!({ "read": own, "write": [] })), &[READ, COMMAND], Some("security.filesystem")),
        (
            files(json!({ "read": own, "write": own, "read_only": true })),
            &[COMMAND],
            Some("security.filesystem"),
        ),
        (
            files(json!({ "read": own, "write": ["/workspace/out"] })),
            &[COMMAND],
            Some("security.filesystem"),
        ),
        (files(json!({ "read": ["/data"], "write": [] })), &[READ], Some("security.filesystem")),
        (files(json!({ "read": all, "write": all })), &[FORK], Some("security.filesystem")),
        (files(json!({ "read": [], "write": [] })), &[SEARCH], None),
        (image.clone(), &[SEARCH], Some("runtime.image")),
        (json!({ "env": { "A": "b" } }), &[SEARCH], Some("env")),
        (volume(json!({})), &[SEARCH], Some("volumes[0]")),
        (volume(json!({ "storage_class": "persistent" })), &[COMMAND], Some("volumes[0]")),
        (volume(json!({ "access_mode": "read-only" })), &[COMMAND], Some("volumes[0]")),
        (volume(json!({ "mount_path": "/workspace/a" })), &[COMMAND], Some("volumes[0]")),
        (volume(json!({ "size_limit": "1Ti" })), &[COMMAND], Some("volumes[0]")),
        (
            json!({ "runtime": { "image": "a/b", "image_pull_policy": "Never" } }),
            &[COMMAND],
            Some("runtime.image_pull_policy"),
        ),
        (json!({ "execution": { "checkpoint": "turn" } }), &[SEARCH], Some("execution.checkpoint")),
        (
            json!({ "runtime": { "isolation": "process" }, "execution": { "checkpoint": "turn" } }),
            &[COMMAND],
            Some("execution.checkpoint"),
        ),
        (
            json!({ "runtime": { "isolation": "process" },
                "security": { "network": { "mode": "allow" } } }),
            &[COMMAND],
            Some("security.network"),
        ),
    ] {
        let told = machine(&spec, tools).err();
        let expected = refused.map(|field| vec![format!("spec.{field}")]);
        assert_eq!(told, expected, "{spec} {tools:?}");
    }
    assert_eq!(machine(&closed(), &[SEARCH]), Ok(None), "there is none to bind");
}

#[test]
fn a_session_has_to_be_allowed_what_is_more_than_every_session_gets() {
    let bounds = crate::tests::machines::bounds();
    for (spec, tools) in [
        (
            json!({ "security": { "network": { "mode": "none" }, "resources": { "cpu": 500, "memory": "512Mi" } } }),
            &[][..],
        ),
        (json!({ "security": { "resources": { "memory": "513Mi" } } }), &["workspace_create"]),
        (json!({ "security": { "network": {} } }), &["workspace_create"]),
        (json!({ "security": { "network": { "allowlist": ["a"] } } }), &["network_policy"]),
        (json!({ "runtime": { "image": "a/b" } }), &["workspace_create"]),
    ] {
        let planned = machine(&spec, &[COMMAND]).expect("planned").expect("a machine");
        let needs = planned.needs(Some(&bounds));
        assert_eq!(needs.iter().map(|need| need.0).collect::<Vec<_>>(), tools, "{spec}");
    }
}

#[test]
fn what_a_program_does_not_obey_is_refused() {
    let runtime = json!({
        "language": "python", "version": "3.11", "program": "codex", "temperature": 0.5,
    });
    let refused = plan(agent("runtime", runtime), json!({})).expect_err("temperature");
    assert_eq!(refused.details["fields"][0]["field"], "spec.runtime.temperature");
    let speaks = json!({ "argv": ["true"], "wire": "chat", "protocol": "acp" });
    let runtime = json!({ "language": "python", "version": "3.11", "command": speaks });
    let planned = plan(agent("runtime", runtime), json!({})).expect("obeyed");
    assert!(planned.program.expect("a program").acp && planned.tools.contains("agent_permit"));
    let told = json!({ "argv": ["a", "{mcp}"], "wire": "chat" });
    for (field, program, takes) in [
        ("runtime.program", json!("codex"), true),
        ("runtime.program", json!("pi"), false),
        ("runtime.command", told, true),
        ("runtime.command", json!({ "argv": ["a"], "wire": "chat" }), false),
    ] {
        let mut with_tools = agent(field, program);
        with_tools.spec.tools = Some(vec!["fs.read".to_owned()]);
        match plan(with_tools, json!({})) {
            Ok(_) => assert!(takes),
            Err(refused) => {
                assert!(!takes, "{refused}");
                assert_eq!(refused.details["fields"][0]["field"], "spec.tools");
            }
        }
    }
    for (field, value) in [
        ("context", json!([{ "type": "file", "path": "a" }])),
        ("execution.compaction", json!({ "tokens": 256 })),
        ("execution.checkpoint", json!("turn")),
    ] {
        let mut coder = agent(field, value);
        let acp = if field.ends_with("checkpoint") { "qwen-acp" } else { "codex" };
        coder.spec.runtime.program = Some(acp.to_owned());
        let refused = plan(coder, json!({})).expect_err(field);
        assert_eq!(refused.details["fields"][0]["field"], format!("spec.{field}"));
    }
    let unknown = plan(agent("runtime.program", json!("emacs")), json!({})).expect_err("unknown");
    assert_eq!(unknown.code, "program_unknown");
}

#[test]
fn an_input_is_the_manifests_and_the_callers_and_fits_its_schema() {
    let with = |given: Value, schema: Value| {
        let mut agent = agent("task.input_data", json!({ "depth": 3 }));
        agent.spec.input_schema = schema.as_object().cloned();
        plan(agent, given)
    };
    let schema = json!({ "type": "object", "required": ["path"],
        "properties": { "path": { "type": "string" } } });
    let planned = with(json!({ "path": "a" }), schema.clone()).expect("it fits");
    assert_eq!(Value::Object(planned.input), json!({ "depth": 3, "path": "a" }));
    let broken = with(json!({ "path": "secret".len() }), schema.clone()).expect_err("a number");
    assert_eq!(broken.code, "input_invalid");
    assert!(broken.details["problems"][0].as_str().expect("text").starts_with("/path: "));
    let missing = with(json!({}), schema.clone()).expect_err("nothing given");
    assert_eq!(missing.code, "input_invalid");
    let twice = with(json!({ "path": "a", "depth": 4 }), schema).expect_err("given already");
    assert!(twice.message.contains("`depth`"), "{twice}");
}

#[test]
fn a_prompt_has_everything_that_was_given() {
    let mut plan = plan(
        agent(
            "context",
            json!([
                { "type": "text", "content": "C", "description": "About it" },
                { "type": "text", "content": "D" },
            ]),
        ),
        json!({ "prompt": "Please." }),
    )
    .expect("planned");
    let all = "Do it.\n\nAbout it:\nC\n\nD\n\nTask: Now\n\nUser: Please.";
    assert_eq!(plan.prompt(1, None).as_deref(), Ok(all));
    let again = plan.prompt(2, Some("too short")).expect("a prompt");
    assert_eq!(again, format!("{all}\n\nPrevious attempt failed: too short"));

    let rendered = |plan: &mut ExecutionPlan, template: &str, failed: Option<&str>| {
        plan.template = Some(template.to_owned());
        plan.prompt(2, failed)
    };
    let text =
        "{{agent}} {{agent.version}} {{iteration_number}}: {{intent}} {{input}} {{input.prompt}}";
    assert_eq!(rendered(&mut plan, text, None).as_deref(), Ok("a 1.0.0 2: Now Please. Please."));
    let names_it = "{{instruction}}{{#if previous_error}} ({{previous_error}}){{/if}}";
    assert_eq!(rendered(&mut plan, names_it, Some("bad")).as_deref(), Ok("Do it. (bad)"));
    let appended = rendered(&mut plan, "{{context}}", Some("bad")).expect("a prompt");
    assert!(appended.ends_with("D\n\nPrevious attempt failed: bad"), "{appended}");
    plan.input = JsonObject::new();
    assert_eq!(rendered(&mut plan, "{{input}}", None).as_deref(), Ok("Now"), "the intent");
    for bad in ["{{nothing}}", "{{#if input}}", " "] {
        let refused = rendered(&mut plan, bad, None).expect_err(bad);
        assert_eq!(refused.code, "agent_prompt_invalid");
    }
}

/// Parts of a validator, one at a time, with the field that each of them changes.
#[test]
fn each_part_of_a_validator_changes_the_plan() {
    let exit = json!({ "type": "exit_code" });
    let schema = json!({ "type": "json_schema", "schema": { "type": "object" } });
    let regex = json!({ "type": "regex", "pattern": "a" });
    let judge = json!({ "type": "semantic", "judge_agent": "j", "criteria": "c" });
    let judges = json!({ "type": "multi_judge", "judges": ["a", "b"], "criteria": "c" });
    let planned = |field: &str, validator: &Value| {
        let mut agent = agent("tools", json!(["cmd_run"]));
        let execution = json!({ field: [validator] });
        agent.spec.execution = serde_json::from_value(execution).expect("valid");
        plan(agent, json!({})).unwrap_or_else(|error| panic!("{validator}: {error}")).validation
    };
    let of_both = [
        ("criteria", json!("d")),
        ("min_score", json!(0.1)),
        ("min_confidence", json!(0.1)),
        ("timeout_seconds", json!(5)),
    ];
    let mut rows = vec![
        (&exit, "expected", json!(3)),
        (&exit, "min_score", json!(0.5)),
        (&schema, "schema", json!({})),
        (&schema, "min_score", json!(0.5)),
        (&regex, "pattern", json!("b")),
        (&regex, "target", json!("stderr")),
        (&regex, "min_score", json!(0.5)),
        (&judge, "judge_agent", json!("k")),
        (&judges, "judges", json!(["a", "c"])),
        (&judges, "consensus", json!("majority")),
        (&judges, "min_judges_required", json!(2)),
    ];
    rows.extend(of_both.iter().map(|(part, value)| (&judges, *part, value.clone())));
    rows.extend(of_both.iter().map(|(part, value)| (&judge, *part, value.clone())));
    for (validator, part, value) in rows {
        let mut changed = validator.clone();
        changed[part] = value;
        let fields: &[&str] = match validator["type"] == "semantic" {
            true => &["validation", "tool_validation"],
            false => &["validation"],
        };
        for field in fields {
            assert_ne!(planned(field, validator), planned(field, &changed), "{field}: {changed}");
        }
    }
}

#[test]
fn the_guides_fields_are_planned() {
    let guide = include_str!("../../../../../docs/guides/agent-fields.md");
    let planned = |nth: usize| {
        let block = guide.split("```yaml\n").nth(nth).and_then(|rest| rest.split("```").next());
        let block = block.expect("the guide has one").replace('\n', "\n  ");
        let text = format!(
            "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: a, version: 1.0.0 }}\nspec:\n  \
             runtime: {{ language: python, version: '3.11' }}\n  task: {{ instruction: Do it. }}\n  \
             tools: [bash]\n  {block}\n"
        );
        plan(parse_agent(&text).expect("valid"), json!({})).expect("planned")
    };
    let judged = planned(1);
    let names: Vec<_> = judged.validation.judges().map(|(.., name)| name.as_str()).collect();
    assert_eq!(names, ["code-quality-judge", "tool-call-judge"]);
    let given = planned(2);
    assert!(given.sources.len() == 3 && given.compaction.is_some());
}
