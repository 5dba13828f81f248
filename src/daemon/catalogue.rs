//! The catalogue: the tools of every family.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hivekeep_registry::{Catalogue, SharedCatalogue, ToolEntry, ToolView, mcp_tool};
use hivekeep_runtime::tool_catalogue::{CataloguedTool, ToolCatalogue};

/// The catalogue as families are given it, listed once for as long as the tools are the same.
pub(super) struct ListedTools {
    catalogue: Arc<SharedCatalogue>,
    last: ArcSwap<(u64, Arc<Vec<CataloguedTool>>)>,
}

impl ListedTools {
    pub(super) fn new(catalogue: Arc<SharedCatalogue>) -> Self {
        let last = ArcSwap::from_pointee(listed(&catalogue.now()));
        Self { catalogue, last }
    }
}

impl ToolCatalogue for ListedTools {
    fn tools(&self) -> Arc<Vec<CataloguedTool>> {
        let (now, last) = (self.catalogue.now(), self.last.load());
        if last.0 == now.generation() {
            return last.1.clone();
        }
        let listed = listed(&now);
        let tools = listed.1.clone();
        self.last.store(Arc::new(listed));
        tools
    }
}

fn listed(catalogue: &Catalogue) -> (u64, Arc<Vec<CataloguedTool>>) {
    let whole = ToolView { output_schemas: true, ..ToolView::operator() };
    let tool = |entry: &Arc<ToolEntry>| CataloguedTool {
        spec: entry.spec,
        server: entry.origin.as_ref().map(|origin| origin.source.server().to_owned()),
        tool: mcp_tool(entry, &whole),
    };
    (catalogue.generation(), Arc::new(catalogue.entries().map(tool).collect()))
}

#[cfg(test)]
mod spellings;

#[cfg(test)]
mod tests {
    use hivekeep_config::families::catalogue;
    use hivekeep_door_server::listing::ToolListing;
    use hivekeep_kernel::{Effect, Layer, MessageId, codes};
    use hivekeep_registry::mcp_listing;
    use serde_json::{Value, json};

    use super::*;

    /// Whoever lost an answer is sent to a tool that is there and changes nothing.
    #[test]
    fn what_tells_of_lost_calls_only_reads() {
        let catalogue = catalogue();
        let tells: Vec<_> = catalogue.entries().filter_map(|entry| entry.spec.told_by).collect();
        assert!(tells.len() > 5, "{tells:?}");
        for name in tells {
            let entry = catalogue.find(name).unwrap_or_else(|| panic!("no tool `{name}`"));
            assert_eq!((entry.name(), entry.spec.effect), (name, Effect::Read));
        }
    }

