//! Questions to models that a step asks, `chat.completion`. An answer that a daemon did not record is asked for again.

use std::time::Duration;

use hivekeep_kernel::ToolError;
use hivekeep_plan::resolve::{TextField, resolve_value, value_text};
use hivekeep_ports::{ModelAnswer, ModelMessage, ModelRequest, ModelStop, ModelToolChoice, Models};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    RunSaga, failure::failed, harness::setting, node_try::NodeTry, obeyed::chat_settings,
    scope::too_long,
};

/// Longest answer where the step names no limit.
const ANSWERING: Duration = Duration::from_secs(300);
/// Most models of a list.
const MOST_MODELS: usize = 16;
/// Message as the notation has it.
#[derive(Deserialize)]
struct ChatText {
    role: String,
    content: String,
}

/// Question of a step.
struct ChatQuestion {
    system: Option<String>,
    messages: Vec<ModelMessage>,
    /// Models in order.
    models: Vec<NamedModel>,
}

/// Name that the daemon has for a model, and its settings.
pub(super) type NamedModel = (String, Map<String, Value>);

impl RunSaga {
    /// Asks the models of a step until one answers; `None` where it was cut short.
    ///
    /// # Errors
    /// The last model's error; `step_failed` for a question that none can be asked, or an answer that is not whole.
    pub(super) async fn ask_model(&self, of: &NodeTry<'_>) -> Result<Option<String>, ToolError> {
        let with = Value::Object(chat_settings(of.node.with.clone(), &of.state.begun.dag));
        let with = resolve_value(&with, TextField::StepText, &of.scopes.texts(of.work));
        let with = with.map_err(|_| too_long("with"))?;
        of.keeps_secrets(&with)?;
        let Value::Object(with) = with else {
            return Err(ToolError::internal("settings that are no object"));
        };
        let ChatQuestion { system, messages, models } = ChatQuestion::of(&with)?;
        let fill = |request: &mut ModelRequest| {
            (request.system, request.messages) = (system.clone(), messages.clone());
            request.tool_choice = ModelToolChoice::Never;
        };
        let answer = self.first_answer(of, models, &fill).await?;
        answer.map(whole).transpose()
    }

    /// Asks models in their order until one answers; `None` where it was cut short.
    ///
    /// # Errors
    /// The last model's error; `step_failed` for a setting that is no number.
    pub(super) async fn first_answer(
        &self,
        of: &NodeTry<'_>,
        models: Vec<NamedModel>,
        fill: &(dyn Fn(&mut ModelRequest) + Sync),
    ) -> Result<Option<ModelAnswer>, ToolError> {
        let port = self.shared.daemon.ports.need::<dyn Models>()?;
        let cancel = self.cancel_of(of.state, of.key);
        let secs = of.node.step.timeout_sec.filter(|secs| *secs > 0);
        let deadline = Instant::now() + secs.map_or(ANSWERING, Duration::from_secs);
        let mut last = None;
        for (model, own) in models {
            let mut request = ModelRequest::question(Self::session(of.state)?, model, "", deadline);
            request.temperature = number(&own, "temperature")?;
            request.max_output_tokens = number(&own, "max_tokens")?;
            fill(&mut request);
            match cancel.run_until_cancelled(port.generate(request)).await {
                None => return Ok(None),
                Some(Ok(answer)) => return Ok(Some(answer)),
                Some(Err(error)) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| failed("`model` names no model".to_owned())))
    }
}

impl ChatQuestion {
    fn of(with: &Map<String, Value>) -> Result<Self, ToolError> {
        let mut system: Vec<String> = setting(with, "system").into_iter().collect();
        let mut messages = Vec::new();
        let list = match with.get("messages") {
            None => Vec::new(),
            Some(Value::String(text)) => serde_json::from_str(text).map_err(no_messages)?,
            Some(list) => serde_json::from_value(list.clone()).map_err(no_messages)?,
        };
        for ChatText { role, content } in list {
            match role.as_str() {
                "system" => system.push(content),
                "user" => messages.push(ModelMessage::User(content)),
                "assistant" => {
                    messages.push(ModelMessage::Assistant { text: content, calls: Vec::new() });
                }
                _ => {
                    return Err(failed(format!(
                        "a message has the role `{role:.80}`: write `system`, `user` or `assistant`"
                    )));
                }
            }
        }
        messages.extend(setting(with, "prompt").map(ModelMessage::User));
        if !matches!(messages.last(), Some(ModelMessage::User(_))) {
            return Err(failed("the last of `messages` has to be the user's".to_owned()));
        }
        let system = (!system.is_empty()).then(|| system.join("\n\n"));
        Ok(Self { system, messages, models: models(with)? })
    }
}

fn no_messages(error: serde_json::Error) -> ToolError {
    failed(format!("`messages` is a list with `role` and `content`: {error}"))
}

/// Models by the names that the daemon has for them, each with its settings.
pub(super) fn models(with: &Map<String, Value>) -> Result<Vec<NamedModel>, ToolError> {
    let provider = setting(with, "provider");
    let named = |provider: Option<String>, model: Option<String>| match (provider, model) {
        (Some(provider), Some(model)) => format!("{provider}/{model}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "default".to_owned(),
    };
    let Some(Value::Array(list)) = with.get("model") else {
        return Ok(vec![(named(provider, setting(with, "model")), with.clone())]);
    };
    if list.is_empty() || list.len() > MOST_MODELS {
        return Err(failed(format!("`model` lists {}, at most {MOST_MODELS} may be", list.len())));
    }
    let entry = |entry: &Value| {
        let Value::Object(own) = entry else {
            return Err(failed("`model` lists mappings with `provider` and `name`".to_owned()));
        };
        let mut all = with.clone();
        all.extend(own.clone());
        Ok((named(setting(&all, "provider"), setting(own, "name")), all))
    };
    list.iter().map(entry).collect()
}

/// Number of a setting, which may be a text.
fn number<N: std::str::FromStr>(
    with: &Map<String, Value>,
    key: &str,
) -> Result<Option<N>, ToolError> {
    let Some(text) = with.get(key).filter(|value| !value.is_null()).map(value_text) else {
        return Ok(None);
    };
    let parsed = text.trim().parse().ok();
    parsed.map(Some).ok_or_else(|| failed(format!("`{key}` is not a number: {text:.80}")))
}

/// Text of an answer that came to its end.
///
/// # Errors
/// `step_failed` for one that was cut short or withheld.
pub(super) fn whole(answer: ModelAnswer) -> Result<String, ToolError> {
    match answer.stop {
        ModelStop::MaxTokens => {
            Err(failed(format!("the answer of {} was cut short", answer.source))
                .next("raise `max_tokens`, or ask for less"))
        }
        ModelStop::Refused => Err(failed(format!("{} withheld its answer", answer.source))),
        _ => Ok(answer.text),
    }
}
