//! The queue of a provider: bounded, in order, and each wait with an end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::join_all;
use hivekeep_testkit::eventually;
use serde_json::json;

use super::{
    fake::{Fake, Play, openai},
    stage::{code, one, question, stage},
};

#[tokio::test]
async fn no_more_run_at_a_time_than_the_provider_bears() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (now.clone(), most.clone());
    let fake = Fake::new(move |_, _| {
        peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(5));
        running.fetch_sub(1, SeqCst);
        openai("a longer answer of some words")
    })
    .await;
    let stage = stage(one(&fake, json!({ "parallel": 2 }))).await;
    let answers = join_all((0..12).map(|_| stage.ask("p/m", "x"))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(most.load(SeqCst) <= 2, "{}", most.load(SeqCst));
    let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
    eventually("nothing runs", async || {
        let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
        listed["backends"][0]["load"] == json!({ "parallel": 2, "running": 0, "waiting": 0 })
    })
    .await;
    assert!(listed["backends"][0]["first_words_ms"].is_u64(), "{listed}");
}

#[tokio::test]
async fn a_full_queue_refuses_and_a_turn_that_does_not_come_ends() {
    let fake = Fake::always(Play::Hang(Vec::new())).await;
    let options = json!({ "parallel": 1, "queue": 1, "queue_secs": 1, "first_token_secs": 600 });
    let stage = stage(one(&fake, options)).await;
    let ask = || stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begins");
    let running = ask();
    eventually("one runs", async || !fake.asked().is_empty()).await;
    let waits = ask();
    eventually("one waits", async || {
        let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
        listed["backends"][0]["load"]["waiting"] == 1
    })
    .await;
    let error = stage.ask("p/m", "x").await.expect_err("the queue is full");
    assert_eq!((error.code.as_ref(), error.retryable), ("llm_busy", true));
    assert_eq!(code(waits.answer().await), "llm_busy", "its turn did not come");
    let posts = fake.asked().iter().filter(|asked| asked.method == "POST").count();
    assert_eq!(posts, 1);
    drop(running);
}

#[tokio::test]
async fn who_gave_up_waiting_takes_no_place() {
    let fake = Fake::always(Play::Hang(Vec::new())).await;
    let options = json!({ "parallel": 1, "queue": 1, "first_token_secs": 600 });
    let stage = stage(one(&fake, options)).await;
    let ask = || stage.models.stream(question(stage.rig.session, "p/m", "x")).expect("begins");
    let _running = ask();
    eventually("one runs", async || !fake.asked().is_empty()).await;
    for _ in 0..5 {
        let gave_up = ask();
        eventually("it waits", async || {
            let listed = stage.rig.call("ml_backends", json!({})).await.expect("lists");
            listed["backends"][0]["load"]["waiting"] == 1
        })
        .await;
        drop(gave_up);
    }
}