    /// Bounds that only the schemas hold: for each field a value in range, and one that is not.
    #[test]
    fn bounds_are_kept_by_the_schemas() {
        let catalogue = catalogue();
        let wrong = |tool: &str, field: &str, value: &Value| {
            let entry = catalogue.find(tool).expect(tool);
            assert!(entry.input_schema["properties"].get(field).is_some(), "{tool} {field}");
            let refused = entry.check(&json!({ field: value })).err();
            let list = refused.map(|error| error.details["violations"].to_string());
            list.is_some_and(|list| list.contains(&format!("\"/{field}")))
        };
        let texts = |count: usize| json!(vec!["x"; count]);
        let tasks = |count| json!(vec![json!({ "name": "n", "command": "c" }); count]);
        let query = |text: String| json!([{ "kind": "read", "query": text }]);
        let queries = |count| json!(vec![json!({ "kind": "read", "query": "q" }); count]);
        let ids = |count| -> Value { (0..count).map(|_| json!(MessageId::new())).collect() };
        for (tool, field, good, bad) in [
            ("exec", "timeout_secs", json!(1), json!(0)),
            ("exec", "timeout_secs", json!(86_400), json!(86_401)),
            ("exec", "max_output_bytes", json!(1 << 24), json!((1 << 24) + 1)),
            ("exec_background", "signal", json!(1), json!(0)),
            ("exec_background", "signal", json!(64), json!(65)),
            ("exec_parallel", "workspace_ids", texts(1), texts(0)),
            ("exec_parallel", "workspace_ids", texts(20), texts(21)),
            ("exec_parallel", "timeout_secs", json!(86_400), json!(86_401)),
            ("file_read", "limit", json!(1 << 24), json!((1 << 24) + 1)),
            ("file_edit", "old_string", json!("x"), json!("")),
            ("file_list", "limit", json!(1), json!(0)),
            ("file_list", "limit", json!(2_000), json!(2_001)),
            ("git_clone", "timeout_secs", json!(86_400), json!(86_401)),
            ("git_push", "timeout_secs", json!(1), json!(0)),
            ("workspace_merge", "source_workspaces", texts(1), texts(0)),
            ("workspace_merge", "source_workspaces", texts(20), texts(21)),
            ("workspace_prepare", "setup_commands", texts(64), texts(65)),
            ("workspace_prepare", "timeout_secs", json!(1), json!(0)),
            ("workspace_fork", "count", json!(1), json!(0)),
            ("workspace_fork", "count", json!(20), json!(21)),
            ("team", "roles", json!([{ "name": "n", "role": "r" }]), json!([])),
            ("team", "message_type", json!("x"), json!("")),
            ("team", "message_type", json!("x".repeat(64)), json!("x".repeat(65))),
            ("team", "limit", json!(1), json!(0)),
            ("team", "limit", json!(100), json!(101)),
            ("team", "wait_secs", json!(300), json!(301)),
            ("team", "confirmed", ids(1_000), ids(1_001)),
            ("swarm_run", "tasks", tasks(1), tasks(0)),
            ("swarm_run", "tasks", tasks(20), tasks(21)),
            ("swarm_run", "max_parallel", json!(1), json!(0)),
            ("swarm_run", "max_parallel", json!(20), json!(21)),
            ("swarm_run", "timeout_secs", json!(1), json!(0)),
            ("swarm_run", "timeout_secs", json!(86_400), json!(86_401)),
            ("swarm_run", "vault_context", queries(20), queries(21)),
            ("swarm_run", "vault_context", query("q".to_owned()), query(String::new())),
            ("swarm_run", "vault_context", query("q".repeat(1_024)), query("q".repeat(1_025))),
            ("swarm_status", "wait_secs", json!(300), json!(301)),
            ("vault", "context_lines", json!(20), json!(21)),
            ("vault", "limit", json!(1), json!(0)),
            ("vault", "limit", json!(10_000), json!(10_001)),
            ("vault", "recent_count", json!(1_000), json!(1_001)),
            ("vault", "paths", texts(1), texts(0)),
            ("vault", "paths", texts(10), texts(11)),
            ("vault", "old_string", json!("x"), json!("")),
        ] {
            assert!(!wrong(tool, field, &good), "{tool}: {field} may be {good}");
            assert!(wrong(tool, field, &bad), "{tool}: {field} may not be {bad}");
        }
    }

    #[test]
    fn what_no_schema_takes_is_refused_by_the_schema() {
        let catalogue = catalogue();
        let refused = |tool: &str, mut args: Value| {
            let entry = catalogue.find(tool).expect(tool);
            entry.respell(args.as_object_mut().expect("one"));
            let error = entry.check(&args).err();
            let error = error.unwrap_or_else(|| panic!("{tool} takes {args}"));
            assert!(error.is(codes::INVALID_INPUT) && error.layer == Layer::Schema, "{error:?}");
            error
        };
        for tool in catalogue.entries() {
            let error = refused(tool.name(), json!({ "unknown_field": 1 }));
            assert!(error.to_string().contains("unknown_field"), "{error}");
        }
        let forward = |action: &str, with: Value| {
            let mut args = json!({ "workspace_id": "w", "action": action });
            args.as_object_mut().expect("one").extend(with.as_object().expect("one").clone());
            args
        };
        let entry = catalogue.find("port_forward").expect("there");
        for action in ["add", "remove", "list"] {
            for with in [json!({}), json!({ "host_port": null }), json!({ "protocol": "udp" })] {
                let port = forward(action, json!({ "guest_port": 80 }));
                entry.check(&port).expect("as before it had actions");
                refused("port_forward", forward(action, with));
            }
        }
        for with in [json!({ "guest_port": null }), json!({ "guest_port": 80, "host_port": "x" })] {
            refused("port_forward", forward("add", with));
        }
        refused("port_forward", forward("open", json!({ "guest_port": 80 })));
        refused("exec_background", json!({ "workspace_id": "w", "action": "poll" }));
        refused("snapshot", json!({ "workspace_id": "w", "action": "create" }));
    }

