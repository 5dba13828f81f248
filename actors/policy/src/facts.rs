//! Facts of an input: the commands that it runs, the paths and the hosts that it names.
//!
//! They are read by the names of parameters, which are the same in all families. A command line is
//! taken apart by a shell's grammar ([`hivekeep_shell`]): what is judged are words, not text.

mod commands;

use std::sync::OnceLock;

use serde_json::Value;

use crate::condition::{VARIABLES, Variable};
pub(crate) use commands::{CallCommand, CallCommands, program_name};

/// Parameters, at any depth of an input, that are a path or a list of paths. A test of the catalogue
/// keeps the list closed.
pub const PATH_PARAMETERS: [&str; 13] = [
    "path",
    "paths",
    "file_path",
    "new_path",
    "oldPath",
    "newPath",
    "path_prefix",
    "host_path",
    "guest_path",
    "workdir",
    "cwd",
    "dir",
    "sparse_paths",
];
/// Parameters that are an address.
const ADDRESSES: [&str; 3] = ["url", "git_url", "repo_url"];
/// Parameter that is a place: `[USER@]WORKSPACE[:FOLDER]`.
const PLACE: &str = "place";

/// Facts of one call's input, each read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct CallFacts<'a> {
    args: Option<&'a Value>,
    commands: OnceLock<CallCommands>,
    /// Variables of conditions, each made once for all rules; behind them the commands by the names of their
    /// programs.
    variables: [OnceLock<Variable>; VARIABLES.len() + 1],
}

impl<'a> CallFacts<'a> {
    /// Facts of an input.
    pub(crate) fn of(args: Option<&'a Value>) -> Self {
        Self { args, ..Self::default() }
    }

    /// Commands that the call runs.
    pub(crate) fn commands(&self) -> &CallCommands {
        let none = CallCommands::Clear(Vec::new());
        self.commands.get_or_init(|| self.args.map_or(none, commands::of))
    }

    /// Variable of conditions at a place.
    pub(crate) fn variable(&self, at: usize, make: impl FnOnce() -> Variable) -> &Variable {
        self.variables[at].get_or_init(make)
    }

    /// Paths that the call names, as they are written; relative ones from the folder that its place names,
    /// which is one of them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let folder = |place: &'a str| place.split_once(':').map(|(_, folder)| folder);
        let absolute = |folder: &&str| folder.starts_with(['/', '~']);
        let roots = self.texts(&[PLACE]).into_iter().filter_map(folder).filter(absolute);
        let mut paths: Vec<String> = roots.map(str::to_owned).collect();
        let root = paths.first().cloned().unwrap_or_default();
        let from_root = |path: &str| match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{root}/{path}"),
        };
        paths.extend(self.texts(&PATH_PARAMETERS).into_iter().map(from_root));
        paths
    }

    /// Hosts that the call names, in small letters; `Err` is an address without one.
    pub(crate) fn hosts(&self) -> Vec<Result<String, &'a str>> {
        self.texts(&ADDRESSES).into_iter().map(|address| host(address).ok_or(address)).collect()
    }

    fn texts(&self, names: &[&str]) -> Vec<&'a str> {
        let mut found = Vec::new();
        if let Some(args) = self.args {
            named(args, names, &mut found);
        }
        found
    }
}

/// Texts of the parameters of these names, at any depth.
fn named<'a>(value: &'a Value, names: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, below) in map {
                if names.contains(&name.as_str()) {
                    found.extend(texts(below));
                }
                named(below, names, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|below| named(below, names, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A text, or the texts of a list.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        value => value.as_str().into_iter().collect(),
    }
}

/// Host of an address: of a URL, or of `user@host:path` as git has it.
fn host(address: &str) -> Option<String> {
    let behind = |text: &str| match text.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next().map(str::to_owned),
        None => text.split_once(':').map(|(host, _)| host.to_owned()),
    };
    let authority = behind(address)?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_found_at_any_depth_and_begin_where_the_place_does() {
        let paths = |args: Value| {
            let mut paths = CallFacts::of(Some(&args)).paths();
            paths.sort_unstable();
            paths
        };
        let deep = json!({ "tasks": [{ "workdir": "/w" }], "volumes": [{ "path": "/v" }], "newPath": "/n" });
        assert_eq!(paths(deep), ["/n", "/v", "/w"]);
        for (place, found) in [
            ("w", &["/a", "/b"][..]),
            ("volume:work", &["/a", "/b"]),
            ("app@w:/srv", &["/b", "/srv", "/srv/a"]),
            ("w:~/x", &["/b", "~/x", "~/x/a"]),
        ] {
            assert_eq!(paths(json!({ "place": place, "paths": ["a", "/b"] })), found, "{place}");
        }
    }

    #[test]
    fn hosts_are_those_that_are_asked() {
        for (address, expected) in [
            ("https://Example.org:8443/x", Some("example.org")),
            ("https://good.org@evil.org/", Some("evil.org")),
            ("https://good.org:x@evil.org:1/", Some("evil.org")),
            ("git@github.com:a/b.git", Some("github.com")),
            ("http://[::1]:80/", Some("::1")),
            ("https://example.org.?x", Some("example.org")),
            ("https:///x", None),
            ("nothing", None),
        ] {
            assert_eq!(host(address).as_deref(), expected, "{address}");
        }
    }
}
