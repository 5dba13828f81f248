//! Connectivity check over this kernel's AF_VSOCK, where no host is needed: both ends are in one
//! machine, and the kernel's loopback carries the bytes. A test runs it in a workspace.
//!
//! `vsock_probe CID PORT TOKEN` prints `ok`, or the failure and exits with 1. TOKEN is 64
//! hexadecimal digits.
#![allow(clippy::print_stdout)]

use std::{error::Error, process::ExitCode, time::Duration};

use hivekeep_link::{CallTerms, Endpoint, Link, LinkOptions, LinkToken};
use hivekeep_protocol::{Argv, Exit, RunCommand, WriteFile};
use tokio_util::sync::CancellationToken;

const FILE: &str = "/tmp/vsock_probe.bytes";
const FILE_BYTES: u32 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn wait() -> CallTerms {
    CallTerms::at_most(Duration::from_secs(30))
}

async fn probe(endpoint: &Endpoint, token: &LinkToken) -> Outcome<()> {
    let cancel = CancellationToken::new();
    let (link, _welcome) = Link::connect(endpoint, token, &LinkOptions::default(), &cancel).await?;
    link.ping(wait()).await?;
    let order = RunCommand {
        argv: Argv::Shell("echo over vsock".to_owned()),
        env: Vec::new(),
        workdir: None,
        timeout_ms: 10_000,
        max_output_bytes: 1 << 10,
    };
    let output = link.exec(order, wait(), |_, _| {}).await?;
    let said = output.stdout.text().text;
    if output.done.exit != Exit::Code(0) || said != "over vsock\n" {
        return Err(format!("echo ended with {:?} and said {said:?}", output.done.exit).into());
    }
    // No byte repeats at the distance of a frame or a packet, so a lost or duplicated one shows.
    let sent: Vec<u8> =
        (0..FILE_BYTES).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let size_bytes = u64::from(FILE_BYTES);
    let write = WriteFile { path: FILE.to_owned(), mode: None, size_bytes };
    let written = link.upload(write, size_bytes, &sent[..], wait(), |_| {}).await?;
    let mut back = Vec::new();
    let limit = Some(2 * u64::from(FILE_BYTES));
    let read = link.download(FILE, 0, limit, &mut back, wait(), |_| {}).await?;
    if back != sent {
        let (up, down) = (written.bytes, read.sent_bytes);
        return Err(format!("{up} bytes up, {down} down, and they differ").into());
    }
    Ok(())
}

async fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cid, port, token] = &arguments[..] else {
        return Err("usage: vsock_probe CID PORT TOKEN".into());
    };
    let endpoint = Endpoint::Vsock { cid: cid.parse()?, port: port.parse()? };
    let token = LinkToken::from_bytes(*blake3::Hash::from_hex(token)?.as_bytes());
    probe(&endpoint, &token).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => {
            println!("ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
