//! Error type of every tool call, the same over every door, and the catalogue of its codes: each is a
//! constant that says what it means, why it usually happens and what to do, so that documents and the
//! command line can explain it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::codes;

/// A typed refusal or failure, the same over every door.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ToolError {
    /// Stable, snake_case; what programs act on.
    pub code: Cow<'static, str>,
    /// Account of the failure, for people and models.
    pub message: String,
    /// Next step of the caller, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// Which layer said no.
    pub layer: Layer,
    /// The same call may succeed later without a change.
    pub retryable: bool,
    /// When a retry makes sense, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Facts to act on, such as the limit that was hit.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Box<Map<String, Value>>,
}

/// Where a call was refused or failed, in the order in which a call passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The front door: framing, credentials.
    Door,
    /// The caller's session.
    Session,
    /// Finding the tool.
    Resolve,
    /// The policy's decision.
    Policy,
    /// A person's approval.
    Approval,
    /// Validation of the input.
    Schema,
    /// Token buckets.
    Rate,
    /// The session's reserves.
    Quota,
    /// The target's queue.
    Admission,
    /// The actor that serves the tool.
    Actor,
    /// The hypervisor or sandbox.
    Machine,
    /// The way into the guest.
    Link,
    /// The guest itself.
    Guest,
    /// The journal.
    Store,
    /// Limits on the result.
    Result,
}

impl ToolError {
    /// A final refusal.
    pub fn new(layer: Layer, code: &ErrorCode, message: impl Into<String>) -> Self {
        Self::foreign(layer, code.name, message)
    }

    /// A final refusal with a code of foreign origin: of a guest of another version, or of a test.
    pub fn foreign(
        layer: Layer,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            next_step: None,
            layer,
            retryable: false,
            retry_after_ms: None,
            details: Box::default(),
        }
    }

    /// Whether it has this code, also when it was read from the wire or a journal.
    pub fn is(&self, code: &ErrorCode) -> bool {
        self.code == code.name
    }

    /// Whether it has one of these codes.
    pub fn is_any(&self, codes: &[&ErrorCode]) -> bool {
        codes.iter().any(|code| self.is(code))
    }

    /// Names the next step.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next_step = Some(step.into());
        self
    }

    /// Marks the error as transient.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Marks the error as transient and says after which time to try again.
    #[must_use]
    pub fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.retry_after_ms = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1));
        self.retryable()
    }

    /// Adds a fact to act on.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Reports that nothing has this name, which the message shows as far as 80 characters.
    pub fn not_found(layer: Layer, code: &ErrorCode, what: &str, name: &str) -> Self {
        let shown: String = name.chars().take(80).collect();
        Self::new(layer, code, format!("there is no {what} `{shown}`"))
    }

    /// Reports that the workspace that was named is not the caller's. Whoever knows its id alone is not told its name.
    pub fn not_owner() -> Self {
        Self::new(Layer::Policy, codes::NOT_OWNER, "the workspace is not this session's")
            .next("workspace_adopt takes over a workspace whose session is gone")
    }

    /// Rejects input that is well-formed JSON but makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Layer::Actor, codes::INVALID_INPUT, message)
    }

    /// Reports a defect of the daemon itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Layer::Actor, codes::INTERNAL, message)
            .next("look at `hivekeep logs`; this is a defect worth reporting")
    }

    /// Reports that the caller cancelled the call.
    pub fn cancelled() -> Self {
        Self::new(Layer::Actor, codes::CANCELLED, "the call was cancelled")
    }

    /// Reports that an earlier attempt at the call may have had its effect, and that nothing was begun now.
    pub fn effect_unknown(layer: Layer) -> Self {
        let message =
            "the daemon ended during an earlier attempt, and what came of that is not known";
        Self::new(layer, codes::EFFECT_UNKNOWN, message)
            .next("look what took effect, then make the call anew if it is still wanted")
    }

    /// Refuses what takes the whole daemon while it is being started.
    pub fn daemon_starting() -> Self {
        Self::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, "the daemon is still starting")
            .retry_after(std::time::Duration::from_millis(200))
    }

    /// Refuses new work: an ordered stop of the daemon is under way.
    pub fn daemon_stopping() -> Self {
        Self::new(Layer::Actor, codes::DAEMON_STOPPING, "the daemon is being stopped")
            .next("repeat it when the daemon is back; nothing was done")
            .retryable()
    }

    /// Reports that the call's own deadline passed.
    pub fn deadline(layer: Layer, after_secs: u64) -> Self {
        Self::new(layer, codes::DEADLINE_EXCEEDED, format!("no answer within {after_secs} s"))
            .detail("deadline_secs", after_secs)
            .retryable()
    }

    /// Message and next step as one text, for clients that show only text.
    pub fn to_text(&self) -> String {
        let next = self.next_step.as_ref().map(|step| format!(". Next: {step}"));
        let wait = self.retry_after_ms.map(|wait| format!(" (retry_after_ms: {wait})"));
        let (next, wait) = (next.unwrap_or_default(), wait.unwrap_or_default());
        format!("{}: {}{next}{wait}", self.code, self.message)
    }
}

