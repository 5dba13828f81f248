//! Many commands, one after the other, beside others that are killed, cancelled or leave processes:
//! no supervisor of a command is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hivekeep_protocol::*;

use crate::client::{Host, shell};
use crate::guest::{Guest, ways};

/// Makes it a night's.
const STORM: &str = "TEST_HIVEKEEP_STORM";
const SHORT: u32 = 500;
const FULL: u32 = 50_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_commands() {
    for way in ways() {
        let guest = Guest::start(way);
        blow(Host::to(&guest).await).await;
        assert_eq!(guest.zombies(), 0, "{way:?}");
    }
}

pub async fn blow(host: Host) {
    let (host, calm) = (Arc::new(host), Arc::new(AtomicBool::new(false)));
    let beside = [
        tokio::spawn(leavers(host.clone(), calm.clone())),
        tokio::spawn(killed(host.clone(), calm.clone())),
    ];
    let commands = if std::env::var_os(STORM).is_some() { FULL } else { SHORT };
    for number in 0..commands {
        let output = host.sh("echo hi; ls / >/dev/null").await;
        let reply = output.reply.unwrap_or_else(|error| panic!("command {number}: {error:?}"));
        assert_eq!((reply.exit, reply.killed_stragglers), (Exit::Code(0), 0), "{number}");
        assert_eq!(output.stdout, b"hi\n", "{number}");
    }
    calm.store(true, Ordering::Relaxed);
    for ended in beside {
        ended.await.expect("each was answered as it should be");
    }
}

async fn leavers(host: Arc<Host>, calm: Arc<AtomicBool>) {
    while !calm.load(Ordering::Relaxed) {
        let left = host.sh("sleep 1000 & echo on").await;
        assert!(left.reply.expect("it ran").killed_stragglers <= 1);
        let gone = host.sh("(sleep 0.001 &) ; exit 3").await;
        assert_eq!(gone.reply.expect("it ran").exit, Exit::Code(3));
    }
}

async fn killed(host: Arc<Host>, calm: Arc<AtomicBool>) {
    while !calm.load(Ordering::Relaxed) {
        let late = RunCommand { timeout_ms: 5, ..shell("sleep 1000 & sleep 1000") };
        assert!(host.exec(late).await.reply.expect("it ran").timed_out);
        let mut call = host.call(shell("echo hi").into_wire()).await;
        call.cancel().await;
        if let Err(error) = call.reply().await {
            assert_eq!(error.code, GuestCode::Cancelled, "{error:?}");
        }
    }
}
