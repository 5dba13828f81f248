//! Qdrant server by URL over REST. What it answers is bounded and checked; the key goes to that address alone.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use hivekeep_runtime::{http::client_builder, read_secret};
use reqwest::{Client, Method};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use url::Url;

use super::{
    FoundPoint, PointChange, PointFilter, PointPage, PointStore, SearchVector, StoreFailure,
    StoredState,
};
use crate::{
    options::QdrantOptions,
    point::{PassagePayload, Point, PointId, Whereabouts},
};

/// Largest answer of the server.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Most characters of a server's error that are shown.
const MAX_TOLD_CHARS: usize = 300;
/// Names of the vectors of a point.
const DENSE: &str = "dense";
const SPARSE: &str = "bm25";

/// Client of a Qdrant server, made with the first request.
pub(crate) struct QdrantServer {
    url: Url,
    key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    limit: Duration,
    client: OnceCell<Client>,
}

impl QdrantServer {
    /// A server of the configuration, whose URL is checked. Nothing is asked of it yet.
    pub(crate) fn new(url: Url, options: &QdrantOptions) -> Self {
        Self {
            url,
            key_file: options.key_file.clone(),
            ca_file: options.ca_file.clone(),
            limit: Duration::from_secs(options.timeout_secs),
            client: OnceCell::new(),
        }
    }

