//! Code in an interpreter that remembers.

use std::collections::BTreeMap;

use hivekeep_kernel::{WorkspaceId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{MAX_PLACE_CHARS, cmd::Argument, with_place};
use crate::commands::CommandService;

/// Time limit of a call that names none.
const TIMEOUT_SECS: u64 = 300;
/// Longest time limit.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;
/// Context of calls that name none.
pub(crate) const DEFAULT_CONTEXT: &str = "default";

/// Run Python in your place and see what it prints and shows: text, tables, plots. Variables, imports and
/// functions stay for the next call. Needs a place of the image `code-interpreter`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCode {
    /// The code; the value of its last line is a result. Empty only starts the interpreter, or restarts.
    #[schemars(length(max = 1_000_000))]
    pub(crate) code: String,
    /// Context with variables of its own, made when it is first named.
    #[serde(default = "default_context")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub(crate) context: String,
    /// Language of the code: `python`.
    #[serde(default = "default_language")]
    #[schemars(length(max = 40))]
    pub(crate) language: String,
    /// True empties the context first, and ends what runs in it.
    #[serde(default)]
    pub(crate) restart: bool,
    /// Environment variables for this code.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    pub(crate) env: BTreeMap<String, Argument>,
    /// Time limit in seconds, at which the code is interrupted; variables stay. Default 300.
    #[serde(default = "default_timeout_secs")]
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    pub(crate) timeout_secs: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    pub(crate) place: Option<String>,
}

fn default_context() -> String {
    DEFAULT_CONTEXT.to_owned()
}

fn default_language() -> String {
    "python".to_owned()
}

fn default_timeout_secs() -> u64 {
    TIMEOUT_SECS
}

/// What code printed and showed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CodeRun {
    /// What it showed, each by its forms: text, html, markdown, svg, png, jpeg (base64), json, data and others.
    /// `is_main_result` is the value of the last line; `left_out` has the sizes of forms that are too long.
    pub(crate) results: Vec<Map<String, Value>>,
    /// The last that it wrote to its standard output.
    pub(crate) stdout: String,
    /// The last that it wrote to its standard error.
    pub(crate) stderr: String,
    /// Bytes of stdout left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) stdout_omitted_bytes: u64,
    /// Bytes of stderr left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) stderr_omitted_bytes: u64,
    /// Results left out behind those that are shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) results_omitted: u64,
    /// The exception that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<CodeError>,
    /// Number of executions of the context, this one included; absent where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) execution_count: Option<u64>,
    /// Context that it ran in.
    pub(crate) context: String,
    /// Place that it ran in.
    pub(crate) place: String,
    /// Workspace of the place.
    #[schemars(with = "String")]
    pub(crate) workspace_id: WorkspaceId,
}

/// An exception, or the end of the interpreter under the code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct CodeError {
    /// Its class; `KernelDied` and `KernelRestarted` if the interpreter ended: variables are gone then.
    pub(crate) name: String,
    /// Its message.
    pub(crate) value: String,
    /// Where it was raised.
    pub(crate) traceback: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

tools! { pub(crate) FAMILY: "code" for service CommandService, singleton commands;
    run_code: RunCode => CodeRun = CommandService::run_code {
        title: "Run code that remembers", risk: Risk::High, rate: RateClass::Exec, open_world: true,
        timeout_secs: TIMEOUT_SECS, result_budget_bytes: 16 * 1024 * 1024, content: blocks,
        limit_secs: |input| with_place(input, "timeout_secs", TIMEOUT_SECS),
    };
}

/// Pictures as models see them, behind everything else that is told; `None` without any.
fn blocks(run: &Value) -> Option<Vec<Value>> {
    let mut beside = run.clone();
    let mut images = Vec::new();
    for result in beside["results"].as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
        for (form, mime) in [("png", "image/png"), ("jpeg", "image/jpeg")] {
            if let Some(data) = result.remove(form) {
                images.push(json!({ "type": "image", "data": data, "mimeType": mime }));
            }
        }
    }
    let text = json!({ "type": "text", "text": beside.to_string() });
    (!images.is_empty()).then(|| std::iter::once(text).chain(images).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_blocks_of_their_own() {
        let run = json!({ "results": [{ "text": "<Figure>", "png": "aGk=" }, { "text": "5" }] });
        let blocks = blocks(&run).expect("a picture");
        assert_eq!(blocks[1], json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }));
        let text = blocks[0]["text"].as_str().expect("text");
        assert_eq!(text, r#"{"results":[{"text":"<Figure>"},{"text":"5"}]}"#);
        assert_eq!(super::blocks(&json!({ "results": [{ "text": "5" }] })), None);
    }
}
