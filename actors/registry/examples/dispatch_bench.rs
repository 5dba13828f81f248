//! Benchmark of dispatch: latency and throughput of a tool that does nothing, through every layer
//! to its actor and back.
//!
//! `cargo run --release -p hivekeep-registry --features test-util --example dispatch_bench`

use std::time::{Duration, Instant};

use hivekeep_registry::test_util::Stage;
use serde_json::json;

const WARM_UP: usize = 2_000;
const CALLS: usize = 20_000;
const IN_FLIGHT: usize = 32;

#[tokio::main]
async fn main() {
    let mut options = Stage::loose();
    // Wide enough that nothing waits for a slot.
    options.admission.in_flight = 128.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    one_by_one(&stage, WARM_UP).await;

    let mut times = one_by_one(&stage, CALLS).await;
    times.sort_unstable();
    let (p50, p99) = (times[CALLS / 2], times[CALLS * 99 / 100]);
    let mean = times.iter().sum::<Duration>() / u32::try_from(CALLS).expect("fits");
    report(&format!("one at a time: p50 {p50:?}, p99 {p99:?}, mean {mean:?}"));

    let started = Instant::now();
    let each = (0..IN_FLIGHT).map(|_| one_by_one(&stage, CALLS / IN_FLIGHT));
    let done: usize = futures::future::join_all(each).await.iter().map(Vec::len).sum();
    let per_second = done as f64 / started.elapsed().as_secs_f64();
    report(&format!("{IN_FLIGHT} in flight: {per_second:.0} calls/s"));
}

async fn one_by_one(stage: &Stage, calls: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let outcome = stage.call("toy_echo", json!({ "text": "hello" })).await;
        outcome.result.expect("the toy answers");
        times.push(outcome.duration);
    }
    times
}

#[allow(clippy::print_stdout)]
fn report(line: &str) {
    println!("{line}");
}
