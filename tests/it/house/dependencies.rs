//! Who may use whom. `.deny.toml` says the same of everything below us.

use serde_json::Value;

use super::{assert_none, sources::packages};

/// What a crate of the house may use.
struct Rule {
    name: &'static str,
    /// Crates of the house.
    house: &'static [&'static str],
    /// Everything else, where that is limited.
    others: Option<&'static [&'static str]>,
}

const KERNEL: &str = "hivekeep-kernel";
const PORTS: &str = "hivekeep-ports";
const AUDIT: &str = "hivekeep-audit";
const POLICY: &str = "hivekeep-policy";
const SHELL: &str = "hivekeep-shell";
const STORE: &str = "hivekeep-store";
const RUNTIME: &str = "hivekeep-runtime";
const PROTOCOL: &str = "hivekeep-protocol";
const CONFINE: &str = "hivekeep-confine";
const FS: &str = "hivekeep-fs";
const ENCODER: &str = "hivekeep-encoder";
const FILE_ENGINE: &str = "hivekeep-file-engine";
const IMAGE: &str = "hivekeep-image";
const OCI: &str = "hivekeep-oci";
const LINK: &str = "hivekeep-link";
const MACHINE: &str = "hivekeep-machine";
const GIT: &str = "hivekeep-git";
const MANIFEST: &str = "hivekeep-manifest";
const PLAN: &str = "hivekeep-plan";
const MANIFEST_REGISTRY: &str = "hivekeep-manifest-registry";
const REGISTRY: &str = "hivekeep-registry";
const SERVER: &str = "hivekeep-door-server";
const MCP: &str = "hivekeep-door-mcp";
const HTTP_API: &str = "hivekeep-door-http-api";
const E2B: &str = "hivekeep-door-e2b";
const DOOR_PORTS: &str = "hivekeep-door-ports";
/// For tests alone.
const TESTKIT: &str = "hivekeep-testkit";
const SKIP: &str = "hivekeep-skip";
const REPLAY: &str = "hivekeep-replay";
const FIGURES: &str = "hivekeep-figures";
const MCP_CLIENT: &str = "hivekeep-mcp-client";
const BASELINES: &str = "hivekeep-baselines";

