//! Language models of a daemon, driven from outside: a script, a provider that is spoken by hand, budgets over a
//! kill, and a server of ours.

mod real;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use serde_json::{Value, json};

use crate::{
    home::{Home, show, wait_until},
    wire::Wire,
};

/// A question.
const ASK: &str = r#"{"prompt": "x"}"#;
/// A key that must never be seen.
const KEY: &str = "k3y-that-nobody-sees";

fn home(config: &str) -> Home {
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

/// A home with a scripted provider.
fn scripted(replies: &Value, more: &str) -> Home {
    let home = home("");
    let script = home.path("script.json");
    std::fs::write(&script, json!({ "replies": replies }).to_string()).expect("writes");
    let config = format!(
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\n\
         models = {{ m = {{ max_output_tokens = 100 }} }}\n{more}"
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

/// A provider that answers as OpenAI's server does, with the key that it was sent, or hangs once it has begun.
struct Provider {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Provider {
    fn start(hangs: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let asked = Arc::<AtomicUsize>::default();
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                std::thread::spawn(move || serve(stream, hangs, &seen));
            }
        });
        Self { url, asked }
    }
}

fn serve(mut stream: TcpStream, hangs: bool, asked: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((line.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().expect("a number"),
            "authorization" => key = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let right = key == format!("Bearer {KEY}");
    let said = if right { "The key is right." } else { "Who are you?" };
    let event = |data: Value| format!("data: {data}\n\n");
    let mut answer = event(json!({ "choices": [{ "delta": { "content": said } }] }));
    if !hangs {
        answer += &event(json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }));
        answer += &event(
            json!({ "choices": [], "usage": { "prompt_tokens": 9, "completion_tokens": 4 } }),
        );
        answer += "data: [DONE]\n\n";
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _the_daemon_may_have_died = stream.write_all(format!("{head}{answer}").as_bytes());
    if length > 0 {
        asked.fetch_add(1, SeqCst);
    }
    if hangs {
        // Until the daemon goes away.
        let _read = reader.read(&mut [0]);
    }
}

fn with_provider(provider: &Provider, more: &str) -> Home {
    let home = home("");
    std::fs::write(home.path("key"), KEY).expect("writes");
    let config = format!(
        "[model.provider.near]\nkind = \"openai-compatible\"\nendpoint = {:?}\nkey_file = {:?}\n\
         models = {{ m = {{ max_output_tokens = 100 }} }}\n{more}",
        provider.url,
        home.path("key"),
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

fn spent(home: &Home) -> Value {
    home.json(&["models", "--json"])["spent"]["total"].clone()
}

#[test]
fn a_script_answers_over_mcp_and_says_what_it_is() {
    let replies = json!([{ "when": "capital", "text": "Paris." }]);
    let home = scripted(&replies, "");
    let _daemon = home.daemon();
    let mut wire = Wire::mcp(&home);
    let answer = wire.call(1, "ml_generate", json!({ "prompt": "The capital?" }));
    let answer = &answer["result"]["structuredContent"];
    assert_eq!(
        (&answer["response"], &answer["provider_kind"]),
        (&json!("Paris."), &json!("scripted"))
    );
    let shown = home.ok(&["models"]);
    for part in ["script/m", "scripted", "ready", "all sessions (month)"] {
        assert!(shown.contains(part), "{shown}");
    }
    let events = home.ok(&["events", "--json"]);
    assert!(events.contains("model.answered") && events.contains("scripted"), "{events}");
}

#[test]
fn without_a_provider_the_command_line_says_what_to_write() {
    let home = home("");
    let _daemon = home.daemon();
    assert!(home.ok(&["models"]).contains("[model.provider.local]"));
    let refused = home.run(&["call", "ml_generate", "--json", ASK]);
    let text = show(&refused);
    assert!(!refused.status.success() && text.contains("llm_not_configured"), "{text}");
    assert!(text.contains("model.provider"), "{text}");
}

#[test]
fn a_key_reaches_its_provider_and_nobody_else() {
    let provider = Provider::start(false);
    let home = with_provider(&provider, "");
    let mut daemon = home.daemon();
    let answer = home.json(&["call", "ml_generate", "--json", ASK]);
    assert_eq!(answer["response"], "The key is right.");
    let mut told = vec![answer.to_string(), home.ok(&["events", "--json"])];
    for command in [&["models", "--json"][..], &["config"], &["ps"]] {
        told.push(show(&home.run(command)));
    }
    home.ok(&["stop"]);
    daemon.wait();
    for text in told {
        assert!(!text.contains(KEY), "{text}");
    }
    let (mut folders, mut files) = (vec![home.path("")], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.path() != home.path("key") {
                files += 1;
                let bytes = std::fs::read(entry.path()).expect("reads");
                let found = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
                assert!(!found, "{}", entry.path().display());
            }
        }
    }
    assert!(files > 3, "journal and logs were looked through");
}

#[test]
fn a_budget_that_is_used_up_stays_so_for_the_next_daemon() {
    let replies = json!([{ "when": "x", "text": "yes", "input_tokens": 20, "output_tokens": 30 }]);
    let home = scripted(&replies, "[model.budget]\ntotal_tokens = 160\n");
    for turn in 0..2 {
        let daemon = home.daemon();
        let call = home.run(&["call", "ml_generate", "--json", ASK]);
        assert_eq!(call.status.success(), turn == 0, "{}", show(&call));
        assert!(turn == 0 || show(&call).contains("llm_budget_exceeded"), "{}", show(&call));
        assert_eq!(spent(&home)["tokens"], 50);
        daemon.signal(rustix::process::Signal::KILL);
        drop(daemon);
    }
}

/// A request is cut by the daemon's end: it is counted whole, for the provider may have charged it.
#[test]
fn a_request_that_a_kill_cut_counts_as_spent() {
    let provider = Provider::start(true);
    let home = with_provider(&provider, "[model.budget]\ntotal_tokens = 1000\n");
    let mut daemon = home.daemon();
    let mut call = home.command(&["call", "ml_generate", "--json", ASK]).spawn().expect("it runs");
    wait_until("the provider is asked", || provider.asked.load(SeqCst) == 1);
    let reserved = 1 + 16 + 100;
    assert_eq!(spent(&home)["tokens"], reserved);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    assert!(!call.wait().expect("it ends").success());
    let _again = home.daemon();
    assert_eq!(spent(&home), json!({ "requests": 1, "tokens": reserved, "usd": 0.0 }));
}

/// The daemon dies at each point of a request, and the next one knows what it may have cost.
#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_kill_at_each_point_loses_no_spending() {
    let replies = json!([{ "when": "x", "text": "yes", "input_tokens": 20, "output_tokens": 30 }]);
    for (point, tokens) in
        [("model.after_reserved", 117), ("model.before_settled", 117), ("model.after_settled", 50)]
    {
        let home = scripted(&replies, "[model.budget]\ntotal_tokens = 1000\n");
        let home = home.with("FAILPOINTS", &format!("{point}=return(kill)"));
        let mut daemon = home.daemon();
        let cut_off = home.run(&["call", "ml_generate", "--json", ASK]);
        assert!(!cut_off.status.success(), "{point}: {}", show(&cut_off));
        daemon.wait();
        let home = home.with("FAILPOINTS", "");
        let _again = home.daemon();
        assert_eq!(spent(&home), json!({ "requests": 1, "tokens": tokens, "usd": 0.0 }), "{point}");
        home.ok(&["call", "ml_generate", "--json", ASK]);
        assert_eq!(spent(&home)["tokens"], tokens + 50, "{point}");
    }
}
