//! The two stores side by side: the same changes, pages and searches, the same answers.

use std::{path::Path, process::Stdio, sync::Arc};

use tokio::io::{AsyncBufReadExt, BufReader};

use super::fake::{KEY, qdrant};
use crate::{
    options::QdrantOptions,
    point::{PassagePayload, Point, PointId},
    store::{
        FoundPoint, PointChange, PointFilter, PointStore, SearchVector, embedded::EmbeddedStore,
        qdrant::QdrantServer,
    },
    terms,
};

const NAME: &str = "col_test";
const PARTS: usize = 5;

fn server(url: &str, key_file: &Path) -> QdrantServer {
    let options = QdrantOptions {
        url: Some(url.to_owned()),
        key_file: Some(key_file.to_owned()),
        ..Default::default()
    };
    QdrantServer::new(options.address().expect("valid").expect("one"), &options)
}

fn point(rng: &mut fastrand::Rng, nth: u32) -> Point {
    let words = ["disk", "room", "journal", "page", "web", "vector", "kill", "batch"];
    let text: Vec<_> = (0..rng.usize(1..8)).map(|_| rng.choice(words).expect("some")).collect();
    let text = text.join(" ");
    let source = format!("{}.md", nth % 7);
    let category = if nth.is_multiple_of(3) { "task" } else { "documentation" };
    Point {
        id: PointId::of(&source, &text, nth),
        dense: (0..PARTS).map(|_| rng.f32() - 0.5).collect(),
        sparse: terms::weights(&text),
        payload: PassagePayload {
            text,
            file: format!("docs:{source}"),
            source,
            section: String::new(),
            category: category.to_owned(),
            chunk_index: nth,
            line: nth + 1,
        },
    }
}

fn filters(points: &[Point]) -> Vec<PointFilter> {
    let some = PointFilter::default;
    vec![
        some(),
        PointFilter { source: Some("3.md".to_owned()), ..some() },
        PointFilter { category: Some("task".to_owned()), ..some() },
        PointFilter { source: Some("nothing".to_owned()), ..some() },
        PointFilter {
            among: Some(points.iter().step_by(4).map(|it| it.id).collect()),
            category: Some("task".to_owned()),
            ..some()
        },
    ]
}

/// Scores that rounding may have set apart are compared as such.
fn same(one: &[FoundPoint], other: &[FoundPoint]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert!((one.score - other.score).abs() < 1e-4, "{one:?} {other:?}");
    }
    let ids = |all: &[FoundPoint]| {
        let mut ids: Vec<_> = all.iter().map(|it| (it.id, it.payload.clone().text)).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(one), ids(other));
}

async fn pages(store: &dyn PointStore) -> Vec<(PointId, crate::point::Whereabouts)> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = store.page(NAME, from, 7).await.expect("a page");
        all.extend(page.rows);
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn an_index_of_ours_and_a_server_agree() {
    agree(&qdrant().await).await;
}

