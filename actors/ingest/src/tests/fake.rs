//! Fakes: a Qdrant server of the REST endpoints that are used, as its published API describes them, and a model
//! that counts what it embeds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post, put},
};
use hivekeep_kernel::ToolError;
use hivekeep_ports::{
    ConfiguredModel, EmbedRequest, Embeddings, ModelRequest, ModelSource, ModelStream, ModelUsage,
    ModelUse, Models,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Key that the server wants.
pub(super) const KEY: &str = "k3y";

#[derive(Default)]
struct Stored {
    config: Value,
    points: BTreeMap<String, Value>,
}

/// Collections by name.
type Server = Arc<Mutex<HashMap<String, Stored>>>;
type Reply = Result<Json<Value>, (StatusCode, Json<Value>)>;

/// Starts a server; its URL.
pub(super) async fn qdrant() -> String {
    let router = Router::new()
        .route("/collections/{name}", get(look).put(make).delete(remove))
        .route("/collections/{name}/index", put(index))
        .route("/collections/{name}/points/count", post(count))
        .route("/collections/{name}/points/batch", post(batch))
        .route("/collections/{name}/points/scroll", post(scroll))
        .route("/collections/{name}/points/query", post(query))
        .with_state(Server::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn refuse(status: StatusCode, why: &str) -> (StatusCode, Json<Value>) {
    (status, Json(json!({ "status": { "error": why }, "time": 0.0 })))
}

fn answer(result: Value) -> Reply {
    Ok(Json(json!({ "result": result, "status": "ok", "time": 0.0 })))
}

fn with<T>(
    server: &Server,
    headers: &HeaderMap,
    name: &str,
    work: impl FnOnce(&mut Stored) -> T,
) -> Result<T, (StatusCode, Json<Value>)> {
    allowed(headers)?;
    let mut all = server.lock().expect("not poisoned");
    let stored = all.get_mut(name);
    stored.map(work).ok_or_else(|| refuse(StatusCode::NOT_FOUND, "Collection doesn't exist!"))
}

fn allowed(headers: &HeaderMap) -> Result<(), (StatusCode, Json<Value>)> {
    let key = headers.get("api-key").and_then(|key| key.to_str().ok());
    if key == Some(KEY) { Ok(()) } else { Err(refuse(StatusCode::FORBIDDEN, "Invalid API key")) }
}

async fn look(State(server): State<Server>, headers: HeaderMap, Path(name): Path<String>) -> Reply {
    let shown = with(
        &server,
        &headers,
        &name,
        |stored| json!({ "status": "green", "points_count": stored.points.len(), "config": { "params": stored.config } }),
    );
    answer(shown?)
}

async fn make(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Json(config): Json<Value>,
) -> Reply {
    allowed(&headers)?;
    let right = config["vectors"]["dense"]["distance"] == "Cosine"
        && config["sparse_vectors"]["bm25"]["modifier"] == "idf";
    let mut all = server.lock().expect("not poisoned");
    if !right || all.contains_key(&name) {
        return Err(refuse(StatusCode::BAD_REQUEST, "wrong config, or it already exists"));
    }
    all.insert(name, Stored { config, ..Stored::default() });
    answer(json!(true))
}

async fn remove(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Reply {
    allowed(&headers)?;
    answer(json!(server.lock().expect("not poisoned").remove(&name).is_some()))
}

async fn index(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Json(asked): Json<Value>,
) -> Reply {
    assert_eq!(asked["field_schema"], "keyword");
    answer(with(&server, &headers, &name, |_| json!({ "status": "completed" }))?)
}

async fn count(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Reply {
    answer(with(&server, &headers, &name, |stored| json!({ "count": stored.points.len() }))?)
}

fn ids(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

async fn batch(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Json(asked): Json<Value>,
) -> Reply {
    let done = with(&server, &headers, &name, |stored| {
        let size = stored.config["vectors"]["dense"]["size"].as_u64().expect("a size") as usize;
        for operation in asked["operations"].as_array().expect("operations") {
            for point in operation["upsert"]["points"].as_array().into_iter().flatten() {
                if point["vector"]["dense"].as_array().expect("a vector").len() != size {
                    return Err(refuse(StatusCode::BAD_REQUEST, "Vector dimension error"));
                }
                stored
                    .points
                    .insert(point["id"].as_str().expect("an id").to_owned(), point.clone());
            }
            for id in ids(&operation["overwrite_payload"]["points"]) {
                if let Some(point) = stored.points.get_mut(&id) {
                    point["payload"] = operation["overwrite_payload"]["payload"].clone();
                }
            }
            ids(&operation["delete"]["points"])
                .iter()
                .for_each(|id| drop(stored.points.remove(id)));
        }
        Ok(json!([{ "status": "completed" }]))
    });
    answer(done??)
}

async fn scroll(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Json(asked): Json<Value>,
) -> Reply {
    let page = with(&server, &headers, &name, |stored| {
        let from = asked["offset"].as_str().unwrap_or_default();
        let limit = asked["limit"].as_u64().unwrap_or(10) as usize;
        let fields = ids(&asked["with_payload"]["include"]);
        let mut rest = stored.points.range(from.to_owned()..);
        let row = |(id, point): (&String, &Value)| {
            let payload: serde_json::Map<_, _> =
                fields.iter().map(|it| (it.clone(), point["payload"][it].clone())).collect();
            json!({ "id": id, "payload": payload })
        };
        let rows: Vec<_> = rest.by_ref().take(limit).map(row).collect();
        json!({ "points": rows, "next_page_offset": rest.next().map(|(id, _)| id) })
    });
    answer(page?)
}

async fn query(
    State(server): State<Server>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Json(asked): Json<Value>,
) -> Reply {
    let found = with(&server, &headers, &name, |stored| {
        let all = stored.points.len() as f64;
        let terms = |vector: &Value| -> HashMap<u64, f64> {
            let (indices, values) = (vector["indices"].as_array(), vector["values"].as_array());
            let pairs = indices.into_iter().flatten().zip(values.into_iter().flatten());
            pairs
                .map(|(term, value)| {
                    (term.as_u64().expect("a term"), value.as_f64().expect("a weight"))
                })
                .collect()
        };
        let mut frequency: HashMap<u64, f64> = HashMap::new();
        for point in stored.points.values() {
            terms(&point["vector"]["bm25"])
                .keys()
                .for_each(|term| *frequency.entry(*term).or_default() += 1.0);
        }
        let fits = |id: &str, point: &Value| {
            asked["filter"]["must"].as_array().into_iter().flatten().all(|condition| {
                match &condition["has_id"] {
                    Value::Null => {
                        point["payload"][condition["key"].as_str().expect("a key")]
                            == condition["match"]["value"]
                    }
                    among => ids(among).iter().any(|it| it == id),
                }
            })
        };
        let mut scored = Vec::new();
        for (id, point) in stored.points.iter().filter(|(id, point)| fits(id, point)) {
            let score = if asked["using"] == "dense" {
                Some(cosine(&asked["query"], &point["vector"]["dense"]))
            } else {
                let (own, wanted) = (terms(&point["vector"]["bm25"]), terms(&asked["query"]));
                let shared = wanted
                    .iter()
                    .filter_map(|(term, value)| own.get(term).map(|own| (term, value * own)));
                let parts: Vec<_> = shared
                    .map(|(term, product)| {
                        let with = frequency[term];
                        ((all - with + 0.5) / (with + 0.5) + 1.0).ln() * product
                    })
                    .collect();
                (!parts.is_empty()).then(|| parts.iter().sum())
            };
            scored.extend(score.map(|score| (score, id, point)));
        }
        scored.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        scored.truncate(asked["limit"].as_u64().unwrap_or(10) as usize);
        let row = |(score, id, point): (f64, &String, &Value)| json!({ "id": id, "score": score, "payload": point["payload"] });
        json!({ "points": scored.into_iter().map(row).collect::<Vec<_>>() })
    });
    answer(found?)
}

fn cosine(one: &Value, other: &Value) -> f64 {
    let parts = |vector: &Value| -> Vec<f64> {
        vector
            .as_array()
            .expect("a vector")
            .iter()
            .map(|part| part.as_f64().expect("a number"))
            .collect()
    };
    let (one, other) = (parts(one), parts(other));
    let dot = |one: &[f64], other: &[f64]| {
        one.iter().zip(other).map(|(one, other)| one * other).sum::<f64>()
    };
    let lengths = (dot(&one, &one) * dot(&other, &other)).sqrt();
    if lengths > 0.0 { dot(&one, &other) / lengths } else { 0.0 }
}

/// Model whose vectors are of the letters of a text, and that counts.
pub(super) struct CountingModel {
    pub(super) given: Mutex<HashMap<String, u32>>,
    /// Name that it answers by.
    pub(super) name: Mutex<&'static str>,
    pub(super) configured: AtomicBool,
    /// Permits of requests that may be answered.
    pub(super) gate: Semaphore,
}

impl Default for CountingModel {
    fn default() -> Self {
        Self {
            given: Mutex::default(),
            name: Mutex::new("e"),
            configured: AtomicBool::new(true),
            gate: Semaphore::new(100_000),
        }
    }
}

impl CountingModel {
    /// Number of texts that were embedded, repetitions included.
    pub(super) fn embedded(&self) -> u32 {
        self.given.lock().expect("not poisoned").values().sum()
    }

    fn source(&self) -> ModelSource {
        let model = (*self.name.lock().expect("not poisoned")).to_owned();
        ModelSource { provider: "fake".to_owned(), provider_kind: "fake", model }
    }
}

#[async_trait]
impl Models for CountingModel {
    fn configured(&self) -> Vec<ConfiguredModel> {
        Vec::new()
    }

    fn resolve(&self, _: &str, _: ModelUse) -> Result<Vec<ModelSource>, ToolError> {
        match self.configured.load(SeqCst) {
            true => Ok(vec![self.source()]),
            false => Err(ToolError::foreign(
                hivekeep_kernel::Layer::Actor,
                "llm_not_configured",
                "no model is set",
            )),
        }
    }

    fn worst_case(&self, _: &ModelRequest) -> Result<ModelUsage, ToolError> {
        Err(ToolError::internal("it only embeds"))
    }

    fn stream(&self, _: ModelRequest) -> Result<ModelStream, ToolError> {
        Err(ToolError::internal("it only embeds"))
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings, ToolError> {
        self.gate.acquire().await.expect("open").forget();
        let mut given = self.given.lock().expect("not poisoned");
        let vectors = request.texts.iter().map(|text| {
            *given.entry(text.clone()).or_default() += 1;
            let mut vector = vec![0.01; 26];
            text.bytes()
                .filter(u8::is_ascii_lowercase)
                .for_each(|it| vector[usize::from(it - b'a')] += 1.0);
            vector
        });
        let vectors = vectors.collect();
        Ok(Embeddings { source: self.source(), dimension: 26, vectors, usage: Default::default() })
    }
}
