//! The tools over a daemon's knowledge that the test makes, with secrets and paths in it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{Door, Progress, SecretString};
use hivekeep_ports::{ImagePresence, LateTools, ManifestCheck};
use hivekeep_runtime::{
    Family, Finding,
    introspection::{ConfigValue, Introspection, ToolSchemas},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, context};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    IntrospectionFamily, Options,
    service::IntrospectionService,
    tools::{SystemConfig, SystemInfo},
};

const SECRET: &str = "correct horse battery staple";

/// Options as a family has them, with a secret that no list of names knows.
#[derive(Serialize, JsonSchema)]
struct SomeOptions {
    /// A key.
    favourite_animal: SecretString,
    /// A folder.
    folder: std::path::PathBuf,
    /// A number.
    most: u64,
}

struct Known {
    tools: Vec<ToolSchemas>,
    schema: Value,
    config: Value,
    set: Vec<ConfigValue>,
}

impl Known {
    fn new() -> Self {
        let schema = |schema: schemars::Schema| schema.to_value();
        let tools = IntrospectionFamily::tools().into_iter().map(|info| ToolSchemas {
            name: info.spec.name,
            family: info.spec.family,
            input: schema((info.input)()),
            output: schema((info.output)()),
        });
        let options = SomeOptions {
            favourite_animal: SecretString::new(SECRET),
            folder: "/srv/notes".into(),
            most: 3,
        };
        let config = serde_json::to_value(&options).expect("plain data");
        let set = |key: &str| ConfigValue {
            key: key.to_owned(),
            value: config[key].clone(),
            source: "/etc/daemon.toml:3".to_owned(),
        };
        let set = vec![set("favourite_animal"), set("folder")];
        let schema = schemars::schema_for!(SomeOptions).to_value();
        Self { tools: tools.collect(), schema, config, set }
    }
}

#[async_trait]
impl Introspection for Known {
    fn version(&self) -> &'static str {
        "1.2.3"
    }
    fn uptime(&self) -> Duration {
        Duration::from_secs(7)
    }
    fn tools(&self) -> &[ToolSchemas] {
        &self.tools
    }
    fn config_schema(&self) -> &Value {
        &self.schema
    }
    fn config(&self) -> &Value {
        &self.config
    }
    fn config_set(&self) -> &[ConfigValue] {
        &self.set
    }
    fn config_file(&self) -> Option<String> {
        Some("/etc/daemon.toml".to_owned())
    }
    async fn findings(&self) -> Vec<Finding> {
        vec![
            Finding::good("kvm", "/dev/kvm is quick"),
            Finding::bad("disk", "/var/lib is full", "free some space").optional(),
            Finding::bad("qemu", "missing", "install it"),
        ]
    }
}

/// Knows of two images.
struct TwoImages;

impl ImagePresence for TwoImages {
    fn is_present(&self, reference: &str) -> Option<bool> {
        match reference {
            "docker.io/library/python:3.12-slim" => Some(true),
            "docker.io/library/python:3.13-slim" => Some(false),
            _ => None,
        }
    }
}

async fn stage() -> Rig<IntrospectionFamily> {
    let services = RigServices {
        sessions: Arc::new(FakeUsers::default()),
        tools: Arc::new(LateTools::default()),
        offer: Arc::new(|ports| {
            ports.offer::<dyn Introspection>(Arc::new(Known::new()));
            ports.offer::<dyn ImagePresence>(Arc::new(TwoImages));
        }),
    };
    Rig::new(Options::default(), services).await
}

/// Answers of both system tools to a call through a door.
async fn through(door: Door, rig: &Rig<IntrospectionFamily>) -> [Value; 2] {
    let about = Arc::new(
        IntrospectionService::new(&rig.daemon, Options::default()).expect("the port is there"),
    );
    let mut cx = context(rig.session, "system", Duration::from_secs(60), Progress::channel(1).0);
    cx.door = door;
    let info = about.clone().system_info(cx.clone(), SystemInfo {}).await.expect("answers");
    let config = about.system_config(cx, SystemConfig {}).await.expect("answers");
    [serde_json::to_value(info), serde_json::to_value(config)].map(|value| value.expect("JSON"))
}

