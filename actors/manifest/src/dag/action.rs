//! Actions by name: what `with` may have, and what to do instead of those that are not here.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use serde_json::{Value, json};

use super::form;
use crate::{
    common::JsonObject,
    problems::{CompiledSchema, ManifestPath, ProblemList, nearest},
};

/// Actions with the keys of `with`, a line each. `!` is behind a key that is required, a kind behind a colon;
/// without one it is a text that is not blank. `*` takes other keys, too. A name with `+` before it is a set
/// that lines after it use.
const ACTIONS: &str = "
+archive source! format password overwrite:bool strip_components:int include:list exclude:list dry_run:bool \
    compression_level:int preserve_paths:bool verbose:bool follow_symlinks:bool verify_integrity:bool \
    continue_on_error:bool
archive.create destination! +archive
archive.extract destination +archive
archive.list destination +archive
+artifact mode pattern format overwrite:bool atomic:bool recursive:bool include_dirs:bool max_bytes:int
artifact.list path:str content:str +artifact
artifact.read path! content:str +artifact
artifact.write path! content:str! +artifact
chat.completion prompt messages:list model:any provider system tools:list *
+container image container_name platform pull:any auto_remove:any working_dir user env:any volumes:list \
    command:any container:map host:map network:any exec:map
container.run +container
docker.run +container
dag.enqueue dag! params:any queue
dag.run dag! params:any
+data data:any input has_header:bool headers:bool delimiter:str columns:list
data.convert from! to! +data
data.pick from! select! to raw:bool +data
exec command! args:list
+file mode pattern format overwrite:bool create_dirs:bool atomic:bool recursive:bool missing_ok:bool \
    dry_run:bool include_dirs:bool follow_symlinks:bool max_bytes:int path source destination content:str
file.copy source! destination! +file
file.delete path! +file
file.list path! +file
file.mkdir path! +file
file.move source! destination! +file
file.read path! +file
file.stat path! +file
file.write path! content:str! +file
git.checkout repository! path! ref depth:int force:bool token:str username:str password:str ssh_key_path \
    ssh_passphrase:str
git.worktree.add branch path create_branch:bool base
git.worktree.remove branch path force:bool delete_branch:bool force_delete_branch:bool
harness.run prompt! provider model stdin:str fallback:list *
http.request method! url! timeout:int headers:map query:map body:any form:map files:map silent:bool \
    debug:bool json:bool format skip_tls_verify:bool output
human.task prompt! form:form
jq.filter filter! data:any input raw:bool *
log.write message:str!
mail.send to:any! subject:str! message:str! from attachments:list attach_logs:bool
noop
outputs.write values:map!
router.route value:str! routes:map!
run shell:shell shell_args:texts shell_packages:texts
+state scope namespace
state.delete key! +state
state.diff key! value:any! expected_version:int update:bool +state
state.get key! default:any required:bool +state
state.list prefix:str limit:int include_values:bool +state
state.set key! value:any! expected_version:int create_only:bool +state
template.render template template_ref data:any output *
wait.duration duration!
wait.file path! state poll_interval
wait.http url! method status:int headers:map body:str poll_interval request_timeout
wait.until until!
";

/// Row of the settings of a step with `run`.
pub(super) const RUN: &str = "run";

/// First parts of actions, and types of the old notation, that are not here, with what to do instead.
const NOT_HERE: [(&str, &str); 9] = [
    ("k8s", "call `kubectl` by `run`, in a container that has it"),
    ("kubernetes", "call `kubectl` by `run`, in a container that has it"),
    ("ssh", "call `ssh` by `run`, in a container that has it"),
    ("sftp", "call `sftp` by `run`, in a container that has it"),
    ("s3", "call a client of S3 by `run`, in a container that has it"),
    ("redis", "call `redis-cli` by `run`, in a container that has it"),
    ("postgres", "call `psql` by `run`, in a container that has it"),
    ("sqlite", "call `sqlite3` by `run`, in a container that has it"),
    ("source", "call the program by `run`, in a container that has it"),
];

