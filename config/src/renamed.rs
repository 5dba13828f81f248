//! Keys by names of the release before, which are read in this one, with a warning.

use serde_json::Value;

use super::{ConfigProblem, leaves::Leaf};

/// Sections of the doors, and where their keys are.
const SECTIONS: [(&str, &str); 5] = [
    ("mcp_http", "http.mcp"),
    ("http_api", "http.api"),
    ("doors.e2b", "http.e2b"),
    ("port_urls", "http.ports"),
    ("hub", "hub"),
];
/// Keys that sections of doors had, each with these sections, and the one that they are in `http`.
const SHARED: [(&str, &[&str], &str); 8] = [
    ("allowed_hosts", &["mcp_http", "http_api", "doors.e2b", "hub"], "allowed_hosts"),
    ("allowed_origins", &["mcp_http", "http_api", "hub"], "allowed_origins"),
    ("max_connections", &["http_api", "doors.e2b", "port_urls"], "max_connections"),
    ("max_header_kb", &["http_api", "port_urls"], "max_header_kb"),
    ("header_timeout_secs", &["http_api", "doors.e2b", "port_urls"], "header_timeout_secs"),
    ("body_timeout_secs", &["http_api", "doors.e2b"], "body_timeout_secs"),
    ("idle_timeout_secs", &["port_urls"], "body_timeout_secs"),
    ("write_timeout_secs", &["http_api", "doors.e2b"], "write_timeout_secs"),
];

/// The name of a key, if it has another one now.
fn name_now(key: &str) -> Option<String> {
    let below = |section: &str| key.strip_prefix(section)?.strip_prefix('.');
    let (old, new, rest) =
        SECTIONS.iter().find_map(|(old, new)| below(old).map(|rest| (*old, *new, rest)))?;
    let shared = SHARED.iter().find(|(name, had, _)| *name == rest && had.contains(&old));
    let name = shared.map_or(format!("{new}.{rest}"), |(.., name)| format!("http.{name}"));
    (name != key).then_some(name)
}

/// Defaults with the old sections beside the new ones, by which a file's tables are told from its values.
pub(super) fn with_old_sections(known: &Value) -> Value {
    let mut all = known.clone();
    for (old, new) in SECTIONS {
        let keys = known.pointer(&format!("/{}", new.replace('.', "/")));
        let Some(keys) = keys.cloned() else { continue };
        let place = old.split('.').fold(&mut all, |at, key| &mut at[key]);
        *place = keys;
    }
    all
}

/// Leaves of one layer by the names of now, the renamed ones first, and what is said of these.
pub(super) fn read(leaves: Vec<Leaf>) -> (Vec<Leaf>, Vec<ConfigProblem>) {
    let (mut renamed, mut others, mut told) = (Vec::<Leaf>::new(), Vec::new(), Vec::new());
    for mut leaf in leaves {
        let key = leaf.key();
        let Some(name) = name_now(&key) else {
            others.push(leaf);
            continue;
        };
        let reason = format!("this is `{name}` now; the next release does not read the old name");
        told.push(ConfigProblem { source: leaf.source.clone(), key, reason });
        leaf.path = name.split('.').map(str::to_owned).collect();
        match renamed.iter_mut().find(|known| known.path == leaf.path) {
            Some(known) => known.candidates = wider(&known.candidates, leaf.candidates),
            None => renamed.push(leaf),
        }
    }
    renamed.append(&mut others);
    (renamed, told)
}

/// The lists of two doors joined, or the larger of their numbers.
fn wider(one: &[Value], other: Vec<Value>) -> Vec<Value> {
    match (one.last(), other.last()) {
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            let more = other.iter().filter(|item| !one.contains(item));
            vec![one.iter().chain(more).cloned().collect()]
        }
        (Some(number), Some(more)) if number.as_u64() > more.as_u64() => vec![number.clone()],
        _ => other,
    }
}
