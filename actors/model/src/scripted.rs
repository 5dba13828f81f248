//! Test double of a provider: replies from a file. It is no model, is used only where it is configured, and
//! each answer and record says `scripted`.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use hivekeep_ports::{ModelDelta, ModelMessage, ModelRequest, ModelStop, ModelToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;

use crate::{
    failure::{FailureKind, WireFailure},
    wire::{Sink, WireEnd, WireVectors},
};

/// Largest script.
const SCRIPT_BYTES: u64 = 4 * 1024 * 1024;
/// Length of vectors where the model has none configured.
const DIMENSION: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    replies: Vec<ScriptReply>,
}

/// A reply. Those without `when` are given once each, in their order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptReply {
    /// Text that the last message has to contain; then it is given each time.
    when: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<ScriptCall>,
    /// `end`, `max_tokens` or `refused`; calls end with `tool_calls`.
    stop: Option<ScriptStop>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    /// Pause before each word.
    #[serde(default)]
    delay_ms: u64,
    /// A failure in place of a reply.
    error: Option<ScriptError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptCall {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptStop {
    End,
    MaxTokens,
    Refused,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptError {
    Auth,
    Invalid,
    RateLimited,
    Unavailable,
}

/// A scripted provider. Its place in the file is forgotten with the daemon.
#[derive(Debug, Default)]
pub(crate) struct Scripted {
    given: AtomicUsize,
}

impl Scripted {
    /// Gives the reply that the script has for a request.
    ///
    /// # Errors
    /// `Script` when there is none; the failure that the script asks for.
    pub(crate) async fn generate(
        &self,
        script: &Path,
        request: &ModelRequest,
        sink: &mut Sink,
    ) -> Result<WireEnd, WireFailure> {
        let reply = self.reply(read(script).await?, request)?;
        if let Some(error) = reply.error {
            return Err(WireFailure::new(kind(error), "the script says so"));
        }
        for word in reply.text.split_inclusive(' ') {
            if reply.delay_ms > 0 {
                let pause = tokio::time::sleep(Duration::from_millis(reply.delay_ms));
                tokio::select! {
                    () = pause => {}
                    () = sink.gone() => return Err(WireFailure::cancelled()),
                }
            }
            sink.take(ModelDelta::Text(word.to_owned())).await?;
        }
        let calls = !reply.calls.is_empty();
        for (nth, ScriptCall { name, arguments }) in (1..).zip(reply.calls) {
            let (id, arguments) = (format!("call_{nth}"), Value::Object(arguments));
            let call = ModelToolCall { id, name, arguments, signature: None };
            sink.take(ModelDelta::ToolCall(call)).await?;
        }
        let stop = match reply.stop {
            _ if calls => ModelStop::ToolCalls,
            None | Some(ScriptStop::End) => ModelStop::End,
            Some(ScriptStop::MaxTokens) => ModelStop::MaxTokens,
            Some(ScriptStop::Refused) => ModelStop::Refused,
        };
        let (input_tokens, output_tokens) = (reply.input_tokens, reply.output_tokens);
        Ok(WireEnd { stop: Some(stop), input_tokens, output_tokens })
    }

    fn reply(&self, script: Script, request: &ModelRequest) -> Result<ScriptReply, WireFailure> {
        let last = match request.messages.last() {
            Some(ModelMessage::User(text)) => text,
            Some(ModelMessage::ToolResult { content, .. }) => content,
            _ => "",
        };
        let (named, in_order): (Vec<_>, Vec<_>) =
            script.replies.into_iter().partition(|reply| reply.when.is_some());
        let fits = |reply: &ScriptReply| reply.when.as_ref().is_some_and(|it| last.contains(it));
        if let Some(reply) = named.into_iter().find(fits) {
            return Ok(reply);
        }
        let nth = self.given.fetch_add(1, Relaxed);
        let used_up = || WireFailure::new(FailureKind::Script, "its script has no reply left");
        in_order.into_iter().nth(nth).ok_or_else(used_up)
    }
}

/// Vectors by words: texts with words in common are near each other. No model made them.
pub(crate) fn vectors(dimension: Option<usize>, texts: &[String]) -> WireVectors {
    let dimension = dimension.unwrap_or(DIMENSION);
    let one = |text: &String| {
        let mut vector = vec![0_f32; dimension];
        for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let hash = word.to_lowercase().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            vector[usize::try_from(hash % dimension as u64).unwrap_or_default()] += 1.0;
        }
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|value| *value /= length);
        }
        vector
    };
    (texts.iter().map(one).collect(), None)
}

async fn read(path: &Path) -> Result<Script, WireFailure> {
    let wrong = |why: String| {
        WireFailure::new(FailureKind::Script, format!("{} cannot be used: {why}", path.display()))
    };
    let file = tokio::fs::File::open(path).await.map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(SCRIPT_BYTES).read_to_string(&mut text).await;
    read.map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn kind(error: ScriptError) -> FailureKind {
    match error {
        ScriptError::Auth => FailureKind::Auth,
        ScriptError::Invalid => FailureKind::Invalid,
        ScriptError::RateLimited => FailureKind::RateLimited,
        ScriptError::Unavailable => FailureKind::Unavailable,
    }
}
