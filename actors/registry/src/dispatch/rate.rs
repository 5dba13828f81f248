//! The token buckets of the session and of its user.
//!
//! Taken after validation, so that a mistake costs nothing, and before
//! admission: a call that is then told `busy` has spent its tokens.

use std::time::Duration;

use hivekeep_kernel::{Layer, RateClass, ToolError};
use serde_json::Value;

use crate::{
    ToolEntry, codes,
    sessions::{SessionShared, Slow, Whose},
};

pub(super) fn take_tokens(
    shared: &SessionShared,
    entry: &ToolEntry,
    args: &Value,
) -> Result<(), ToolError> {
    let spec = entry.spec;
    let tokens = (spec.weight)(args);
    let rate = spec.class(args);
    let class = class_name(rate);
    match shared.limiter.take(&shared.account.limiter, rate, tokens) {
        Ok(()) => Ok(()),
        Err(Slow::Wait(whose, wait)) => {
            let (of, message) = match whose {
                Whose::Session => ("session", format!("too many `{class}` calls in this session")),
                Whose::User => {
                    let user = shared.account.user;
                    ("user", format!("too many `{class}` calls in all sessions of {user} together"))
                }
            };
            Err(ToolError::new(Layer::Rate, codes::RATE_LIMITED, message)
                .next("wait for retry_after_ms, then try again")
                .retry_after(wait)
                .detail("of", of)
                .detail("class", class)
                .detail("tokens", tokens))
        }
        Err(Slow::Never { burst }) => {
            let message =
                format!("the call takes {tokens} tokens and the `{class}` bucket holds {burst}");
            Err(ToolError::new(Layer::Rate, codes::RATE_IMPOSSIBLE, message)
                .next(format!("split it into calls for at most {burst}"))
                .detail("class", class)
                .detail("tokens", tokens)
                .detail("burst", burst))
        }
    }
}

/// Refuses a call beyond those that its security context allows at a time.
pub(super) fn within(shared: &SessionShared, most: Option<u32>) -> Result<(), ToolError> {
    let running = shared.calls();
    match most {
        // The call itself is one of them.
        Some(most) if running > most => {
            let message = format!("the session's security context allows {most} calls at a time");
            Err(ToolError::new(Layer::Rate, codes::BUSY, message)
                .next("wait for a running call to end, then try again")
                .retry_after(Duration::from_secs(1))
                .detail("running", running - 1)
                .detail("max_calls", most))
        }
        _ => Ok(()),
    }
}

fn class_name(class: RateClass) -> &'static str {
    match class {
        RateClass::Create => "create",
        RateClass::Exec => "exec",
        RateClass::File => "file",
        RateClass::Default => "default",
    }
}
