//! A program of others as an agent: in a sandbox without a network, with its model and its tools behind one port of its
//! loopback, and a daemon that is killed while it waits; and in a machine that is forked while it waits.

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

/// Asks its model, the same byte for byte until the answer is whole.
const ASK: &str = r#"
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
"#;
/// Asks twice, calls a tool of ours, and says what it was told and what it finds of a key or of a network.
const LOOK: &str = r#"
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

/// Asks once, and says what it was told.
const SAY: &str = r#"
ask; told=${answer##*content\":\"}
echo "I was told ${told%%\"*}."
"#;

/// Answer to a request, by its number and its body; none for one that is left until the daemon goes.
type Reply = fn(usize, &str) -> Option<&'static str>;

/// A provider. Each request that came is told, by its body and its key.
fn provider(reply: Reply) -> (u16, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (told, came) = mpsc::channel();
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let told = told.clone();
            thread::spawn(move || {
                answer(stream.expect("a connection"), &told, |body| reply(nth, body))
            });
        }
    });
    (port, came)
}

fn answer(
    stream: TcpStream,
    told: &Sender<(String, String)>,
    reply: impl Fn(&str) -> Option<&'static str>,
) {
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
    let body = String::from_utf8(body).expect("text");
    let answer = reply(&body);
    // A test that is over does not listen.
    let _over = told.send((body, key));
    let Some(answer) = answer else {
        let _gone = reader.read(&mut [0]);
        return;
    };
    let text = json!({
        "choices": [{ "message": { "content": answer }, "finish_reason": "stop" }],
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

/// Runs a program whose model is at a port; its execution.
fn begun(house: &mut House, port: u16, program: &str, spec: Value) -> Value {
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
        "argv": ["bash", "-c", format!("{ASK}{program}"), "program", KEY[0], KEY[1], "{mcp}", "{port}"],
        "wire": "chat", "protocol": "exit",
        "env": { "OPENAI_API_KEY": "{key}" },
    });
    let mut manifest = json!({
        "apiVersion": "100monkeys.ai/v1", "kind": "Agent",
        "metadata": { "name": "asker", "version": "1.0.0" },
        "spec": spec,
    });
    manifest["spec"]["task"] = json!({ "instruction": "Ask." });
    let runtime = manifest["spec"]["runtime"].as_object_mut().expect("one");
    runtime.extend([("model".to_owned(), json!("p")), ("command".to_owned(), command)]);
    house.call("aegis.agent.create", json!({ "manifest_yaml": manifest.to_string() }));
    let begun = house.call("aegis.task.execute", json!({ "agent_id": "asker" }));
    begun["execution_id"].clone()
}

fn ended(house: &House, id: &Value) -> Value {
    house.call("aegis.task.wait", json!({ "execution_id": id, "timeout_seconds": 100 }))
}

pub fn a_program_in_a_machine_goes_on_in_each_fork_with_its_words(mut house: House) {
    let (port, came) = provider(|_, body| {
        let said = [("in pounds", "a pound"), ("in dollars", "a dollar")];
        let found = said.into_iter().find(|(words, _)| body.contains(words));
        Some(found.map_or("a penny", |(_, answer)| answer))
    });
    let runtime = json!({ "language": "python", "version": "3.11", "isolation": "microvm" });
    let spec = json!({ "runtime": runtime, "execution": { "checkpoint": "turn" } });
    let id = begun(&mut house, port, SAY, spec);
    let end = ended(&house, &id);
    assert_eq!(end["last_output"], "I was told a penny.", "{end}");
    let words = ["Say it in pounds.", "Say it in dollars."].map(|it| json!({ "instruction": it }));
    let forks = json!({ "execution_id": id, "variations": words });
    let forks = house.call("agent_fork", forks)["execution_ids"].clone();
    for (fork, told) in forks.as_array().expect("ids").iter().zip(["a pound", "a dollar"]) {
        let end = ended(&house, fork);
        assert_eq!(end["last_output"], format!("I was told {told}."), "{end}");
        assert_eq!(end["model_requests"]["asked"], 1, "{end}");
    }
    let bodies: Vec<_> = came.try_iter().map(|(body, _)| body).collect();
    assert_eq!(bodies.len(), 3, "each answer is paid once: {bodies:?}");
    assert_eq!(house.list().len(), 3, "each has a machine of its own");
}

pub fn a_program_without_a_network_asks_through_the_daemon_and_outlives_it(mut house: House) {
    let (port, came) = provider(|nth, _| (nth > 0).then_some("a penny"));
    let spec = json!({
        "runtime": { "language": "python", "version": "3.11" }, "tools": ["fs.write"],
    });
    let id = begun(&mut house, port, LOOK, spec);
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
    let end = ended(&house, &id);
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
