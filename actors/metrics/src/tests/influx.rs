//! The writer to InfluxDB, against a server of 2.x that fails as servers do. (The real 1.6 is in the daemon's
//! own tests.)

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use hivekeep_testkit::eventually;
use serde_json::json;

use super::rig;
use crate::{InfluxOptions, Options};

/// What the server has: by series and time, as it would.
#[derive(Default)]
struct Server {
    points: BTreeMap<(String, String), String>,
    writes: usize,
    queries: Vec<String>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Server>>);

/// Takes every third write, takes every other one without saying so, and never takes what is called poison.
async fn write(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mut server = shared.0.lock().expect("no panic");
    server.writes += 1;
    if headers.get("authorization").is_none_or(|it| it != "Token t0ken") {
        return StatusCode::UNAUTHORIZED;
    }
    server.queries.push(query.unwrap_or_default());
    let text = String::from_utf8(body.to_vec()).expect("UTF-8");
    if text.contains("poison") {
        return StatusCode::BAD_REQUEST;
    }
    if server.writes % 3 == 1 {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    for line in text.lines() {
        let (series, rest) = line.split_once(" value=1i").expect("a field");
        let (_, at) = rest.rsplit_once(' ').expect("a time");
        server.points.insert((series.to_owned(), at.to_owned()), rest.to_owned());
    }
    match server.writes % 3 {
        2 => StatusCode::NO_CONTENT,
        // As a server that was killed between writing and answering.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn serve(shared: Shared) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let router = Router::new().route("/api/v2/write", post(write)).with_state(shared);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn everything_is_there_once_although_the_server_fails_and_the_daemon_crashes() {
    let shared = Shared::default();
    let address = serve(shared.clone()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "wrong\n").expect("written");
    let influx = InfluxOptions {
        url: Some(format!("http://{address}")),
        org: Some("my org".to_owned()),
        bucket: Some("b".to_owned()),
        token_file: Some(token.clone()),
        batch_points: 7,
        ..InfluxOptions::default()
    };
    let (mut rig, _) = rig(Options { influx, ..Options::default() }).await;
    for round in 0..3 {
        for nth in 0..40 {
            let kind = if nth == 13 { "poison".to_owned() } else { format!("k{}", nth % 3) };
            let args =
                json!({ "type": kind, "repo": "a b", "data": { "ms": nth, "round": round } });
            rig.call("metrics_record", args).await.expect("recorded");
        }
        if round == 0 {
            // A credential is read at each write, so that it can be mended.
            std::fs::write(&token, "t0ken\n").expect("written");
        }
        rig = rig.crashed().await;
    }
    let points = || shared.0.lock().expect("no panic").points.len();
    eventually("all are there", async || points() == 3 * 39).await;
    {
        let written = shared.0.lock().expect("no panic");
        assert!(written.queries.iter().all(|it| it == "org=my+org&bucket=b&precision=ns"));
        let series = r"hivekeep,repo=a\ b,type=k";
        assert!(written.points.keys().all(|(it, _)| it.starts_with(series)));
    }
    let sent = || super::store(&rig).ledger.rows().iter().all(|row| row.sent == row.entries);
    eventually("the position is kept", async || sent()).await;
    assert_eq!(points(), 3 * 39, "nothing twice");
}
