//! Embedding server that counts, for daemons of tests: also of those in tests/vm.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

/// Embedding server that counts how often it was given each text.
pub(crate) struct Counter {
    url: String,
    given: Arc<Mutex<HashMap<String, u32>>>,
}

impl Counter {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let given = Arc::<Mutex<HashMap<String, u32>>>::default();
        let seen = given.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { url, given }
    }

    /// Configuration of a daemon whose embeddings it makes.
    pub(crate) fn config(&self) -> String {
        format!(
            "[model.provider.count]\nkind = \"openai-compatible\"\nendpoint = {:?}\n\
             models = {{ e = {{ purpose = \"embed\" }} }}\n\
             [model.alias.embed]\nmodels = [\"count/e\"]\n",
            self.url
        )
    }

    pub(crate) fn given(&self) -> HashMap<String, u32> {
        self.given.lock().expect("not poisoned").clone()
    }
}

fn serve(mut stream: TcpStream, given: &Mutex<HashMap<String, u32>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    loop {
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap_or_default() > 0 && line != "\r\n" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if length == 0 || reader.read_exact(&mut body).is_err() {
            return;
        }
        let asked: Value = serde_json::from_slice(&body).expect("JSON");
        let texts: Vec<_> = asked["input"]
            .as_array()
            .expect("texts")
            .iter()
            .map(|it| it.as_str().expect("a text"))
            .collect();
        let mut all = given.lock().expect("not poisoned");
        texts.iter().for_each(|text| *all.entry((*text).to_owned()).or_default() += 1);
        drop(all);
        let vectors = texts
            .iter()
            .enumerate()
            .map(|(index, text)| json!({ "index": index, "embedding": vector(text) }));
        let answer = json!({ "data": vectors.collect::<Vec<_>>(), "usage": { "prompt_tokens": 1, "total_tokens": 1 } });
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        if stream.write_all(format!("{head}{answer}").as_bytes()).is_err() {
            return;
        }
    }
}

/// Vector of a text: a direction for each letter that it has.
fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.01; 26];
    for letter in text.bytes().filter(u8::is_ascii_lowercase) {
        vector[usize::from(letter - b'a')] += 1.0;
    }
    vector
}
