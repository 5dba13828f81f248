//! Benchmark of group commit: durable appends per second of many callers through the journal,
//! against one writer that flushes each append.
//!
//! `cargo run --release -p hivekeep-baselines --bin journal-bench [DIR]`
//!
//! With `--one COUNT` instead: the median time of that many durable appends in sequence by the
//! database alone, a lower bound for a single append. With `--loop COUNT`: the rate of as many by
//! one caller of the journal.
//!
//! Prints one JSON object. The baseline is given twice: with the database's own flush alone, and
//! with the `fdatasync` that the journal adds to it.
#![allow(clippy::print_stdout, reason = "the output is the point")]

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use hivekeep_store::{Error, Journal, JournalStats, Options, StreamId};

const WRITERS: usize = 64;
const PAYLOAD_BYTES: usize = 200;
const RUN: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = || std::env::args().nth(2).unwrap_or_default().parse();
    match std::env::args().nth(1).as_deref() {
        Some("--one") => return one_by_one(count()?),
        Some("--loop") => return tokio::runtime::Runtime::new()?.block_on(in_loop(count()?)),
        _ => {}
    }
    let base = match std::env::args().nth(1) {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let flush_only = baseline(&base.path().join("flush"), false)?;
    let flush_and_sync = baseline(&base.path().join("sync"), true)?;
    let (journal, stats) = tokio::runtime::Runtime::new()?.block_on(grouped(base.path()))?;
    let head_only = head_writes(&base.path().join("head"))?;
    let report = serde_json::json!({
        "payload_bytes": PAYLOAD_BYTES,
        "journal": {
            "writers": WRITERS,
            "durable_appends_per_sec": journal,
            "mean_batch": stats.mean_batch,
            "last_commit_ms": stats.last_commit_ms,
        },
        "one_flush_per_append": { "writers": 1, "appends_per_sec": flush_only },
        "one_flush_and_fdatasync_per_append": { "writers": 1, "appends_per_sec": flush_and_sync },
        "one_head_write_ms": 1000.0 / head_only,
        "ratio": journal / flush_only,
        "ratio_to_durable": journal / flush_and_sync,
    });
    println!("{report:#}");
    Ok(())
}

async fn grouped(base: &Path) -> Result<(f64, JournalStats), Error> {
    let options = Options::at(base.join("journal"));
    let open = tokio::task::spawn_blocking(move || Journal::open(options));
    let (journal, _) = open.await.expect("opening does not panic")?;
    let began = Instant::now();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(journal.clone(), writer, began))).collect();
    let mut total = 0;
    for writer in writers {
        total += writer.await.expect("a writer does not panic")?;
    }
    let per_sec = f64::from(total) / began.elapsed().as_secs_f64();
    let stats = journal.stats();
    journal.close().await;
    Ok((per_sec, stats))
}

async fn write(journal: Journal, writer: usize, began: Instant) -> Result<u32, Error> {
    let stream = StreamId::new("bench", &writer.to_string())?;
    let mut count = 0;
    while began.elapsed() < RUN {
        journal.append(&stream, vec![vec![writer as u8; PAYLOAD_BYTES]]).await?;
        count += 1;
    }
    Ok(count)
}

async fn in_loop(count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let base = tempfile::tempdir()?;
    let options = Options::at(base.path().join("journal"));
    let (journal, _) = tokio::task::spawn_blocking(move || Journal::open(options)).await??;
    let (stream, began) = (StreamId::new("bench", "0")?, Instant::now());
    for _ in 0..count {
        journal.append(&stream, vec![vec![7; PAYLOAD_BYTES]]).await?;
    }
    let per_sec = count as f64 / began.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "appends_per_sec": per_sec }));
    journal.close().await;
    Ok(())
}

fn one_by_one(count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let base = tempfile::tempdir()?;
    let (db, log) = database(base.path())?;
    let mut taken = Vec::new();
    for key in 0..count {
        let began = Instant::now();
        db.insert(key.to_be_bytes(), vec![7; PAYLOAD_BYTES])?;
        db.flush()?;
        log.sync_data()?;
        taken.push(began.elapsed());
    }
    taken.sort_unstable();
    let median = taken.get(taken.len() / 2).ok_or("no appends were asked for")?;
    println!("{}", serde_json::json!({ "durable_append_p50_us": median.as_secs_f64() * 1e6 }));
    Ok(())
}

fn database(dir: &Path) -> Result<(sled::Db, File), Box<dyn std::error::Error>> {
    let config = sled::Config::new().path(dir).cache_capacity(64 * 1024 * 1024);
    let db = config.flush_every_ms(None).open()?;
    Ok((db, File::open(dir.join("db"))?))
}

fn baseline(dir: &Path, sync: bool) -> Result<f64, Box<dyn std::error::Error>> {
    let (db, log) = database(dir)?;
    let began = Instant::now();
    let mut count = 0u64;
    while began.elapsed() < RUN {
        db.insert(count.to_be_bytes(), vec![7; PAYLOAD_BYTES])?;
        db.flush()?;
        if sync {
            log.sync_data()?;
        }
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Cost of the high-water mark per commit: one block overwritten and synced.
fn head_writes(path: &Path) -> Result<f64, std::io::Error> {
    use std::os::unix::fs::FileExt;
    let file = File::create(path)?;
    file.write_all_at(&[0; 8192], 0)?;
    file.sync_all()?;
    let began = Instant::now();
    let mut count = 0u64;
    while began.elapsed() < RUN {
        file.write_all_at(&[count as u8; 56], count % 2 * 4096)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}