const RULES: [Rule; 45] = [
    Rule {
        name: KERNEL,
        house: &[],
        others: Some(&[
            "arc-swap",
            "async-trait",
            "dashmap",
            "fail",
            "futures",
            "ractor",
            "rustix",
            "schemars",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tokio-util",
            "tracing",
            "uuid",
        ]),
    },
    Rule {
        name: PROTOCOL,
        house: &[],
        others: Some(&["crc32fast", "postcard", "serde", "serde_bytes", "thiserror", "zeroize"]),
    },
    Rule { name: PORTS, house: &[KERNEL], others: None },
    Rule { name: "hivekeep-guest", house: &[CONFINE, PROTOCOL, FILE_ENGINE], others: None },
    Rule { name: FILE_ENGINE, house: &[FS], others: None },
    Rule { name: STORE, house: &[FS, KERNEL], others: None },
    Rule { name: RUNTIME, house: &[CONFINE, KERNEL, PORTS, STORE], others: None },
    Rule {
        name: CONFINE,
        house: &[],
        others: Some(&["libc", "rustix", "seccompiler", "thiserror"]),
    },
    Rule { name: AUDIT, house: &[FS], others: None },
    Rule { name: SHELL, house: &[], others: Some(&["tree-sitter", "tree-sitter-bash"]) },
    Rule { name: POLICY, house: &[KERNEL, PORTS, STORE, RUNTIME, SHELL], others: None },
    Rule {
        name: "hivekeep-command",
        house: &[KERNEL, PORTS, STORE, RUNTIME, SHELL, TESTKIT],
        others: None,
    },
    Rule { name: REGISTRY, house: &[KERNEL, PORTS, STORE, RUNTIME, AUDIT, POLICY], others: None },
    Rule { name: FS, house: &[KERNEL], others: None },
    Rule { name: IMAGE, house: &[KERNEL, FS], others: None },
    Rule { name: OCI, house: &[KERNEL, IMAGE, FS], others: None },
    Rule { name: LINK, house: &[KERNEL, PORTS, PROTOCOL], others: None },
    Rule {
        name: MACHINE,
        house: &[CONFINE, KERNEL, PORTS, PROTOCOL, IMAGE, LINK, FS],
        others: None,
    },
    Rule { name: GIT, house: &[KERNEL, PORTS, RUNTIME, PROTOCOL, LINK], others: None },
    Rule {
        name: "hivekeep-workspace",
        house: &[
            KERNEL, PORTS, STORE, RUNTIME, PROTOCOL, IMAGE, OCI, LINK, MACHINE, GIT, FS, TESTKIT,
        ],
        others: None,
    },
    Rule {
        name: "hivekeep-ingest",
        house: &[FS, KERNEL, PORTS, STORE, RUNTIME, FILE_ENGINE, ENCODER, TESTKIT],
        others: None,
    },
    Rule {
        name: "hivekeep-browser",
        house: &[KERNEL, PORTS, STORE, RUNTIME, FILE_ENGINE, FS, TESTKIT],
        others: None,
    },
    Rule {
        name: "hivekeep-vault",
        house: &[FS, KERNEL, PORTS, STORE, RUNTIME, FILE_ENGINE],
        others: None,
    },
    Rule {
        name: "hivekeep-files",
        house: &[KERNEL, PORTS, RUNTIME, FILE_ENGINE, TESTKIT],
        others: None,
    },
    Rule {
        name: "hivekeep-volume",
        house: &[KERNEL, PORTS, STORE, RUNTIME, FS, FILE_ENGINE, TESTKIT],
        others: None,
    },
    Rule {
        name: "hivekeep-repository",
        house: &[KERNEL, PORTS, STORE, RUNTIME, FS, TESTKIT],
        others: None,
    },
    Rule { name: ENCODER, house: &[], others: None },
    Rule { name: PLAN, house: &[MANIFEST, RUNTIME], others: None },
    Rule {
        name: "hivekeep-workflow",
        house: &[KERNEL, PORTS, STORE, RUNTIME, MANIFEST, MANIFEST_REGISTRY, PLAN, TESTKIT],
        others: None,
    },
    Rule { name: MANIFEST, house: &[KERNEL, PORTS, RUNTIME], others: None },
    Rule {
        name: MANIFEST_REGISTRY,
        house: &[KERNEL, PORTS, STORE, RUNTIME, TESTKIT],
        others: None,
    },
    Rule {
        name: "hivekeep-agent",
        house: &[KERNEL, PORTS, STORE, RUNTIME, MANIFEST, MANIFEST_REGISTRY, TESTKIT],
        others: None,
    },
    Rule {
        name: "hivekeep-introspection",
        house: &[KERNEL, PORTS, STORE, RUNTIME, MANIFEST, TESTKIT],
        others: None,
    },
    Rule { name: TESTKIT, house: &[KERNEL, PORTS, STORE, RUNTIME], others: None },
    Rule {
        name: SERVER,
        house: &[AUDIT, CONFIG, FS, KERNEL, POLICY, PORTS, REGISTRY, RUNTIME, STORE],
        others: None,
    },
    Rule {
        name: MCP,
        house: &[CONFIG, FS, KERNEL, POLICY, PORTS, REGISTRY, RUNTIME, SERVER],
        others: None,
    },
    Rule {
        name: HTTP_API,
        house: &[
            AUDIT,
            CONFIG,
            KERNEL,
            POLICY,
            PORTS,
            REGISTRY,
            RUNTIME,
            SERVER,
            STORE,
            "hivekeep-artifact",
            "hivekeep-hub",
        ],
        others: None,
    },
    Rule {
        name: E2B,
        house: &[
            CONFIG,
            IMAGE,
            KERNEL,
            LINK,
            MACHINE,
            OCI,
            PORTS,
            REGISTRY,
            RUNTIME,
            SERVER,
            "hivekeep-command",
            "hivekeep-files",
            "hivekeep-workspace",
        ],
        others: None,
    },
    Rule {
        name: DOOR_PORTS,
        house: &[CONFIG, KERNEL, PORTS, RUNTIME, SERVER, STORE],
        others: None,
    },
    Rule { name: MCP_CLIENT, house: &[], others: None },
    Rule { name: FIGURES, house: &[], others: None },
    Rule { name: "hivekeep-bare-browser", house: &[], others: None },
    Rule { name: BASELINES, house: &[STORE], others: None },
    Rule { name: "hivekeep-vsock-probe", house: &[LINK, PROTOCOL], others: None },
    Rule { name: "xtask", house: &[FIGURES, MCP_CLIENT], others: None },
];

/// An actor that has no row of its own.
const ACTOR: Rule =
    Rule { name: "an actor", house: &[FS, KERNEL, PORTS, STORE, RUNTIME, TESTKIT], others: None };

/// Uses all packages so that features are the same for each selection, and is never built.
const UNIFY: &str = "hivekeep-unify";
/// The package that wires everything.
const ROOT: &str = "hivekeep";
/// The list of families with their sections: it uses all of them, and doors use it.
const CONFIG: &str = "hivekeep-config";

