//! Throughput of the link over a Unix socket, beside raw bytes over a Unix
//! socket. With `TEST_HIVEKEEP_GUEST` the guest is the real daemon, else the
//! scripted one in this process. Prints one JSON object.
//!
//! `cargo run --release -p hivekeep-link --features test-util --example link_bench`

use std::{
    error::Error,
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use hivekeep_link::{
    CallTerms, Endpoint, Link, LinkOptions, LinkToken,
    fake::{FakeGuest, RequestBehaviour, exec_done, obliging},
};
use hivekeep_protocol::{
    Argv, FromGuest, Ping, RunCommand, Stream, ToGuest, WriteFile, WriteFileReply,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};
use tokio_util::sync::CancellationToken;

const BYTES: u64 = 256 * 1024 * 1024;
const ROUNDS: usize = 5;
const PINGS: u32 = 5_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Guest daemon, ended with the benchmark.
struct Daemon(Option<Child>);

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn wait() -> CallTerms {
    CallTerms::at_most(Duration::from_secs(600))
}

fn script(request: &ToGuest) -> RequestBehaviour {
    match request {
        ToGuest::RunCommand(_) => RequestBehaviour::Send(
            vec![(Stream::Stdout, vec![0; BYTES as usize])],
            Ok(FromGuest::RunCommand(exec_done(BYTES, 0))),
        ),
        ToGuest::ReadFile(_) => RequestBehaviour::Content(BYTES),
        ToGuest::WriteFile(write) => {
            RequestBehaviour::Receive(Ok(FromGuest::WriteFile(WriteFileReply {
                bytes: write.size_bytes,
                replaced: false,
                mode: 0o644,
            })))
        }
        other => obliging(other),
    }
}

/// Throughput in MB/s of plain 64 KiB writes and 256 KiB reads.
async fn raw(folder: &Path) -> Outcome<f64> {
    let path = folder.join("raw.sock");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    let began = Instant::now();
    let writing = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let chunk = vec![0u8; 64 * 1024];
        for _ in 0..BYTES / chunk.len() as u64 {
            stream.write_all(&chunk).await?;
        }
        stream.shutdown().await
    });
    let mut stream = UnixStream::connect(&path).await?;
    let (mut buffer, mut total) = (vec![0u8; 256 * 1024], 0);
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            len => total += len as u64,
        }
    }
    writing.await??;
    assert_eq!(total, BYTES);
    Ok(BYTES as f64 / 1e6 / began.elapsed().as_secs_f64())
}

async fn exec_output(link: &Link) -> Outcome<f64> {
    let request = RunCommand {
        argv: Argv::Shell(format!("head -c {BYTES} /dev/zero")),
        env: vec![],
        workdir: None,
        timeout_ms: 600_000,
        max_output_bytes: BYTES,
    };
    let began = Instant::now();
    let output = link.exec(request, wait(), |_, _| {}).await?;
    assert_eq!(output.stdout.bytes.len() as u64, BYTES);
    Ok(BYTES as f64 / 1e6 / began.elapsed().as_secs_f64())
}

async fn upload(link: &Link, path: &str) -> Outcome<f64> {
    let began = Instant::now();
    let source = tokio::io::repeat(0).take(BYTES);
    let write = WriteFile { path: path.to_owned(), mode: None, size_bytes: BYTES };
    link.upload(write, BYTES, source, wait(), |_| {}).await?;
    Ok(BYTES as f64 / 1e6 / began.elapsed().as_secs_f64())
}

async fn download(link: &Link, path: &str) -> Outcome<f64> {
    let began = Instant::now();
    link.download(path, 0, None, tokio::io::sink(), wait(), |_| {}).await?;
    Ok(BYTES as f64 / 1e6 / began.elapsed().as_secs_f64())
}

async fn ping_p50_us(link: &Link) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let began = Instant::now();
        link.ask(Ping { payload: vec![0; 16] }, wait()).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn main() -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("link_bench_{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let outcome = run(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    println!("{}", serde_json::to_string_pretty(&outcome?)?);
    Ok(())
}

async fn run(folder: &Path) -> Outcome<serde_json::Value> {
    let (token, uid) = (LinkToken::generate()?, rustix::process::getuid().as_raw());
    let path = folder.join("agent.sock");
    let binary = std::env::var_os("TEST_HIVEKEEP_GUEST");
    let _daemon = match &binary {
        None => {
            FakeGuest::new(script).0.listen(&path)?;
            Daemon(None)
        }
        Some(binary) => Daemon(Some(
            Command::new(binary)
                .args(["agent", "--token-hash", &token.hash_hex()])
                .args(["--peer-uid", &uid.to_string(), "--unix"])
                .arg(&path)
                .arg("--state-dir")
                .arg(folder.join("state"))
                .arg("--run-dir")
                .arg(folder.join("run"))
                .spawn()?,
        )),
    };
    let endpoint = Endpoint::Unix { path, peer_uid: uid };
    let cancel = CancellationToken::new();
    let (link, _) = Link::connect(&endpoint, &token, &LinkOptions::default(), &cancel).await?;
    let file = folder.join("file").to_str().ok_or("a temporary folder of plain name")?.to_owned();
    let (mut raws, mut execs, mut ups, mut downs) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        raws.push(raw(folder).await?);
        execs.push(exec_output(&link).await?);
        ups.push(upload(&link, &file).await?);
        downs.push(download(&link, &file).await?);
    }
    let raw = median(raws);
    let figure = |values| {
        let mb_per_s = median(values);
        json!({ "mb_per_s": mb_per_s.round(), "ratio": (mb_per_s / raw * 100.0).round() / 100.0 })
    };
    Ok(json!({
        "guest": if binary.is_some() { "real" } else { "scripted" },
        "raw_mb_per_s": raw.round(),
        "exec_output": figure(execs),
        "upload": figure(ups),
        "download": figure(downs),
        "ask_p50_us": ping_p50_us(&link).await?.round(),
    }))
}