    #[test]
    fn what_an_action_of_a_team_lacks_is_refused_by_its_schema() {
        let catalogue = catalogue();
        let team = catalogue.find("team").expect("it is declared");
        for (action, required) in [
            ("create", &["name", "roles"][..]),
            ("destroy", &["name"]),
            ("status", &["name"]),
            ("list", &[]),
            ("message", &["name", "agent", "to", "content"]),
            ("receive", &["name", "agent"]),
        ] {
            let Err(error) = team.check(&json!({ "action": action })) else {
                assert!(required.is_empty(), "{action} requires something");
                continue;
            };
            assert_eq!((error.code.as_ref(), error.layer), ("invalid_input", Layer::Schema));
            let told = error.details["violations"].as_array().expect("a list").iter();
            let told: Vec<_> = told.map(|one| one["pointer"].as_str().expect("a text")).collect();
            let required: Vec<_> = required.iter().map(|field| format!("/{field}")).collect();
            assert_eq!(told, required, "{action}");
        }
    }

    #[test]
    fn the_catalogue_is_sound_and_mcp_can_list_it() {
        let catalogue = catalogue();
        let none = Default::default();
        let list = || ToolListing::of(&catalogue, &ToolView::operator(), &none);
        assert_eq!(list().digest(), list().digest());
        assert!(catalogue.entries().count() > 0);
    }

    /// Bytes of each listed tool, the largest first.
    fn sizes(listing: &[Value]) -> Vec<(usize, &str)> {
        let mut sizes: Vec<_> = listing
            .iter()
            .map(|tool| (tool.to_string().len(), tool["name"].as_str().expect("a name")))
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }

    /// The cost of the listing to a model before its first call.
    #[test]
    fn a_listed_tool_costs_two_kilobytes_on_average_at_most() {
        let listing = mcp_listing(&catalogue(), &ToolView::operator());
        let sizes = sizes(&listing);
        let all: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
        let largest = &sizes[..10];
        let average = all / sizes.len();
        assert!(average <= 2_048, "{all} bytes, {average} a tool; the largest: {largest:?}");
        assert!(sizes[0].0 <= 6_144, "one tool is as large as five: {largest:?}");
    }

    /// Listed schemas admit what the whole ones do, except for the bounds of 32-bit numbers.
    #[test]
    fn listed_schemas_take_what_the_whole_ones_do() {
        let view = ToolView { output_schemas: true, ..ToolView::operator() };
        for entry in catalogue().entries() {
            let listed = mcp_tool(entry, &view);
            for (whole, slim) in [
                (&entry.input_schema, &listed["inputSchema"]),
                (entry.output_schema.as_ref().expect("an own tool"), &listed["outputSchema"]),
            ] {
                assert_eq!(whole["required"], slim["required"], "{}", entry.name());
                let values = values(whole);
                let [whole_is, slim_is] = [whole, slim].map(|schema| {
                    jsonschema::draft202012::new(schema).expect("every reference leads somewhere")
                });
                for name in whole["properties"].as_object().into_iter().flat_map(|all| all.keys()) {
                    for value in &values {
                        let args = json!({ name: value });
                        let wrong = |schema: &jsonschema::Validator| {
                            let errors = schema.iter_errors(&args);
                            let at = format!("/{name}");
                            errors.filter(|error| error.instance_path().as_str() == at).count() > 0
                        };
                        let [whole, slim] = [wrong(&whole_is), wrong(&slim_is)];
                        assert_eq!(whole, slim, "{} {args}", entry.name());
                    }
                }
            }
        }
    }

    /// Values of each kind, and all texts that a schema names.
    fn values(schema: &Value) -> Vec<Value> {
        fn named(schema: &Value, found: &mut Vec<Value>) {
            match schema {
                Value::Object(map) => {
                    found.extend(map.get("const").cloned());
                    found.extend(
                        map.get("enum").and_then(Value::as_array).into_iter().flatten().cloned(),
                    );
                    map.values().for_each(|below| named(below, found));
                }
                Value::Array(list) => list.iter().for_each(|below| named(below, found)),
                _ => {}
            }
        }
        let kinds =
            json!([null, true, -1, 0, 1, 70_000, 1.5, "", "x", [], ["x"], [1], {}, { "x": 1 }]);
        let mut values = kinds.as_array().expect("a list").clone();
        named(schema, &mut values);
        values
    }
}
