//! A program of others as an agent: in a sandbox without a network, with its model and its tools behind one port of its
//! loopback, and a daemon that is killed while it waits.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::house::{House, PATIENCE};

/// The operator's key in two parts, which the program is told, so that it can look for the whole.
const KEY: [&str; 2] = ["sk-of-the-", "operator-alone"];

/// Asks its model twice, the same byte for byte, and again until the answer is whole; calls a tool of ours; then says
/// what it was told and what it finds of a key or of a network.
const PROGRAM: &str = r#"
body='{"model":"m","messages":[{"role":"user","content":"how much?"}]}'
ask() {
  for try in $(seq 100); do
    if exec 3<>/dev/tcp/127.0.0.1/8790; then
      printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' "$OPENAI_API_KEY" "${#body}" "$body" >&3
      answer=$(cat <&3); exec 3>&-
      case $answer in *'200 OK'*finish_reason*) return;; esac
    fi
    sleep 0.2
  done
  printf %s "$answer" >&2; exit 9
}
ask; first=${answer##*content\":\"}
sleep 2
ask; second=${answer##*content\":\"}
[ "$first" = "$second" ] || exit 8
call='{"name":"fs_write","arguments":{"path":"ours.txt","content":"ours"}}'
printf '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}\n' "$call" |
  "$3" mcp "$4" | grep -q '"isError":false' || exit 5
[ "$(cat /workspace/ours.txt)" = ours ] || exit 4
grep -rlF "$1$2" /proc/[0-9]*/environ /workspace /root /etc /var /tmp 2>/dev/null && exit 7
[ "$(grep -c : /proc/net/dev)" = 1 ] || exit 6
echo "I was told ${first%%\"*}."
"#;

/// A provider that leaves the first request unanswered. Each request that came is told, by its body and its key.
fn provider() -> (u16, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (told, came) = mpsc::channel();
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let told = told.clone();
            thread::spawn(move || answer(stream.expect("a connection"), nth, &told));
        }
    });
    (port, came)
}

fn answer(stream: TcpStream, nth: usize, told: &Sender<(String, String)>) {
    let mut reader = BufReader::new(stream);
    let (mut length, mut key, mut line) = (0, String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if lower.starts_with("authorization:") {
            line.trim().clone_into(&mut key);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    // A test that is over does not listen.
    let _over = told.send((String::from_utf8(body).expect("text"), key));
    if nth == 0 {
        // Until the daemon goes.
        let _gone = reader.read(&mut [0]);
        return;
    }
    let text = json!({
        "choices": [{ "message": { "content": "a penny" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 7, "completion_tokens": 3 },
    });
    let text = text.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let _gone = reader.get_mut().write_all((head + &text).as_bytes());
}

/// Waits until a look finds what it looks for.
fn until(what: &str, look: impl Fn() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < limit, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub fn a_program_without_a_network_asks_through_the_daemon_and_outlives_it(mut house: House) {
    let (port, came) = provider();
    let config = house.path().join("config.toml");
    std::fs::write(house.path().join("key"), KEY.concat()).expect("written");
    let key_file = house.path().join("key");
    let mut file = OpenOptions::new().append(true).open(config).expect("the configuration");
    write!(
        file,
        "[model.provider.p]\nkind = \"openai-compatible\"\nendpoint = \"http://127.0.0.1:{port}/v1\"\n\
         key_file = {key_file:?}\nmodels = {{ m = {{}} }}\n"
    )
    .expect("written");
    house.restart();
    let command = json!({
        "argv": ["bash", "-c", PROGRAM, "program", KEY[0], KEY[1], "{mcp}", "{port}"],
        "wire": "chat", "protocol": "exit",
        "env": { "OPENAI_API_KEY": "{key}" },
    });
    let manifest = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": "asker", "version": "1.0.0" },
        "spec": {
            "runtime": { "language": "python", "version": "3.11", "model": "p", "command": command },
            "tools": ["fs.write"],
            "task": { "instruction": "Ask." },
        },
    });
    house.call("aegis.agent.create", json!({ "manifest_yaml": manifest.to_string() }));
    let begun = house.call("aegis.task.execute", json!({ "agent_id": "asker" }));
    let id = begun["execution_id"].clone();
    let events = |house: &House, kind: &str| {
        let logs = house.call("aegis.task.logs", json!({ "execution_id": id, "limit": 200 }));
        let events = logs["events"].as_array().expect("events");
        events.iter().filter(|event| event["event_type"] == kind).count()
    };

    // While its model does not answer.
    let first = came.recv_timeout(PATIENCE).expect("it asks");
    assert_eq!(
        first.1,
        format!("authorization: Bearer {}", KEY.concat()),
        "the key is the operator's"
    );
    house.restart();
    let again = came.recv_timeout(PATIENCE).expect("it asks again");
    assert_eq!(again, first, "byte for byte");
    until("the answer is recorded", || events(&house, "llm_interaction") == 1);
    // While it works with the answer.
    house.restart();
    let machine = house.list();
    assert_eq!(machine.len(), 1, "{machine:?}");
    until("it is told again", || {
        let status = house.call("aegis.task.status", json!({ "execution_id": id }));
        status["status"] != "running" || events(&house, "llm_answer_repeated") > 0
    });
    let wait = json!({ "execution_id": id, "timeout_seconds": 50 });
    let end: Value = house.call("aegis.task.wait", wait);
    assert_eq!(
        (&end["status"], &end["last_output"]),
        (&json!("completed"), &json!("I was told a penny.")),
        "{end}"
    );
    let counted = &end["model_requests"];
    assert_eq!((&counted["asked"], &counted["cut"]), (&json!(2), &json!(1)), "{end}");
    assert!(counted["answered_from_record"].as_u64() >= Some(1), "{end}");
    assert!(came.try_recv().is_err(), "no answer was asked for twice");
}
