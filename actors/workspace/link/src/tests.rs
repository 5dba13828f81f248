//! Tests of the link against a scripted guest. Times are long where nothing should take time; no
//! test asserts how long something took.

mod calls;
mod connecting;
mod data;
mod hostile;
mod streams;
mod supervisor;

use std::time::Duration;

use hivekeep_protocol::{Argv, GuestWelcome, RunCommand, ToGuest};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{
    CallTerms, Link, LinkError, LinkOptions, LinkToken,
    fake::{FakeCarrier, FakeGuest, Observation, RequestBehaviour},
};

fn token() -> LinkToken {
    LinkToken::from_bytes([7; 32])
}

fn wait() -> CallTerms {
    CallTerms::at_most(Duration::from_secs(60))
}

async fn connect(carrier: &FakeCarrier) -> Result<(Link, GuestWelcome), LinkError> {
    let cancel = CancellationToken::new();
    Link::connect_over(carrier, &token(), &LinkOptions::default(), &cancel).await
}

/// Makes a link to a guest that acts by `script`, and the receiver of its observations after the
/// hello.
async fn link_to(
    script: impl Fn(&ToGuest) -> RequestBehaviour + Send + Sync + 'static,
) -> (Link, UnboundedReceiver<Observation>) {
    let (guest, mut seen) = FakeGuest::new(script);
    let (link, _) = connect(&guest.carrier()).await.unwrap();
    assert_eq!(seen.recv().await, Some(Observation::Hello([7; 32])));
    (link, seen)
}

fn shell(script: &str, max_output_bytes: u64) -> RunCommand {
    RunCommand {
        argv: Argv::Shell(script.into()),
        env: vec![],
        workdir: None,
        timeout_ms: 60_000,
        max_output_bytes,
    }
}

/// Next cancel that the guest sees.
async fn cancel_seen(seen: &mut UnboundedReceiver<Observation>) -> u32 {
    loop {
        match seen.recv().await {
            Some(Observation::Cancel(id)) => return id,
            Some(_) => {}
            None => panic!("the guest has gone"),
        }
    }
}