#[tokio::test]
async fn secrets_are_redacted_by_type_through_every_door() {
    let rig = stage().await;
    for door in [Door::Cli, Door::McpStdio, Door::McpHttp, Door::Internal] {
        let told = through(door, &rig).await.map(|answer| answer.to_string()).concat();
        assert!(!told.contains(SECRET) && told.contains("[redacted]"), "{told}");
    }
}

#[tokio::test]
async fn paths_of_the_host_are_the_operators() {
    let rig = stage().await;
    let [info, config] = through(Door::Cli, &rig).await;
    assert_eq!(config["config_path"], "/etc/daemon.toml");
    assert_eq!(info["missing"][1]["detail"], "/var/lib is full");
    for door in [Door::McpStdio, Door::McpHttp, Door::Internal] {
        let [info, config] = through(door, &rig).await;
        let told = format!("{info}{config}");
        for path in ["/etc", "/srv", "/var", "/dev"] {
            assert!(!told.contains(path), "{told}");
        }
        assert_eq!(config["set"][1]["value"], "[path of the host]");
        let whole: Value =
            serde_json::from_str(config["content_yaml"].as_str().expect("a text")).expect("JSON");
        assert_eq!(whole["most"], 3);
    }
}

#[tokio::test]
async fn what_is_missing_is_told_with_its_remedy() {
    let rig = stage().await;
    let info = rig.call("aegis.system.info", json!({})).await.expect("answers");
    assert_eq!(info["version"], "1.2.3");
    assert_eq!(info["status"], "unhealthy");
    assert_eq!(info["uptime_secs"], 7);
    assert_eq!(info["capabilities"], json!(["schema", "runtime", "system", "events", "kvm"]));
    let missing = info["missing"].as_array().expect("a list");
    let told: Vec<_> =
        missing.iter().map(|one| (&one["name"], &one["needed"], &one["remedy"])).collect();
    let expected = [
        (json!("qemu"), json!(true), json!("install it")),
        (json!("disk"), json!(false), json!("free some space")),
    ];
    assert!(
        told.iter().zip(&expected).all(|(a, b)| (a.0, a.1, a.2) == (&b.0, &b.1, &b.2)),
        "{told:?}"
    );
    assert_eq!(info["families"][2]["tools"], json!(["aegis.system.info", "aegis.system.config"]));
}

#[tokio::test]
async fn runtimes_are_listed_in_the_order_of_their_versions() {
    let rig = stage().await;
    let listed =
        rig.call("aegis.runtime.list", json!({ "language": "python" })).await.expect("lists");
    let rows = listed["runtimes"].as_array().expect("a list");
    let versions: Vec<_> =
        rows.iter().map(|row| row["version"].as_str().expect("a text")).collect();
    assert_eq!(versions, ["3.9", "3.10", "3.11", "3.12", "3.13"]);
    let told: Vec<_> = rows
        .iter()
        .map(|row| (&row["deprecated"], &row["present"]))
        .map(|(a, b)| json!([a, b]))
        .collect();
    let expected = [
        json!([true, "unknown"]),
        json!([false, "unknown"]),
        json!([false, "unknown"]),
        json!([false, "yes"]),
        json!([false, "no"]),
    ];
    assert_eq!(told, expected);
    let unknown =
        rig.call("aegis.runtime.list", json!({ "language": "cobol" })).await.expect("lists");
    assert_eq!(unknown["runtimes"], json!([]));
    assert_eq!(
        unknown["languages"],
        json!(["bash", "go", "javascript", "python", "ruby", "rust", "typescript"])
    );
}

