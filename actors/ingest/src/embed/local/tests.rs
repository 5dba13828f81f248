//! An encoder whose weights are a formula, beside the same forward pass in NumPy.

use std::collections::HashMap;

use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const HIDDEN: usize = 8;
const WIDE: usize = 16;
/// Vectors of "a b c", by the mean and by the first token.
const MEAN: [f32; HIDDEN] =
    [-0.358675, 0.246414, -0.061033, 0.058266, -0.284071, -0.371534, -0.762154, -0.062458];
const FIRST: [f32; HIDDEN] =
    [-0.356702, 0.248237, -0.061539, 0.056782, -0.283522, -0.371954, -0.762593, -0.062032];

fn config() -> Value {
    json!({
        "model_type": "bert", "hidden_size": HIDDEN, "intermediate_size": WIDE, "num_hidden_layers": 2,
        "num_attention_heads": 2, "vocab_size": 5, "max_position_embeddings": 8, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu",
    })
}

/// Names and shapes of all weights.
fn shapes() -> Vec<(String, Vec<usize>)> {
    let (h, w) = (HIDDEN, WIDE);
    let mut all: Vec<(String, Vec<usize>)> = [
        ("word_embeddings.weight", vec![5, h]),
        ("position_embeddings.weight", vec![8, h]),
        ("token_type_embeddings.weight", vec![2, h]),
        ("LayerNorm.weight", vec![h]),
        ("LayerNorm.bias", vec![h]),
    ]
    .map(|(name, shape)| (format!("embeddings.{name}"), shape))
    .into();
    for layer in 0..2 {
        let linear = [
            ("attention.self.query", h, h),
            ("attention.self.key", h, h),
            ("attention.self.value", h, h),
            ("attention.output.dense", h, h),
            ("intermediate.dense", w, h),
            ("output.dense", h, w),
        ];
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        for (part, outputs, inputs) in linear {
            all.push((name(&format!("{part}.weight")), vec![outputs, inputs]));
            all.push((name(&format!("{part}.bias")), vec![outputs]));
        }
        for part in ["attention.output.LayerNorm", "output.LayerNorm"] {
            all.push((name(&format!("{part}.weight")), vec![h]));
            all.push((name(&format!("{part}.bias")), vec![h]));
        }
    }
    all
}

/// Folder with the model; `above` is put before each weight's name.
fn model(config: &Value, above: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = shapes()
        .into_iter()
        .enumerate()
        .map(|(nth, (name, shape))| {
            let value = |at: usize| ((at * 7 + nth * 13) % 17) as f32 / 17.0 - 0.5;
            let count = shape.iter().product();
            (
                format!("{above}{name}"),
                shape,
                (0..count).flat_map(|at| value(at).to_le_bytes()).collect(),
            )
        })
        .collect();
    let views: HashMap<_, _> = bytes
        .iter()
        .map(|(name, shape, bytes)| {
            (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("it fits"))
        })
        .collect();
    let write =
        |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("writes");
    write("model.safetensors", &safetensors::serialize(views, &None).expect("serializes"));
    write("config.json", config.to_string().as_bytes());
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "unk_token": "?", "vocab": { "?": 0, "a": 1, "b": 2, "c": 3, "d": 4 } },
    });
    write("tokenizer.json", tokenizer.to_string().as_bytes());
    folder
}

fn local(folder: &Path) -> LocalModel {
    let options =
        LocalOptions { folder: Some(folder.to_owned()), threads: Some(2.try_into().expect("2")) };
    LocalModel::new(&options).expect("there is a folder")
}

async fn made(folder: &Path, texts: &[&str]) -> Result<Embedded, ToolError> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    local(folder).embed(texts, Instant::now() + std::time::Duration::from_secs(60)).await
}

fn near(one: &[f32], other: &[f32]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-5)
}

