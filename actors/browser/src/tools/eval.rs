//! `webview_eval`.

use hivekeep_kernel::{CallCx, ToolError, serve::Reply, tools};
use hivekeep_runtime::json_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    act::{MAX_SECS, act, default_secs},
    browser::Browser,
    cdp::CdpError,
    page::{LivePage, refused},
    state::{Happened, apply::exception},
};

const BOUNDED: &str = include_str!("../page/bounded.js");

fn default_bytes() -> usize {
    16 * 1024
}

/// Run JavaScript in the page, as its own scripts run, and get the value of its last expression. Promises are
/// awaited; `await` and `return` may be used.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Eval {
    /// Expression or statements.
    #[schemars(length(min = 1, max = 262_144))]
    pub(crate) script: String,
    /// Most bytes of the result as JSON, 1 KiB to 1 MiB; a longer one is cut.
    #[schemars(range(min = 1024, max = 1024 * 1024))]
    #[serde(default = "default_bytes")]
    pub(crate) max_bytes: usize,
    /// Time limit, 1 to 120. A script that runs longer is stopped.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_secs")]
    pub(crate) timeout_secs: u64,
}

/// Outcome of a script.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Evaluated {
    /// Whether it ended without an exception.
    pub(crate) success: bool,
    /// Its value; what is no JSON is described by a text.
    pub(crate) result: Value,
    /// The exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Whether `result` is only how its JSON begins.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    #[serde(flatten)]
    pub(crate) happened: Happened,
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_eval: Eval => Evaluated = Browser::eval {
        title: "Run JavaScript in the page", open_world: true,
        result_budget_bytes: 8 * 1024 * 1024,
    };
}

impl Browser {
    fn eval(&mut self, cx: &CallCx, input: Eval) -> Result<Reply<Evaluated>, ToolError> {
        Ok(act(self, cx, input.timeout_secs, move |page, _| eval(page, input)))
    }
}

async fn eval(page: LivePage, input: Eval) -> Result<Evaluated, ToolError> {
    let mark = page.chrome.state().mark();
    let mut answer = evaluate(&page, &input.script).await?;
    let about = exception(&answer["exceptionDetails"]);
    let wrapped = ["await is only valid", "Illegal return statement"];
    if about.contains("SyntaxError") && wrapped.iter().any(|why| about.contains(why)) {
        let script = format!("(async () => {{ {}\n }})()", input.script);
        answer = evaluate(&page, &script).await?;
    }
    let details = &answer["exceptionDetails"];
    let mut evaluated = match details.is_object() {
        true => {
            let error = exception(details).chars().take(4_000).collect();
            Evaluated { error: Some(error), ..Evaluated::default() }
        }
        false => bounded(&page, &answer["result"], input.max_bytes).await?,
    };
    evaluated.happened = page.since(mark);
    Ok(evaluated)
}

async fn evaluate(page: &LivePage, script: &str) -> Result<Value, ToolError> {
    let params = json!({
        "expression": script, "awaitPromise": true, "returnByValue": false, "userGesture": true,
        "allowUnsafeEvalBlockedByCSP": true,
    });
    match page.chrome.cdp.call(Some(&page.session), "Runtime.evaluate", params).await {
        // The page went to another one, or the script was stopped.
        Err(CdpError::Refused(why)) => Ok(json!({ "exceptionDetails": { "text": why } })),
        answer => answer.map_err(refused),
    }
}

#[derive(Debug, Deserialize)]
struct BoundedJson {
    text: String,
    json: bool,
    #[serde(default)]
    cut: bool,
}

/// A value of bounded size.
async fn bounded(page: &LivePage, value: &Value, most: usize) -> Result<Evaluated, ToolError> {
    let described =
        value["subtype"] == "node" || value["subtype"] == "error" || value["type"] == "function";
    let good = |result| Evaluated { success: true, result, ..Evaluated::default() };
    let text = match (value["objectId"].as_str().filter(|_| !described), &value["value"]) {
        (Some(object), _) => {
            let params = json!({
                "functionDeclaration": BOUNDED, "objectId": object,
                "arguments": [{ "value": most }], "returnByValue": true,
            });
            let answer: Value = page.call("Runtime.callFunctionOn", params).await?;
            let decoded = serde_json::from_value::<BoundedJson>(answer["result"]["value"].clone());
            let Ok(BoundedJson { text, json, cut }) = decoded else {
                return Ok(good(value["description"].clone()));
            };
            // A script of the page's may have changed what says so.
            if json
                && text.len() <= most.saturating_mul(4)
                && let Ok(result) = json_text::from_str(&text)
            {
                return Ok(good(result));
            }
            return Ok(Evaluated { truncated: cut, ..good(cut_at(&text, most).into()) });
        }
        (None, Value::Null) => {
            let other = value["unserializableValue"].as_str().or(value["description"].as_str());
            let Some(other) = other else { return Ok(good(Value::Null)) };
            other
        }
        (None, Value::String(text)) => text,
        (None, other) => return Ok(good(other.clone())),
    };
    let shown = cut_at(text, most);
    Ok(Evaluated { truncated: shown.len() < text.len(), ..good(shown.into()) })
}

fn cut_at(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