/// The same with the engine and the request models of Qdrant's own client as the judge of both.
#[tokio::test]
#[ignore = "needs qdrant-client: `cargo xtask test --only qdrant`"]
async fn an_index_of_ours_and_qdrants_own_client_agree() {
    let python = std::env::var_os("TEST_HIVEKEEP_QDRANT_PYTHON").expect("the step sets it");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/qdrant_server.py");
    let mut judge = tokio::process::Command::new(python)
        .args([script, KEY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it runs");
    let mut said = BufReader::new(judge.stdout.take().expect("a pipe")).lines();
    let url = said.next_line().await.expect("it is read").expect("it says its URL");
    agree(&url).await;
}

async fn agree(url: &str) {
    let home = tempfile::tempdir().expect("a folder");
    let key_file = home.path().join("key");
    std::fs::write(&key_file, format!("{KEY}\n")).expect("writes");
    let remote = server(url, &key_file);
    let local = EmbeddedStore::new(home.path().join("points"), 1 << 30);
    let stores: [&dyn PointStore; 2] = [&local, &remote];
    for store in stores {
        assert_eq!(store.state(NAME).await.expect("answers"), None);
        store.discard(NAME).await.expect("nothing is there");
        store.create(NAME, PARTS).await.expect("made");
        store.create(NAME, PARTS).await.expect("it is there");
        assert!(store.create(NAME, PARTS + 1).await.is_err(), "of another length");
    }
    let mut rng = fastrand::Rng::with_seed(7);
    let mut points: Vec<_> = (0..120).map(|nth| point(&mut rng, nth)).collect();
    let mut changes = vec![
        PointChange { upserted: points[..60].to_vec(), ..PointChange::default() },
        PointChange {
            upserted: points[60..].to_vec(),
            removed: points[..10].iter().map(|it| it.id).collect(),
            ..PointChange::default()
        },
    ];
    let moved = points[20..30].iter_mut().map(|it| {
        it.payload.line += 100;
        (it.id, it.payload.clone())
    });
    changes.push(PointChange { moved: moved.collect(), ..PointChange::default() });
    // Inserted again with another vector; and one that is not there.
    points[40].dense[0] = 9.0;
    changes.push(PointChange {
        upserted: vec![points[40].clone()],
        removed: vec![points[0].id],
        ..PointChange::default()
    });
    for change in changes {
        for store in stores {
            store.change(NAME, change.clone()).await.expect("changed");
        }
    }
    let wrong = Point { dense: vec![1.0], ..points[50].clone() };
    for store in stores {
        let wrong = PointChange { upserted: vec![wrong.clone()], ..PointChange::default() };
        assert!(store.change(NAME, wrong).await.is_err());
        assert_eq!(store.state(NAME).await.expect("answers").expect("there").points, 110);
    }
    assert_eq!(pages(&local).await, pages(&remote).await);
    let again = EmbeddedStore::new(home.path().join("points"), 1 << 30);
    assert_eq!(pages(&again).await, pages(&remote).await, "as it is read from its file");
    for filter in filters(&points) {
        for (limit, question) in
            [(5, "disk room"), (200, "kills the journal"), (3, "nothing of it")]
        {
            let dense: Vec<_> = (0..PARTS).map(|_| rng.f32() - 0.5).collect();
            for vector in
                [SearchVector::Dense(dense), SearchVector::Sparse(terms::wanted(question))]
            {
                let mut found = Vec::new();
                for store in [stores[0], stores[1], &again] {
                    found.push(
                        store
                            .search(NAME, vector.clone(), filter.clone(), limit)
                            .await
                            .expect("searched"),
                    );
                }
                // Of equal scores at the edge either may be there.
                if limit == 200 || matches!(vector, SearchVector::Dense(_)) {
                    same(&found[0], &found[1]);
                }
                same(&found[0], &found[2]);
            }
        }
    }
    for store in stores {
        store.discard(NAME).await.expect("removed");
        assert_eq!(store.state(NAME).await.expect("answers"), None);
    }
}

#[tokio::test]
async fn a_server_that_is_away_or_refuses_is_told_as_such() {
    let home = tempfile::tempdir().expect("a folder");
    let key_file = home.path().join("key");
    std::fs::write(&key_file, "wrong").expect("writes");
    let refused = server(&qdrant().await, &key_file).state(NAME).await.expect_err("a wrong key");
    assert!(
        !refused.passing && refused.message.contains("403") && !refused.message.contains("wrong"),
        "{refused}"
    );
    let away =
        server("http://127.0.0.1:1", &key_file).state(NAME).await.expect_err("nobody is there");
    assert!(away.passing, "{away}");
}

#[tokio::test]
async fn a_file_is_rewritten_when_most_of_it_is_gone_and_memory_is_given_up() {
    let home = tempfile::tempdir().expect("a folder");
    // Room for less than one collection.
    let store = Arc::new(EmbeddedStore::new(home.path().to_owned(), 1_000));
    let mut rng = fastrand::Rng::with_seed(8);
    for name in ["one", "two"] {
        store.create(name, PARTS).await.expect("made");
    }
    let points: Vec<_> = (0..50).map(|nth| point(&mut rng, nth)).collect();
    let size =
        |name: &str| std::fs::metadata(home.path().join(name).join("points")).expect("there").len();
    let mut largest = 0;
    for round in 0..35 {
        for name in ["one", "two"] {
            let change = PointChange { upserted: points.clone(), ..PointChange::default() };
            store.change(name, change).await.expect("changed");
        }
        largest = largest.max(size("one"));
        assert!(
            round < 30 || size("one") < largest,
            "it was rewritten: {} of {largest}",
            size("one")
        );
    }
    let found = store
        .search("one", SearchVector::Sparse(terms::wanted("disk")), PointFilter::default(), 99)
        .await;
    let with_disk = points.iter().filter(|it| it.payload.text.contains("disk")).count();
    assert_eq!(found.expect("searched").len(), with_disk);
}

/// A server that answers everything with success and this body.
async fn answering(body: &'static str) -> String {
    let router = axum::Router::new().fallback(move || async move { body });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test]
async fn success_that_says_nothing_is_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, KEY).expect("writes");
    let points = vec![point(&mut fastrand::Rng::with_seed(1), 0)];
    for body in [
        "<html>Welcome</html>",
        "{}",
        r#"{"status":"ok"}"#,
        r#"{"status":"ok","result":[{"status":"acknowledged"}]}"#,
    ] {
        let store = server(&answering(body).await, &key);
        let change = PointChange { upserted: points.clone(), ..PointChange::default() };
        assert!(store.change(NAME, change).await.is_err(), "{body}");
        assert!(store.page(NAME, None, 10).await.is_err(), "{body}");
        assert!(store.state(NAME).await.is_err(), "{body}");
        let wanted = SearchVector::Dense(vec![1.0; PARTS]);
        assert!(store.search(NAME, wanted, PointFilter::default(), 3).await.is_err(), "{body}");
    }
}
