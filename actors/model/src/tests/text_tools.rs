//! Models without calls of tools: what they are sent, and what is read of their answers.

use hivekeep_ports::{
    ModelDelta, ModelMessage, ModelRequest, ModelStop, ModelTool, ModelToolCall, ModelToolChoice,
};
use serde_json::{Value, json};

use super::{
    fake::{Fake, openai},
    stage::{Stage, one, question, stage},
};

fn tool() -> ModelTool {
    let input_schema = json!({ "type": "object", "required": ["path"], "properties": {
        "path": { "type": "string", "maxLength": 1_000_000, "description": "Where." },
        "place": { "type": ["string", "null"] } } });
    ModelTool { name: "fs_read".to_owned(), description: "Reads a file.".to_owned(), input_schema }
}

fn call(name: &str, arguments: Value) -> ModelToolCall {
    ModelToolCall { id: "call_1".to_owned(), name: name.to_owned(), arguments, signature: None }
}

/// A conversation with a call and its result.
fn conversation(stage: &Stage) -> ModelRequest {
    let asked = question(stage.rig.session, "p/m", "Look.");
    let read = call("fs_read", json!({ "path": "a" }));
    let calls = vec![read.clone()];
    let messages = vec![
        ModelMessage::User("Look.".to_owned()),
        ModelMessage::Assistant { text: "I do.".to_owned(), calls },
        ModelMessage::ToolResult { call: read, content: "gone".to_owned(), is_error: true },
        ModelMessage::User("Hurry.".to_owned()),
    ];
    ModelRequest { messages, tools: vec![tool()], ..asked }
}

async fn staged(fake: &Fake, form: &str) -> Stage {
    stage(one(fake, json!({ "models": { "m": { "tools": form } } }))).await
}

#[tokio::test]
async fn tools_are_told_in_words_and_calls_are_read_from_the_answer() {
    let said = "Now:\n```tool_call\n{ \"tool\": \"fs_read\",\n  \"arguments\": { \"path\": \"b\" } }\n```\n";
    let fake = Fake::always(openai(said)).await;
    let stage = staged(&fake, "text").await;
    let mut stream = stage.models.stream(conversation(&stage)).expect("begun");
    let mut deltas = Vec::new();
    while let Some(delta) = stream.next().await {
        deltas.push(delta);
    }
    let answer = stream.answer().await.expect("answered");
    let wanted = call("fs_read", json!({ "path": "b" }));
    assert_eq!(
        (answer.text.as_str(), &answer.calls, answer.stop),
        ("Now:", &vec![wanted.clone()], ModelStop::ToolCalls)
    );
    assert_eq!(deltas, [ModelDelta::Text("Now:".to_owned()), ModelDelta::ToolCall(wanted)]);

    let body = &fake.asked()[0].body;
    assert!(body.get("tools").is_none(), "{body}");
    let messages = body["messages"].as_array().expect("messages");
    let system = messages[0]["content"].as_str().expect("text");
    assert!(system.contains("```tool_call") && system.contains("fs_read: Reads a file."));
    let past = "I do.\n```tool_call\n{\"tool\":\"fs_read\",\"arguments\":{\"path\":\"a\"}}\n```";
    let told: Vec<_> =
        messages[1..].iter().map(|it| it["content"].as_str().expect("text")).collect();
    assert_eq!(told, ["Look.", past, "fs_read failed:\ngone\n\nHurry."]);
    // What it may come to is that of what is sent.
    let native = ModelRequest { tools: Vec::new(), ..question(stage.rig.session, "p/m", "Look.") };
    let worst =
        |request: &ModelRequest| stage.models.worst_case(request).expect("known").input_tokens;
    assert!(worst(&conversation(&stage)) > worst(&native) + system.len() as u64 / 3);

    let never = ModelRequest { tool_choice: ModelToolChoice::Never, ..conversation(&stage) };
    let answer = stage.models.generate(never).await.expect("answered");
    assert_eq!((answer.text.as_str(), answer.calls.len()), (said, 0), "it was offered none");
    assert_ne!(fake.asked()[1].body["messages"][0]["role"], "system");
}

#[tokio::test]
async fn a_call_that_cannot_be_read_is_told_as_one() {
    for (form, said, why) in [
        ("text", "```tool_call\n{ tool: fs_read }\n```", "not readable as JSON"),
        (
            "text",
            "```tool_call\n{\"tool\":\"fs_read\",\"arguments\":[]}\n```",
            "not readable as JSON",
        ),
        ("text", "```tool_call\n{\"tool\":\"fs_read\"}\n```", "with `tool`, a text"),
        (
            "text",
            "```tool_call\n{\"tool\":\"a\",\"tool\":\"b\",\"arguments\":{}}\n```",
            "duplicate field",
        ),
        ("text", "```tool_call\n{\"tool\":\"fs_read\",\"arguments\":{}}", "does not end"),
        ("json", "I am done.", "not readable as JSON"),
        ("json", "{\"tool\":\"fs_read\",\"arguments\":{},\"answer\":\"x\"}", "with `tool`, a text"),
    ] {
        let fake = Fake::always(openai(said)).await;
        let stage = staged(&fake, form).await;
        let answer = stage.models.generate(conversation(&stage)).await.expect("answered");
        let [unreadable] = &answer.calls[..] else { panic!("{said}: {answer:?}") };
        let told = unreadable.arguments.as_str().expect("a reason");
        assert!(unreadable.name == "unreadable_call" && told.contains(why), "{said}: {told}");
        // The model sees what it wrote.
        assert_eq!(answer.text.trim_end(), said);
        let again = ModelMessage::Assistant { text: answer.text, calls: answer.calls };
        let mut next = conversation(&stage);
        next.messages.insert(3, again);
        stage.models.generate(next).await.expect("answered");
        let sent = fake.asked()[1].body["messages"].to_string();
        assert!(!sent.contains("unreadable_call"), "{sent}");
    }
}

#[tokio::test]
async fn a_server_holds_the_answer_to_the_schemas_of_the_tools() {
    let fake = Fake::new(|_, nth| match nth {
        0 => openai("{\"tool\":\"fs_read\",\"arguments\":{\"path\":\"b\"}}"),
        _ => openai("{\"answer\":\"Done.\"}"),
    })
    .await;
    let stage = staged(&fake, "json").await;
    let first = stage.models.generate(conversation(&stage)).await.expect("answered");
    assert_eq!(first.calls, [call("fs_read", json!({ "path": "b" }))]);
    let last = stage.models.generate(conversation(&stage)).await.expect("answered");
    assert_eq!((last.text.as_str(), last.calls.len()), ("Done.", 0));
    let schema = &fake.asked()[0].body["response_format"]["json_schema"]["schema"];
    let forms = schema["anyOf"].as_array().expect("forms");
    assert_eq!((forms.len(), &forms[0]["properties"]["tool"]["const"]), (2, &json!("fs_read")));
    let arguments = json!({ "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": { "path": { "type": "string" } } });
    assert_eq!(forms[0]["properties"]["arguments"], arguments);
    let past = &fake.asked()[0].body["messages"][2]["content"];
    assert_eq!(past, "{\"tool\":\"fs_read\",\"arguments\":{\"path\":\"a\"}}");
}
