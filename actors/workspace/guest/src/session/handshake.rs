//! Preamble, hello, welcome.

use std::time::Duration;

use hivekeep_protocol::{
    Frame, FrameKind, GuestWelcome, HelloRefusal, HostHello, PROTOCOL_VERSION, decode, encode,
    sync_preamble,
};
use subtle::ConstantTimeEq;
use tokio::io::AsyncRead;
use tokio::time::timeout;

use super::StreamKind;
use super::outbox::Outbox;
use super::source::{Broken, Source};
use crate::agent::Agent;

/// A peer that has not proved itself by then is dropped.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) async fn accept<R: AsyncRead + Unpin>(
    agent: &Agent,
    source: &mut Source<R>,
    outbox: &Outbox,
) -> Result<(), Broken> {
    let late = |_| Broken::Rubbish("no handshake in time".into());
    match source.stream() {
        StreamKind::Endless => loop {
            let nonce = source.preamble().await?;
            match timeout(DEADLINE, greet(agent, source, outbox, nonce)).await {
                // The host repeats its preamble until it hears the echo, so the rest
                // of them stand before its hello.
                Ok(Err(Broken::Anew | Broken::Rubbish(_))) | Err(_) => {}
                Ok(done) => return done,
            }
        },
        StreamKind::Connection => {
            let shaking = async {
                let nonce = source.preamble().await?;
                greet(agent, source, outbox, nonce).await
            };
            timeout(DEADLINE, shaking).await.map_err(late)?
        }
    }
}

async fn greet<R: AsyncRead + Unpin>(
    agent: &Agent,
    source: &mut Source<R>,
    outbox: &Outbox,
    nonce: [u8; 16],
) -> Result<(), Broken> {
    let gone = |_| Broken::Closed;
    outbox.send(sync_preamble(nonce).to_vec()).await.map_err(gone)?;
    let frame = source.frame().await?;
    if frame.kind != FrameKind::Hello {
        return Err(Broken::Rubbish(format!("{:?} frame before the hello", frame.kind)));
    }
    let hello: HostHello =
        decode(&frame.payload).map_err(|error| Broken::Rubbish(format!("hello: {error}")))?;
    let answer = judge(agent, &hello);
    let payload = encode(&answer).map_err(|error| Broken::Rubbish(error.to_string()))?;
    let frame = Frame { kind: FrameKind::Welcome, id: 0, payload };
    outbox.send(frame.to_bytes()).await.map_err(gone)?;
    answer.map(drop).map_err(|refusal| {
        crate::say!("link: refused: {refusal}");
        Broken::Rubbish("refused".into())
    })
}

/// The token is judged first: a stranger learns nothing about versions.
fn judge(agent: &Agent, hello: &HostHello) -> Result<GuestWelcome, HelloRefusal> {
    let hash = blake3::hash(&hello.token);
    if !bool::from(hash.as_bytes().ct_eq(&agent.persona.token_hash())) {
        return Err(HelloRefusal::Token);
    }
    if !(hello.min_version..=hello.max_version).contains(&PROTOCOL_VERSION) {
        let (min_version, max_version) = (PROTOCOL_VERSION, PROTOCOL_VERSION);
        return Err(HelloRefusal::Version { min_version, max_version });
    }
    Ok(GuestWelcome {
        version: PROTOCOL_VERSION,
        guest_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: agent.persona.instance_id(),
        daemon_starts: agent.identity.daemon_starts,
        containment: agent.contain.kind(),
    })
}