/// Keys of the root and of steps, and types of DAGs, that are not here, with what to do instead.
const KEYS_NOT_HERE: [(&str, &str); 5] = [
    ("worker_selector", "there is one host: remove it, or write `local`"),
    ("inputs", "no step is left out by its files: name the files in the command"),
    ("path", "no step is left out by its files: remove it"),
    ("otel", "traces are an operator's setting: remove it"),
    ("build", "no step is left out by its files: write `type: graph`"),
];

/// Schemas of `with` by the action.
static TABLE: LazyLock<HashMap<&str, CompiledSchema>> = LazyLock::new(|| {
    let mut sets: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut table = HashMap::new();
    for line in ACTIONS.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let keys = words.flat_map(|word| sets.get(word).cloned().unwrap_or_else(|| vec![word]));
        let keys: Vec<_> = keys.collect();
        match name.strip_prefix('+') {
            Some(_) => _ = sets.insert(name, keys),
            None => _ = table.insert(name, CompiledSchema::of(schema_of(&keys))),
        }
    }
    table
});

/// Schema of a mapping with keys as [`ACTIONS`] has them; of one that is there twice the first counts.
fn schema_of(keys: &[&str]) -> Value {
    let mut properties = JsonObject::new();
    let mut required = Vec::new();
    for word in keys.iter().filter(|word| **word != "*") {
        let plain = word.trim_end_matches('!');
        let (key, kind) = plain.split_once(':').unwrap_or((plain, ""));
        if plain != *word {
            required.push(key);
        }
        properties.entry(key).or_insert_with(|| kind_schema(kind));
    }
    let is_open = keys.contains(&"*");
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": is_open,
    })
}

/// Schema of a value. A text with a reference may become anything.
fn kind_schema(kind: &str) -> Value {
    let (what, name) = match kind {
        "" => {
            return json!({ "description": "A text, not blank.", "type": "string", "pattern": r"\S" });
        }
        "str" => return json!({ "type": "string" }),
        "texts" => return json!({ "type": "array", "items": { "type": "string" } }),
        "shell" => return json!({ "type": ["string", "array"], "not": { "const": "direct" } }),
        "form" => return form::schema(),
        "bool" => ("True or false", "boolean"),
        "int" => ("A whole number", "integer"),
        "list" => ("A list", "array"),
        "map" => ("A mapping", "object"),
        _ => return json!(true),
    };
    let about = format!("{what}, or a text with references.");
    json!({ "anyOf": [{ "type": name }, { "description": about, "type": "string", "pattern": r"\$\{" }] })
}

/// Names of all actions of ours.
pub fn builtins() -> impl Iterator<Item = &'static str> {
    TABLE.keys().copied().filter(|name| *name != RUN)
}

/// True for the name of an action that is one of ours.
pub fn is_builtin(name: &str) -> bool {
    name != RUN && TABLE.contains_key(name)
}

/// Advice in place of an action, or a type of steps of the old notation, that is not here.
pub fn instead_of(name: &str) -> Option<&'static str> {
    if name.contains('@') {
        return Some("actions of other places are not fetched: call the program by `run`");
    }
    let first = name.split('.').next()?;
    NOT_HERE.iter().find(|(group, _)| *group == first).map(|(_, instead)| *instead)
}

/// Advice in place of a key of the root or of a step, or a type of DAGs, that is not here.
pub fn instead_of_key(key: &str) -> Option<&'static str> {
    let found = KEYS_NOT_HERE.iter().find(|(name, _)| *name == key).map(|(_, instead)| *instead);
    found.or_else(|| instead_of(key))
}

/// Message of a key that is not here.
pub(super) fn not_here(key: &str) -> String {
    format!("`{key}` is not here: {}", instead_of_key(key).unwrap_or("remove it"))
}

/// Names that an action may have, beside those of ours.
pub(super) struct ActionNames<'n> {
    own: HashSet<&'n str>,
    /// Types of the old notation.
    types: HashSet<&'n str>,
    /// Tools with `_` for `.`; `None` if they are not known.
    tools: Option<HashSet<String>>,
}

impl<'n> ActionNames<'n> {
    /// Actions and types of a file with the tools of the catalogue, if they are known.
    pub(super) fn new(
        own: impl Iterator<Item = &'n str>,
        types: impl Iterator<Item = &'n str>,
        tools: Option<&[&str]>,
    ) -> Self {
        let tools = tools.map(|tools| tools.iter().map(|name| plain(name)).collect());
        Self { own: own.collect(), types: types.collect(), tools }
    }