/// A code of [`ToolError`](crate::ToolError)s. Declared by [`codes!`](macro@crate::codes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// Stable name in snake_case, for programs to act on.
    pub name: &'static str,
    /// Meaning, in one sentence.
    pub meaning: &'static str,
    /// Usual cause, in one or two sentences.
    pub cause: &'static str,
    /// Next step for whoever meets the error.
    pub next_step: &'static str,
}

/// Declares error codes as constants of the module that it stands in, and their list `ALL`. The
/// doc comment is the meaning.
///
/// ```
/// hivekeep_kernel::codes! {
///     /// The script does not exist.
///     SCRIPT_NOT_FOUND = "script_not_found" {
///         cause: "The name is wrong, or the script was deleted.",
///         next: "`script_list` shows the scripts.",
///     }
/// }
/// assert_eq!(ALL[0].meaning, "The script does not exist.");
/// ```
#[macro_export]
macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $code:ident = $name:literal {
        cause: $cause:literal, next: $next:literal $(,)?
    })+) => {
        $(
            $(#[doc = $meaning])+
            pub const $code: &$crate::ErrorCode = &$crate::ErrorCode {
                name: $name,
                meaning: concat!($($meaning),+).trim_ascii(),
                cause: $cause,
                next_step: $next,
            };
        )+
        /// All codes of this module, in the order of their declaration.
        pub const ALL: &[&$crate::ErrorCode] = &[$($code),+];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_of_its_code_and_says_what_comes_next() {
        let missing =
            ToolError::not_found(Layer::Store, codes::NAME_TAKEN, "file", &"x".repeat(90));
        assert_eq!(missing.message, format!("there is no file `{}`", "x".repeat(80)));
        assert!(missing.is(codes::NAME_TAKEN) && !missing.is(codes::INTERNAL));
        assert!(missing.is_any(&[codes::INTERNAL, codes::NAME_TAKEN]));
        assert!(!missing.is_any(&[codes::INTERNAL]) && !missing.is_any(&[]));
        assert_eq!(missing.to_text(), format!("name_taken: {}", missing.message));
        for (error, code, retryable) in [
            (ToolError::not_owner(), codes::NOT_OWNER, false),
            (ToolError::invalid("x"), codes::INVALID_INPUT, false),
            (ToolError::internal("x"), codes::INTERNAL, false),
            (ToolError::cancelled(), codes::CANCELLED, false),
            (ToolError::daemon_starting(), codes::ACTOR_UNAVAILABLE, true),
            (ToolError::daemon_stopping(), codes::DAEMON_STOPPING, true),
            (ToolError::deadline(Layer::Guest, 3), codes::DEADLINE_EXCEEDED, true),
        ] {
            assert!(error.is(code) && error.retryable == retryable, "{error:?}");
        }
        assert_eq!(ToolError::deadline(Layer::Guest, 3).details["deadline_secs"], 3);
    }

    #[test]
    fn an_error_reads_back_from_json_whole() {
        let error = ToolError::new(Layer::Rate, codes::RATE_LIMITED, "too fast")
            .next("wait")
            .retry_after(std::time::Duration::from_micros(10))
            .detail("burst", 3);
        let json = serde_json::to_value(&error).expect("serialises");
        assert_eq!(json["layer"], "rate");
        assert_eq!(json["retry_after_ms"], 1);
        assert_eq!(serde_json::from_value::<ToolError>(json).expect("reads back"), error);
        assert_eq!(error.to_text(), "rate_limited: too fast. Next: wait (retry_after_ms: 1)");
    }
}
