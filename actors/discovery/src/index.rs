//! Index of the tools: a tool is one document of its fields. Beside the ranking of its words, a query that is a
//! part of a name finds the tool by it.

use std::{cmp::Reverse, collections::HashMap, sync::LazyLock};

use hivekeep_kernel::{Effect, ToolSpec};
use hivekeep_runtime::{
    tool_catalogue::CataloguedTool,
    word_index::{self, WordIndex},
};
use serde_json::Value;

/// How often each field is in a tool's document: its name, its title and family, its description,
/// its parameters and hints.
const TIMES: [usize; 4] = [4, 3, 2, 1];
/// Added for a name that is the query, or has it in it: above and among what words alone reach.
const NAMED: [f32; 2] = [1_000.0, 2.0];

/// Index of all tools; a tool is its place in the catalogue.
pub(crate) struct ToolIndex {
    /// Built by the first search, so that a daemon does not start later for it.
    words: LazyLock<WordIndex, Box<dyn FnOnce() -> WordIndex + Send>>,
    /// Names in lower case, with underscores.
    names: Vec<String>,
}

impl ToolIndex {
    pub(crate) fn new(tools: &[CataloguedTool]) -> Self {
        let documents: Vec<String> = tools.iter().map(document).collect();
        let words = LazyLock::new(Box::new(move || WordIndex::new(documents)) as Box<_>);
        Self { words, names: tools.iter().map(|tool| plain(tool.spec.name)).collect() }
    }

    /// Places of the tools that a query finds, the best first. All for a blank query, in the order of
    /// the catalogue.
    pub(crate) fn search(&self, query: &str) -> Vec<usize> {
        if query.trim().is_empty() {
            return (0..self.names.len()).collect();
        }
        let mut scores: HashMap<_, _> = self.words.search(query).into_iter().collect();
        let wanted = plain(query);
        for (at, name) in self.names.iter().enumerate().filter(|(_, name)| name.contains(&wanted)) {
            *scores.entry(at).or_default() += NAMED[usize::from(*name != wanted)];
        }
        let mut found: Vec<_> = scores.into_iter().collect();
        found.sort_by(|(a, one), (b, other)| other.total_cmp(one).then(a.cmp(b)));
        found.into_iter().map(|(at, _)| at).collect()
    }

    /// Places of the tools with the names closest to one that is not there, the best first.
    pub(crate) fn nearest(&self, name: &str) -> Vec<usize> {
        let wanted = plain(name);
        let likeness = |name: &String| strsim::jaro_winkler(&wanted, name);
        let mut near: Vec<_> = self.names.iter().map(likeness).enumerate().collect();
        // Below this, names share little more than a letter or two.
        near.retain(|(_, likeness)| *likeness > 0.75);
        near.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        near.into_iter().map(|(at, _)| at).collect()
    }

    /// Place of the tool of a name, dotted or underscored.
    pub(crate) fn find(
        &self,
        name: &str,
        declared: impl Fn(usize) -> &'static str,
    ) -> Option<usize> {
        let wanted = plain(name);
        let named = (0..self.names.len()).filter(|at| self.names[*at] == wanted);
        // Two tools may differ in a dot alone.
        named.min_by_key(|at| Reverse(declared(*at) == name))
    }
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace('.', "_")
}

fn document(CataloguedTool { spec, server, tool }: &CataloguedTool) -> String {
    let description = tool["description"].as_str().unwrap_or_default();
    let mut rest = hints(spec).to_owned();
    texts(&tool["inputSchema"]["properties"], &mut rest);
    texts(&tool["inputSchema"]["$defs"], &mut rest);
    let server = server.as_deref().unwrap_or_default();
    let title = format!("{} {} {server}", spec.title, spec.family);
    let fields = [spec.name, &title, description, &rest].into_iter().zip(TIMES);
    word_index::document(fields)
}

/// Names of properties, their values and their descriptions.
fn texts(schema: &Value, found: &mut String) {
    match schema {
        Value::Object(map) => {
            for (key, below) in map {
                if below.is_object() {
                    found.push(' ');
                    found.push_str(key);
                }
                texts(below, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|below| texts(below, found)),
        Value::String(text) => {
            found.push(' ');
            found.push_str(text);
        }
        _ => {}
    }
}

/// Words that people use for what a tool does to the world.
fn hints(spec: &ToolSpec) -> &'static str {
    match (spec.effect, spec.open_world) {
        (Effect::Read, true) => "read show internet online",
        (Effect::Read, false) => "read show look inspect",
        (Effect::Destroy, _) => "destroy delete remove",
        (_, true) => "change internet online",
        (_, false) => "change",
    }
}
