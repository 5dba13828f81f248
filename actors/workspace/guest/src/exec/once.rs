//! Commands under keys: each is started once, goes on when its connection ends, and is told of again to whoever asks
//! for its key.
//!
//! They are in the memory of this daemon alone ([`super::kept`]): with it, and with its machine, a command that it runs
//! ends as well, and nobody can say how.

use std::sync::Arc;

use bytes::Bytes;
use hivekeep_protocol::{
    GuestCode, GuestError, RunCommand, RunCommandReply, RunOnce, Stream, encode, limits,
};

use super::kept::{KeyedRun, forget};
use super::{OutputSink, beside};
use crate::agent::Agent;
use crate::session::call::{RequestContext, cancelled};

/// Answers [`RunOnce`].
///
/// # Errors
/// `UnknownRun`, `JobConflict` for a key of another command, `Busy`, `Invalid`, or as [`super::run`].
pub async fn run(cx: &RequestContext, asked: RunOnce) -> Result<RunCommandReply, GuestError> {
    let run = find_or_start(&cx.agent, asked)?;
    tokio::select! {
        () = run.over.cancelled() => {}
        () = cx.cancel.cancelled() => {
            if cx.ordered.is_cancelled() {
                run.stop.cancel();
                run.over.cancelled().await;
            }
            return Err(cancelled());
        }
    }
    for (stream, bytes) in [Stream::Stdout, Stream::Stderr].into_iter().zip(run.output()) {
        cx.send(stream, Bytes::from(bytes)).await?;
    }
    run.end().unwrap_or_else(|| Err(cancelled()))
}

fn find_or_start(agent: &Arc<Agent>, asked: RunOnce) -> Result<Arc<KeyedRun>, GuestError> {
    let RunOnce { key, command, tail } = asked;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
    if !(1..=limits::MAX_RUN_KEY_BYTES).contains(&key.len()) || !key.bytes().all(legal) {
        return Err(GuestError::new(
            GuestCode::Invalid,
            "the key is not 1 to 128 letters, digits or `_./-`",
        ));
    }
    let mut runs = agent.runs.lock();
    forget(&mut runs);
    let known = runs.get(&key).cloned();
    let Some(command) = command else {
        let why = "nothing is known of a command of that key";
        return known.ok_or_else(|| GuestError::new(GuestCode::UnknownRun, why));
    };
    let asked = encode(&(&command, tail));
    let asked = asked.map_err(|error| GuestError::new(GuestCode::TooLarge, error.to_string()))?;
    let asked = blake3::hash(&asked);
    if let Some(known) = known {
        let why = "another command was run under the key; give each its own";
        let same = known.asked == asked;
        return same.then_some(known).ok_or_else(|| GuestError::new(GuestCode::JobConflict, why));
    }
    let most = limits::KEYED_RUNS_AT_ONCE;
    if runs.values().filter(|run| run.end().is_none()).count() >= most {
        return Err(GuestError::new(
            GuestCode::Busy,
            format!("{most} commands under keys run; wait for one to end"),
        ));
    }
    let run = Arc::new(KeyedRun::new(asked, &command, tail));
    runs.insert(key, run.clone());
    tokio::spawn(to_its_end(agent.clone(), run.clone(), command));
    Ok(run)
}

/// Runs a command to its end, whoever asks for it.
async fn to_its_end(agent: Arc<Agent>, run: Arc<KeyedRun>, command: RunCommand) {
    // In a task of its own, so that a defect is its end as well.
    let working = {
        let (agent, run) = (agent.clone(), run.clone());
        // All output is read; what is kept of it depends on what is kept already.
        let command = RunCommand { max_output_bytes: u64::MAX, ..command };
        tokio::spawn(async move {
            let sink = OutputSink::Kept(&agent, &run);
            beside(&sink, command, |_| std::future::pending()).await
        })
    };
    let failed = |_| Err(GuestError::new(GuestCode::Internal, "the guest daemon failed on it"));
    agent.runs.ended(&run, working.await.unwrap_or_else(failed));
}
