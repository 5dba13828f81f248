//! Answers questions from a collection's files, without a daemon: the baseline of `rag_query_100k`.
//!
//! `cargo run --release -p hivekeep-ingest --example bare_engine COLLECTIONS MODEL`
//!
//! Says `ready`, then for each line of its input how many microseconds it took.
#![allow(clippy::print_stdout, reason = "the output is the point")]

use std::{io, path::PathBuf, time::Instant};

use hivekeep_ingest::{BareCollection, LocalOptions, Options, SearchMode};

const TOP_K: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (folder, model) = arguments.next().zip(arguments.next()).ok_or("two folders")?;
    let local = LocalOptions { folder: Some(model), ..LocalOptions::default() };
    let options = Options { local, memory_mb: 4_096, ..Options::default() };
    let collection = BareCollection::open(&folder, &options)?;
    collection.ask("Is it there?", SearchMode::Hybrid, TOP_K).await?;
    println!("ready");
    for question in io::stdin().lines() {
        let began = Instant::now();
        let found = collection.ask(&question?, SearchMode::Hybrid, TOP_K).await?;
        let took = began.elapsed().as_micros();
        if found == 0 {
            return Err("nothing is found".into());
        }
        println!("{took}");
    }
    Ok(())
}
