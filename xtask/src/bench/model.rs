//! A question to a language model through the daemon, beside the same question to its provider directly.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{agents, stub_server};
use super::{house::BenchDaemon, http_client::HttpConnection, kit::BenchPrograms};

const ROUNDS: usize = 100;
/// Time that the provider takes for its first token, as a quick model does.
const FIRST_TOKEN: Duration = Duration::from_millis(50);

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let address = provide()?;
    let house = BenchDaemon::open(kit, &configured(&address))?;
    let mut client = house.attach()?;
    let mut direct = HttpConnection::open(&address)?;
    let body = json!({ "model": "m", "stream": true, "max_tokens": 16,
        "messages": [{ "role": "user", "content": "Yes or no?" }] })
    .to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        let began = Instant::now();
        let answer = direct.answer_to(request.as_bytes())?;
        beside.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(!answer.is_empty(), "the provider said nothing");
        let began = Instant::now();
        let answer = client.call("ml_generate", &json!({ "prompt": "Yes or no?" }))?;
        through.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(answer["response"] == "Yes", "{answer}");
    }
    let (through, beside) = (median(through), median(beside));
    Ok(vec![Figure {
        name: "model_overhead",
        unit: "ms",
        value: through,
        baseline: Some(beside),
        target: Target::AtMost(round(beside * 1.1 + 2.0)),
        remark: format!(
            "a call of ml_generate over stdio for an answer of one token, reserved and settled in the \
             journal, of a provider that takes {} ms for it; the baseline is the same request to the \
             provider over a connection that is kept",
            FIRST_TOKEN.as_millis()
        ),
    }])
}

/// Configuration of the model `near/m` of a provider.
pub(super) fn configured(address: &str) -> String {
    format!(
        "[model.provider.near]\nkind = \"openai-compatible\"\nendpoint = \"http://{address}/v1\"\n\
         models = {{ m = {{}} }}\n[model.budget]\ntotal_tokens = 1000000000\n"
    )
}

/// A provider that answers each request with one token; its address.
pub(super) fn provide() -> Result<String> {
    let answer = agents::answer(&json!({ "content": "Yes" }), "stop");
    stub_server::serve(move |_| {
        std::thread::sleep(FIRST_TOKEN);
        answer.clone()
    })
}
