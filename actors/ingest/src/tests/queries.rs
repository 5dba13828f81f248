//! What a question finds.

use hivekeep_kernel::{SessionId, User};
use hivekeep_testkit::FakeUsers;
use serde_json::json;

use super::stage::{Stage, code, sources};
use crate::Options;

#[tokio::test]
async fn modes_filters_and_what_is_left_out() {
    let stage = Stage::new(Options::default()).await;
    stage.write("plans/zebra.md", "# Animals\n\nzebra zebra zebra\n");
    stage.write("quiet.md", "the <b>quiet</b> room\n");
    stage.write("more.md", "zebra and a quiet room\n");
    stage.ingest(json!({})).await.expect("ingests");
    let ask = async |more: serde_json::Value| stage.ask(more).await.expect("asked");
    let found = ask(json!({ "question": "zebra", "mode": "bm25" })).await;
    assert_eq!(sources(&found), ["plans/zebra.md", "more.md"]);
    assert!(found["results"][0]["similarity"].is_null() && found["fusion"].is_null());
    let found = ask(json!({ "question": "zebra", "mode": "vector", "topK": 1 })).await;
    assert_eq!(
        (sources(&found), &found["left_out"]["beyond_top_k"]),
        (vec!["plans/zebra.md"], &json!(2))
    );
    let found = ask(json!({ "question": "zebra" })).await;
    let weighed = json!({ "by": "scores", "vector_weight": 0.5, "word_weight": 1.0 });
    assert_eq!(found["fusion"], weighed);
    let words = ask(json!({ "question": "zebra", "vector_weight": 0.0 })).await;
    assert_eq!(words["results"][0]["score"], 1.0);
    assert_eq!(words["fusion"]["vector_weight"], 0.0);
    let scores: Vec<_> = found["results"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["score"].as_f64())
        .collect();
    assert_eq!(scores.len(), 3);
    assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]));
    assert!(
        found["results"].as_array().expect("rows").iter().all(|row| row["similarity"].is_number())
    );
    let found = ask(json!({ "question": "zebra", "min_score": 0.999 })).await;
    assert_eq!(
        found["left_out"]["below_min_score"].as_u64().expect("a number") as usize
            + sources(&found).len(),
        3
    );
    assert!(found["left_out"]["best_below"].as_f64().expect("a score") < 0.999);
    let found = ask(json!({ "question": "zebra", "category": "task" })).await;
    assert_eq!(sources(&found), ["plans/zebra.md"]);
    let found = ask(json!({ "question": "zebra", "source": "quiet.md" })).await;
    assert_eq!(sources(&found), ["quiet.md"]);
    let block = found["context"].as_str().expect("text");
    assert!(block.starts_with("<retrieved_context>\n<document source=\"quiet.md\" section=\"\" category=\"documentation\">"));
    assert!(block.contains("&lt;b&gt;quiet"));
}

#[tokio::test]
async fn a_collection_is_its_users() {
    let other = SessionId::new();
    let users = FakeUsers::all(User::Uid(7)).and(other, User::Uid(8));
    let stage = Stage::of_users(Options::default(), users).await;
    stage.write("a.md", "alpha\n");
    stage.ingest(json!({})).await.expect("ingests");
    let limit = std::time::Duration::from_secs(60);
    let asked = stage.rig.begin_as(other, "rag_query", json!({ "question": "alpha" }), limit);
    assert_eq!(code(asked.answer().await), "collection_not_found");
    let own =
        stage.rig.begin_as(SessionId::new(), "rag_query", json!({ "question": "alpha" }), limit);
    assert_eq!(sources(&own.answer().await.expect("the user's other session")), ["a.md"]);
}