    /// Sends a request; `None` where the server has no such thing.
    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Answer<Option<Value>> {
        let build = async || {
            let builder =
                client_builder(self.ca_file.as_deref()).await.map_err(StoreFailure::lasting)?;
            builder.build().map_err(|error| StoreFailure::lasting(error.to_string()))
        };
        let client = self.client.get_or_try_init(build).await?;
        let root = self.url.as_str().trim_end_matches('/');
        let mut request = client.request(method, format!("{root}/{path}")).timeout(self.limit);
        if let Some(file) = &self.key_file {
            let key = read_secret(file)
                .await
                .map_err(|why| StoreFailure::lasting(format!("`key_file`: {why}")))?;
            request = request.header("api-key", key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let passing = |error: reqwest::Error| {
            StoreFailure::passing(format!("the Qdrant server: {}", error.without_url()))
        };
        let mut response = request.send().await.map_err(passing)?;
        let (status, mut bytes) = (response.status(), Vec::new());
        while let Some(piece) = response.chunk().await.map_err(passing)? {
            if bytes.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err(StoreFailure::lasting("the Qdrant server's answer is too large"));
            }
            bytes.extend_from_slice(&piece);
        }
        let mut answer: Value = hivekeep_runtime::json_text::from_slice(&bytes).unwrap_or_default();
        if status.is_success() {
            // A proxy's page of welcome is no answer.
            return match answer["status"] == "ok" {
                true => Ok(Some(answer["result"].take())),
                false => Err(senseless("it does not say that it is well")),
            };
        }
        if status.as_u16() == 404 {
            return Ok(None);
        }
        let told = answer["status"]["error"].as_str().unwrap_or("no reason is given");
        let told: String = told.chars().take(MAX_TOLD_CHARS).collect();
        let message = format!("the Qdrant server answers {}: {told}", status.as_u16());
        let passing = status.is_server_error() || status.as_u16() == 429;
        Err(StoreFailure { message, passing })
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Answer<Value> {
        let answer = self.send(method, path, Some(body)).await?;
        answer
            .ok_or_else(|| StoreFailure::lasting("the Qdrant server does not have the collection"))
    }
}

type Answer<T> = Result<T, StoreFailure>;

#[async_trait]
impl PointStore for QdrantServer {
    async fn create(&self, collection: &str, dimension: usize) -> Answer<()> {
        let path = format!("collections/{collection}");
        let known = self.send(Method::GET, &path, None).await?;
        if let Some(known) = known {
            let size = &known["config"]["params"]["vectors"][DENSE]["size"];
            return match size.as_u64() == Some(dimension as u64) {
                true => Ok(()),
                false => Err(StoreFailure::lasting(format!(
                    "`{collection}` has vectors of {size}, not {dimension}"
                ))),
            };
        }
        let vectors = json!({ DENSE: { "size": dimension, "distance": "Cosine" } });
        let sparse = json!({ SPARSE: { "modifier": "idf" } });
        self.ask(Method::PUT, &path, json!({ "vectors": vectors, "sparse_vectors": sparse }))
            .await?;
        for field in ["source", "category"] {
            let index = json!({ "field_name": field, "field_schema": "keyword" });
            self.ask(Method::PUT, &format!("{path}/index?wait=true"), index).await?;
        }
        Ok(())
    }

    async fn discard(&self, collection: &str) -> Answer<()> {
        self.send(Method::DELETE, &format!("collections/{collection}"), None).await.map(drop)
    }

    async fn state(&self, collection: &str) -> Answer<Option<StoredState>> {
        let path = format!("collections/{collection}");
        let Some(known) = self.send(Method::GET, &path, None).await? else { return Ok(None) };
        let counted = self
            .ask(Method::POST, &format!("{path}/points/count"), json!({ "exact": true }))
            .await?;
        let status: String =
            known["status"].as_str().unwrap_or("unknown").chars().take(20).collect();
        let points = counted["count"].as_u64().ok_or_else(|| senseless("it counts nothing"))?;
        Ok(Some(StoredState { points, status }))
    }

    async fn change(&self, collection: &str, change: PointChange) -> Answer<()> {
        let PointChange { upserted, moved, removed } = change;
        let mut operations = Vec::new();
        if !upserted.is_empty() {
            let points: Vec<_> = upserted.into_iter().map(point).collect();
            operations.push(json!({ "upsert": { "points": points } }));
        }
        for (id, payload) in moved {
            operations.push(json!({ "overwrite_payload": { "payload": payload, "points": [id] } }));
        }
        if !removed.is_empty() {
            operations.push(json!({ "delete": { "points": removed } }));
        }
        if operations.is_empty() {
            return Ok(());
        }
        let path = format!("collections/{collection}/points/batch?wait=true");
        let done = self.ask(Method::POST, &path, json!({ "operations": operations })).await?;
        let all = done.as_array().map(Vec::as_slice).unwrap_or_default();
        match !all.is_empty() && all.iter().all(|one| one["status"] == "completed") {
            true => Ok(()),
            false => Err(senseless("an operation is not completed")),
        }
    }

    async fn page(
        &self,
        collection: &str,
        from: Option<PointId>,
        limit: usize,
    ) -> Answer<PointPage> {
        let path = format!("collections/{collection}/points/scroll");
        let fields = json!({ "include": Whereabouts::FIELDS });
        let body =
            json!({ "offset": from, "limit": limit, "with_payload": fields, "with_vector": false });
        let page: ScrollAnswer = read(self.ask(Method::POST, &path, body).await?)?;
        let rows = page.points.into_iter().map(|row| (row.id, row.payload)).collect();
        Ok(PointPage { rows, next: page.next_page_offset })
    }

    async fn search(
        &self,
        collection: &str,
        vector: SearchVector,
        filter: PointFilter,
        limit: usize,
    ) -> Answer<Vec<FoundPoint>> {
        let (query, using) = match vector {
            SearchVector::Dense(vector) => (json!(vector), DENSE),
            SearchVector::Sparse(vector) => (json!(vector), SPARSE),
        };
        let path = format!("collections/{collection}/points/query");
        let body = json!({
            "query": query, "using": using, "filter": { "must": conditions(filter) },
            "limit": limit, "with_payload": true,
        });
        let found: QueryAnswer = read(self.ask(Method::POST, &path, body).await?)?;
        let row = |QueryRow { id, score, payload }| FoundPoint { id, score, payload };
        Ok(found.points.into_iter().map(row).collect())
    }
}

fn point(Point { id, dense, sparse, payload }: Point) -> Value {
    json!({ "id": id, "vector": { DENSE: dense, SPARSE: sparse }, "payload": payload })
}

fn conditions(filter: PointFilter) -> Vec<Value> {
    let PointFilter { source, category, among } = filter;
    let is = |key: &str, value: Option<String>| {
        value.map(|it| json!({ "key": key, "match": { "value": it } }))
    };
    let among = among.map(|ids| json!({ "has_id": ids }));
    [is("source", source), is("category", category), among].into_iter().flatten().collect()
}

#[derive(Deserialize)]
struct ScrollAnswer {
    points: Vec<ScrollRow>,
    next_page_offset: Option<PointId>,
}

#[derive(Deserialize)]
struct ScrollRow {
    id: PointId,
    payload: Whereabouts,
}

#[derive(Deserialize)]
struct QueryAnswer {
    points: Vec<QueryRow>,
}

#[derive(Deserialize)]
struct QueryRow {
    id: PointId,
    score: f32,
    payload: PassagePayload,
}

/// Reads a part of an answer.
fn read<T: serde::de::DeserializeOwned>(value: Value) -> Answer<T> {
    serde_json::from_value(value).map_err(|error| senseless(&error.to_string()))
}

fn senseless(why: &str) -> StoreFailure {
    StoreFailure::lasting(format!("the Qdrant server's answer makes no sense: {why}"))
}
