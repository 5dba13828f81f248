//! Tests of the link against a scripted guest. Times are long where nothing should take time; no
//! test asserts how long something took.

mod calls;
mod connecting;
mod data;
mod hostile;
mod keeping;

use std::time::Duration;

use hivekeep_protocol::{Argv, Exec, ToGuest, Welcome};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{
    Link, LinkError, LinkOptions, LinkToken, Wait,
    fake::{Act, FakeCarrier, FakeGuest, Seen},
};

fn token() -> LinkToken {
    LinkToken::from_bytes([7; 32])
}

fn wait() -> Wait {
    Wait::at_most(Duration::from_secs(60))
}

async fn connect(carrier: &FakeCarrier) -> Result<(Link, Welcome), LinkError> {
    let cancel = CancellationToken::new();
    Link::connect_over(carrier, &token(), &LinkOptions::default(), &cancel).await
}

/// Makes a link to a guest that acts by `script`, and the receiver of its observations after the
/// hello.
async fn link_to(
    script: impl Fn(&ToGuest) -> Act + Send + Sync + 'static,
) -> (Link, UnboundedReceiver<Seen>) {
    let (guest, mut seen) = FakeGuest::new(script);
    let (link, _) = connect(&guest.carrier()).await.unwrap();
    assert_eq!(seen.recv().await, Some(Seen::Hello([7; 32])));
    (link, seen)
}

fn shell(script: &str, max_output_bytes: u64) -> Exec {
    Exec {
        argv: Argv::Shell(script.into()),
        env: vec![],
        workdir: None,
        timeout_ms: 60_000,
        max_output_bytes,
    }
}

/// Next cancel that the guest sees.
async fn cancel_seen(seen: &mut UnboundedReceiver<Seen>) -> u32 {
    loop {
        match seen.recv().await {
            Some(Seen::Cancel(id)) => return id,
            Some(_) => {}
            None => panic!("the guest has gone"),
        }
    }
}