#[tokio::test]
async fn the_forward_pass_is_the_published_one() {
    let folder = model(&config(), "");
    let found =
        made(folder.path(), &["a b c", "d", "a b c a b c d d d", "a b c a b c d d", ""]).await;
    let Embedded { model: name, dimension, vectors } = found.expect("embeds");
    assert!(name.starts_with("local/") && dimension == HIDDEN, "{name}");
    assert!(near(&vectors[0], &MEAN), "{:?}", vectors[0]);
    assert!(!near(&vectors[1], &MEAN) && vectors[2] == vectors[3], "it is cut off after 8 tokens");
    assert_eq!(vectors[4], [0.0; HIDDEN]);
    let below = model(&config(), "bert.");
    assert!(near(&made(below.path(), &["a b c"]).await.expect("embeds").vectors[0], &MEAN));
    fs::create_dir(folder.path().join("1_Pooling")).expect("made");
    let pooling = json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false });
    fs::write(folder.path().join("1_Pooling/config.json"), pooling.to_string()).expect("writes");
    assert!(near(&made(folder.path(), &["a b c"]).await.expect("embeds").vectors[0], &FIRST));
}

#[tokio::test]
async fn many_texts_keep_their_order_whatever_thread_they_are_on() {
    let folder = model(&config(), "");
    let texts: Vec<_> = (0..50).map(|nth| ["a b c", "d", "b d"][nth % 3]).collect();
    let vectors = made(folder.path(), &texts).await.expect("embeds").vectors;
    assert!(vectors.iter().enumerate().all(|(nth, vector)| *vector == vectors[nth % 3]));
    assert!(vectors[0] != vectors[1] && vectors.len() == 50);
    let over = local(folder.path()).embed(vec!["a".to_owned()], Instant::now()).await;
    // The first poll may be quick enough; a call whose time is over is never given anything else.
    assert!(over.is_ok() || over.is_err_and(|error| error.code == "deadline_exceeded"));
}

#[tokio::test]
async fn what_is_not_understood_is_refused() {
    for (key, value) in [
        ("hidden_act", json!("relu")),
        ("position_embedding_type", json!("relative_key")),
        ("num_attention_heads", json!(3)),
        ("hidden_size", json!(1_000_000)),
        ("intermediate_size", json!(8)),
        ("vocab_size", json!(4)),
        ("num_hidden_layers", json!(3)),
    ] {
        let mut config = config();
        config[key] = value;
        let refused = made(model(&config, "").path(), &["a"]).await.expect_err(key);
        assert_eq!(refused.code, "embedder_failed", "{key}");
    }
    let folder = model(&config(), "");
    fs::write(folder.path().join("model.safetensors"), b"none").expect("writes");
    assert_eq!(made(folder.path(), &["a"]).await.expect_err("damaged").code, "embedder_failed");
}

#[tokio::test]
async fn a_hubs_cache_is_read_at_its_revision() {
    let (cache, folder) = (TempDir::new().expect("a folder"), model(&config(), ""));
    let snapshot = cache.path().join("snapshots/0a1b");
    fs::create_dir_all(&snapshot).expect("made");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::os::unix::fs::symlink(folder.path().join(name), snapshot.join(name)).expect("linked");
    }
    fs::create_dir(cache.path().join("refs")).expect("made");
    fs::write(cache.path().join("refs/main"), "0a1b\n").expect("writes");
    assert!(near(&made(cache.path(), &["a b c"]).await.expect("embeds").vectors[0], &MEAN));
    fs::write(cache.path().join("refs/main"), "../../etc").expect("writes");
    assert_eq!(made(cache.path(), &["a"]).await.expect_err("outside").code, "embedder_failed");
}

#[tokio::test]
#[ignore = "needs a model: `cargo xtask test --only embeddings`"]
async fn a_real_encoder_says_what_is_known_of_it() {
    let folder = std::env::var_os("TEST_HIVEKEEP_MINILM").expect("the step sets it");
    let sentences = [
        "The virtual machine failed to boot.",
        "The VM did not start up.",
        "I like strawberry ice cream.",
    ];
    let Embedded { dimension, vectors, .. } =
        made(Path::new(&folder), &sentences).await.expect("embeds");
    let similar = |one: usize, other: usize| -> f32 {
        vectors[one].iter().zip(&vectors[other]).map(|(one, other)| one * other).sum()
    };
    // As PyTorch has it.
    let known = [(0, 1, 0.7484), (0, 2, -0.0015), (1, 2, -0.0842)];
    for (one, other, wanted) in known {
        assert!((similar(one, other) - wanted).abs() < 1e-3, "{}", similar(one, other));
    }
    assert_eq!(dimension, 384);
}
