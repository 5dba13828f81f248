//! Long poll: a question that waits in the guest until there is an answer to tell, within a call's time.

use std::time::Duration;

use hivekeep_kernel::CallCx;
use hivekeep_link::{CallTerms, Link, LinkError};
use hivekeep_protocol::GuestRequest;
use tokio::time::Instant;

/// Part of a call's time that is left for the answer after a wait.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// Asks by `waiting`, given the milliseconds to wait; without a wait, and when so many wait in the guest
/// that this one had no turn, by `at_once`.
///
/// # Errors
/// As [`Link::ask`].
pub(crate) async fn ask_after_a_wait<W, N>(
    cx: &CallCx,
    link: &Link,
    wait: Duration,
    waiting: impl FnOnce(u64) -> W,
    at_once: impl FnOnce() -> N,
) -> Result<W::Reply, LinkError>
where
    W: GuestRequest,
    N: GuestRequest<Reply = W::Reply>,
{
    let terms = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
    let wait = wait.min(cx.remaining().saturating_sub(ANSWER_MARGIN));
    if wait.is_zero() {
        return link.ask(at_once(), terms).await;
    }
    let patience = CallTerms { deadline: Instant::now() + wait + ANSWER_MARGIN, ..terms.clone() };
    let wait_ms = wait.as_millis().try_into().unwrap_or(u64::MAX);
    match link.ask_waiting(waiting(wait_ms), patience).await {
        Err(LinkError::Deadline(_)) if Instant::now() < cx.deadline => {
            link.ask(at_once(), terms).await
        }
        answered => answered,
    }
}