#[tokio::test]
async fn schemas_are_got_by_their_keys() {
    let rig = stage().await;
    for (key, property) in [
        ("agent/manifest/v1", "apiVersion"),
        ("workflow/manifest/v1", "apiVersion"),
        ("dag", "steps"),
        ("config", "favourite_animal"),
        ("tool/read_schema/input", "path"),
        ("tool/aegis.system.info/output", "missing"),
        ("tool/aegis_system_info/output", "missing"),
    ] {
        let schema = rig.call("aegis.schema.get", json!({ "key": key })).await.expect(key);
        assert!(schema["properties"].get(property).is_some(), "{key}");
        let again = rig.call("aegis.schema.get", json!({ "key": key })).await.expect(key);
        assert_eq!(schema.to_string(), again.to_string(), "{key}: in the same order");
    }
    let error = rig
        .call("aegis.schema.get", json!({ "key": "agent/manifest/v2" }))
        .await
        .expect_err("unknown");
    assert_eq!(error.code, "unknown_schema");
    assert!(
        error.next_step.as_deref().is_some_and(|step| step.contains("agent/manifest/v1")),
        "{error:?}"
    );
    let keys = error.details["supported_keys"].as_array().expect("a list");
    assert!(keys.contains(&json!("dag")) && keys.contains(&json!("tool/read_schema/input")));
    for key in keys {
        rig.call("aegis.schema.get", json!({ "key": key })).await.expect("each key is one");
    }
}

#[tokio::test]
async fn an_invalid_manifest_is_an_answer() {
    let rig = stage().await;
    let check = |kind: &str, text: &str| {
        rig.call("aegis.schema.validate", json!({ "kind": kind, "manifest_yaml": text }))
    };
    let good = check("dag", "steps: [echo]\n").await.expect("answers");
    assert_eq!(good, json!({ "valid": true, "errors": null, "problems": [] }));
    let bad = check("dag", "steps:\n  - comand: echo\n").await.expect("answers");
    assert_eq!(bad["valid"], false);
    assert_eq!(bad["problems"][0]["line"], 2);
    let text = bad["errors"][0].as_str().expect("a text");
    assert!(text.starts_with("line 2, column 5: steps[0].comand: "), "{text}");
    for kind in ["agent", "workflow", "agent/manifest/v1"] {
        assert_eq!(check(kind, "a: 1").await.expect("answers")["valid"], false);
    }
    let error = check("team", "a: 1").await.expect_err("unknown");
    assert_eq!(error.details["supported_kinds"], json!(["agent", "workflow", "dag"]));
    let port = rig.daemon.ports.find::<dyn ManifestCheck>().expect("it is offered");
    assert!(port.dag("steps: [echo]\n").is_empty());
    assert_eq!(port.dag("step: [echo]\n")[0].line, 1);
}

#[tokio::test]
async fn a_schema_is_read_at_a_path() {
    let rig = stage().await;
    let read = |schema: &str, path: &str| {
        rig.call("read_schema", json!({ "schema": schema, "path": path }))
    };
    let root = rig.call("read_schema", json!({ "schema": "dag" })).await.expect("the root");
    let steps =
        root["properties"].as_array().expect("a list").iter().find(|one| one["name"] == "steps");
    assert_eq!(steps.expect("there")["required"], true);
    for (schema, path, key) in [
        ("dag", "steps", "command"),
        ("dag", "steps.container", "image"),
        ("dag", "steps.0.container", "image"),
        ("dag", "handler_on.success", "script"),
        ("dag", "preconditions.expected", ""),
        ("workflow/manifest/v1", "spec.states", "transitions"),
        ("workflow/manifest/v1", "spec.states.WRITE.transitions", "target"),
        ("agent/manifest/v1", "spec.execution.validation", "pattern"),
        ("config", "most", ""),
        ("tool/aegis.system.info/output", "missing", "remedy"),
    ] {
        let node =
            read(schema, path).await.unwrap_or_else(|error| panic!("{schema} {path}: {error}"));
        let keys: Vec<_> =
            node["properties"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        assert!(key.is_empty() || keys.contains(&&json!(key)), "{schema} {path}: {keys:?}");
        assert_eq!(node.to_string(), read(schema, path).await.expect("again").to_string());
    }
    let node = read("dag", "steps").await.expect("there");
    assert!(node["alternatives"].as_array().is_some_and(|all| all.len() == 2), "{node}");
    let error = read("dag", "steps.comand").await.expect_err("unknown");
    assert_eq!(error.code, "unknown_schema_path");
    assert!(error.next_step.as_deref().is_some_and(|step| step.contains("`command`")), "{error:?}");
    assert!(
        error.details["supported_keys"]
            .as_array()
            .is_some_and(|keys| keys.contains(&json!("script")))
    );
    let deep = "steps.".repeat(100);
    assert_eq!(read("dag", &deep).await.expect_err("no end").code, "unknown_schema_path");
}