    pub(super) fn has_type(&self, name: &str) -> bool {
        self.types.contains(name)
    }
}

/// Name of a tool with one letter for two that are the same in calls.
fn plain(name: &str) -> String {
    name.replace('.', "_")
}

/// Checks the name of an action.
pub(super) fn check_name(
    name: &str,
    names: &ActionNames<'_>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let shown: String = name.chars().take(60).collect();
    if let Some(instead) = instead_of(name) {
        return problems.add(at, format!("the action `{shown}` is not here: {instead}"));
    }
    let is_tool = match &names.tools {
        Some(tools) => tools.contains(&plain(name)),
        // A group of ours is known as a whole.
        None => is_action_name(name) && !in_group(name),
    };
    if names.own.contains(name) || is_builtin(name) || is_tool {
        return;
    }
    let mut known: Vec<&str> = builtins().collect();
    known.extend(&names.own);
    problems.add(
        at,
        match nearest(name, &known) {
            Some(near) => format!("there is no action `{shown}`: did you mean `{near}`?"),
            None => format!(
                "there is no action `{shown}`, and no tool or action of the file has the name"
            ),
        },
    );
}

/// True for a form that names of actions and tools have.
pub(super) fn is_action_name(name: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    name.len() <= 200 && name.split('.').all(part)
}

/// True if actions of ours have all parts but the last.
fn in_group(name: &str) -> bool {
    let Some((group, _)) = name.rsplit_once('.') else { return false };
    TABLE.keys().any(|known| known.rsplit_once('.').is_some_and(|(one, _)| one == group))
}

/// Checks the settings of an action of ours, or of [`RUN`].
pub(super) fn check_with(
    name: &str,
    with: Option<&JsonObject>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let Some(rules) = TABLE.get(name) else { return };
    let with = with.cloned().unwrap_or_default();
    let at = at.join("with");
    check_choice(name, &with, &at, problems);
    rules.check(&Value::Object(with), &at, problems);
}

/// Checks keys that need or exclude each other.
fn check_choice(name: &str, with: &JsonObject, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let has = |key: &str| with.contains_key(key);
    let is_true = |key: &str| with.get(key).and_then(Value::as_bool) == Some(true);
    let message = match name {
        "jq.filter" if has("data") && has("input") => "`data` excludes `input`: keep one of them",
        "data.convert" | "data.pick" if has("data") == has("input") => {
            "needs exactly one of `data` and `input`"
        }
        "template.render" if has("template") == has("template_ref") => {
            "needs exactly one of `template` and `template_ref`"
        }
        "chat.completion" if !has("prompt") && !has("messages") => "needs `prompt` or `messages`",
        "http.request" if has("body") && (has("form") || has("files")) => {
            "`body` excludes `form` and `files`"
        }
        "state.get" | "state.set" | "state.delete" | "state.list" | "state.diff"
            if with.get("scope").is_some_and(|scope| scope == "custom") && !has("namespace") =>
        {
            "`scope: custom` needs `namespace`"
        }
        "git.worktree.add" if has("branch") && has("base") && !is_true("create_branch") => {
            "`base` needs `create_branch: true`"
        }
        "git.worktree.remove" if !has("branch") && !has("path") => "needs `branch` or `path`",
        "git.worktree.remove" if is_true("delete_branch") && !has("branch") => {
            "`delete_branch` needs `branch`"
        }
        "git.worktree.remove" if is_true("force_delete_branch") && !is_true("delete_branch") => {
            "`force_delete_branch` needs `delete_branch: true`"
        }
        RUN if has("shell_args") && !has("shell") => "`shell_args` needs `shell`",
        _ => return,
    };
    problems.add(at, message);
}

/// Names of the outputs that an action declares by itself.
pub(super) fn outputs_of(name: &str) -> &'static [&'static str] {
    match name {
        "git.checkout" => &["operation", "path", "ref", "commit", "cloned", "changed"],
        "git.worktree.add" => &["path", "branch", "commit", "worktree_created", "branch_created"],
        "git.worktree.remove" => &["path", "branch", "worktree_removed", "branch_deleted"],
        _ => &[],
    }
}