/// What only some may use, in what they ship.
const ONLY_IN: [(&str, &[&str]); 14] = [
    ("sled", &[STORE, BASELINES]),
    ("rmcp", &[ROOT, SERVER, MCP, MCP_CLIENT, BASELINES, "hivekeep-source"]),
    ("axum", &[ROOT, SERVER, MCP, HTTP_API, E2B, DOOR_PORTS, BASELINES]),
    ("model2vec-rs", &["hivekeep-ingest"]),
    ("notify", &["hivekeep-ingest"]),
    ("jsonschema", &[RUNTIME]),
    ("pdf-extract", &["hivekeep-ingest"]),
    ("clap", &[ROOT, SERVER, "xtask"]),
    ("anyhow", &[ROOT, "xtask", "hivekeep-bare-browser", BASELINES]),
    ("governor", &[SERVER, "hivekeep-agent", "hivekeep-team"]),
    ("postcard", &[PROTOCOL, FILE_ENGINE, "hivekeep-ingest"]),
    ("chromiumoxide", &["hivekeep-bare-browser"]),
    ("fast-socks5", &["hivekeep-browser"]),
    ("tokio-tungstenite", &["hivekeep-browser"]),
];

/// What the guest must do without: it is small, and trusted with nothing.
const NOT_IN_GUEST: [&str; 3] = ["ractor", "schemars", "tracing-subscriber"];

fn broken(name: &str, dependency: &Value) -> Option<String> {
    if name == UNIFY {
        return None;
    }
    let used = dependency["name"].as_str()?;
    let (house, shipped) = (!dependency["path"].is_null(), dependency["kind"] != "dev");
    if house && ![ROOT, CONFIG].contains(&name) {
        let rule = RULES.iter().find(|rule| rule.name == name).unwrap_or(&ACTOR);
        // Examples and tests may use the crate's own test utilities by its name; all tests may skip,
        // and replay what fuzzing found.
        if used != name && ![SKIP, REPLAY].contains(&used) && !rule.house.contains(&used) {
            return Some(format!("{name} uses {used}; it may use {:?}", rule.house));
        }
    }
    if !shipped {
        return None;
    }
    // The runner of the tests knows how they skip.
    if [TESTKIT, REPLAY].contains(&used) || used == SKIP && name != "xtask" {
        return Some(format!("{name} ships {used}"));
    }
    let limited = RULES.iter().find(|rule| rule.name == name).and_then(|rule| rule.others);
    if !house && limited.is_some_and(|others| !others.contains(&used)) {
        return Some(format!("{name} uses {used}, which is not on its list"));
    }
    if name == "hivekeep-guest" && NOT_IN_GUEST.contains(&used) {
        return Some(format!("{name} uses {used}"));
    }
    let (_, places) = ONLY_IN.iter().find(|(only, _)| *only == used)?;
    (!places.contains(&name)).then(|| format!("{name} uses {used}, which belongs to {places:?}"))
}

#[test]
fn nobody_uses_what_is_not_theirs_to_use() {
    let mut findings = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let dependencies = package["dependencies"].as_array().unwrap();
        findings.extend(dependencies.iter().filter_map(|dependency| broken(name, dependency)));
    }
    assert_none("dependency rule of docs/architecture.md", &findings);
}

#[test]
fn an_actor_on_another_actor_is_seen() {
    let on = |name: &str, path: Option<&str>| serde_json::json!({ "name": name, "path": path, "kind": null });
    assert!(broken("hivekeep-team", &on("hivekeep-workspace", Some("actors/workspace"))).is_some());
    assert!(broken("hivekeep-team", &on("hivekeep-store", Some("actors/store"))).is_none());
    assert!(broken("hivekeep-swarm", &on("hivekeep-team", Some("actors/team"))).is_some());
    assert!(broken(MCP, &on(ROOT, Some("."))).is_some());
    assert!(broken(MCP, &on(E2B, Some("doors/e2b"))).is_some());
    for kit in [(TESTKIT, "actors/testkit"), (SKIP, "tests/skip")] {
        assert!(broken("hivekeep-swarm", &on(kit.0, Some(kit.1))).is_some());
    }
    assert!(broken("hivekeep-registry", &on("sled", None)).is_some());
    assert!(broken("hivekeep-kernel", &on("reqwest", None)).is_some());
    assert!(broken("hivekeep-guest", &on("ractor", None)).is_some());
    assert!(broken("hivekeep", &on("rmcp", None)).is_none());
}
