//! The tools that the suite calls, declared and served like any other.

use std::{borrow::Cow, time::Duration};

use hivekeep_kernel::{
    CallCx, Context, Entity, Fault, Layer, Reply, ToolCall, ToolError, ToolInfo, codes, serve,
    tools, workers::Workers,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use hivekeep_policy::Approvals;

use crate::{content, questions, resources, slow};

/// The actor that serves them.
pub struct Fixtures {
    workers: Workers,
    pub(crate) approvals: Approvals,
}

impl Entity for Fixtures {
    type Msg = ToolCall;
    type Args = Approvals;

    async fn start(approvals: Approvals, me: Context<ToolCall>) -> Result<Self, Fault> {
        Ok(Self { workers: me.workers, approvals })
    }

    fn handle(&mut self, call: ToolCall) -> Result<(), Fault> {
        let workers = self.workers.clone();
        serve::serve(
            self,
            &[&FAMILY, &content::FAMILY, &questions::FAMILY, &slow::FAMILY],
            &workers,
            call,
        );
        Ok(())
    }
}

/// What the catalogue lists.
pub fn tools() -> Vec<&'static ToolInfo> {
    let rows =
        [&FAMILY, &content::FAMILY, &questions::FAMILY, &slow::FAMILY].map(|family| family.rows);
    rows.into_iter().flatten().map(|(info, _)| info).collect()
}

/// A text.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// The text.
    pub text: String,
}

fn text(text: &str) -> Reply<Text> {
    Reply::Now(Text { text: text.to_owned() })
}

/// Returns a fixed text.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SimpleText {}

/// Fails, always.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ErrorHandling {}

/// Reports progress three times and ends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct WithProgress {}

/// Answers over a stream, and asks its client nothing on the way.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct StreamingElicitation {}

/// Says nothing beside its answer.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct LoggingTool {}

/// Reads a resource.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ReadResource {
    /// The resource.
    pub uri: String,
}

/// Takes an input whose schema uses definitions of JSON Schema 2020-12.
#[derive(Debug, Deserialize)]
pub struct Schema2020 {}

tools! { pub FAMILY: "fixtures" for Fixtures, singleton fixtures;
    test_simple_text: SimpleText => Text = Fixtures::on_test_simple_text {
        title: "Say a text", effect: Read,
    };
    test_error_handling: ErrorHandling => Text = Fixtures::on_test_error_handling {
        title: "Fail", effect: Read,
    };
    test_tool_with_progress: WithProgress => Text = Fixtures::on_test_tool_with_progress {
        title: "Report progress", effect: Read,
    };
    test_streaming_elicitation: StreamingElicitation => Text = Fixtures::on_test_streaming_elicitation {
        title: "Answer over a stream", effect: Read,
    };
    test_logging_tool: LoggingTool => Text = Fixtures::on_test_logging_tool {
        title: "Say nothing else", effect: Read,
    };
    test_read_resource: ReadResource => Text = Fixtures::on_test_read_resource {
        title: "Read a resource", effect: Read,
    };
    json_schema_2020_12_tool: Schema2020 => Text = Fixtures::on_json_schema_2020_12_tool {
        title: "Take a rich input", effect: Read,
    };
}

impl Fixtures {
    fn on_test_simple_text(&mut self, _: &CallCx, _: SimpleText) -> Result<Reply<Text>, ToolError> {
        Ok(text("This is a simple text response for testing."))
    }

    fn on_test_error_handling(
        &mut self,
        _: &CallCx,
        _: ErrorHandling,
    ) -> Result<Reply<Text>, ToolError> {
        Err(ToolError::invalid("this tool intentionally returns an error for testing"))
    }

    fn on_test_tool_with_progress(
        &mut self,
        cx: &CallCx,
        _: WithProgress,
    ) -> Result<Reply<Text>, ToolError> {
        let progress = cx.progress.clone();
        Ok(Reply::later(async move {
            for done in [0.0, 50.0, 100.0] {
                progress.report(done, Some(100.0), "working");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(Text { text: "done".to_owned() })
        }))
    }

    fn on_test_streaming_elicitation(
        &mut self,
        cx: &CallCx,
        _: StreamingElicitation,
    ) -> Result<Reply<Text>, ToolError> {
        self.on_test_tool_with_progress(cx, WithProgress {})
    }

    fn on_test_logging_tool(
        &mut self,
        _: &CallCx,
        _: LoggingTool,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(text("nothing was logged"))
    }

    fn on_test_read_resource(
        &mut self,
        _: &CallCx,
        input: ReadResource,
    ) -> Result<Reply<Text>, ToolError> {
        match resources::text(&input.uri) {
            Some(found) => Ok(text(&found)),
            None => {
                let code = codes::NOT_FOUND;
                Err(ToolError::not_found(Layer::Actor, code, "resource", &input.uri))
            }
        }
    }

    fn on_json_schema_2020_12_tool(
        &mut self,
        _: &CallCx,
        _: Schema2020,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(text("the input fits"))
    }
}

impl JsonSchema for Schema2020 {
    fn schema_name() -> Cow<'static, str> {
        "Schema2020".into()
    }

    /// The suite's schema, and it looks for each keyword in the listing. Left out
    /// are the conditions at its root (`allOf`, `if`): the catalogue refuses them,
    /// because there are clients that take one plain object only.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "description": "Takes an input whose schema uses definitions of JSON Schema 2020-12.",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {
                        "street": { "type": "string", "description": "Street." },
                        "city": { "type": "string", "description": "City." },
                    },
                },
            },
            "properties": {
                "name": { "type": "string", "description": "Who." },
                "address": { "$ref": "#/$defs/address", "description": "Where." },
                "contactMethod": {
                    "type": "string", "enum": ["phone", "email"], "description": "How.",
                },
                "phone": { "type": "string", "description": "A number." },
                "email": { "type": "string", "description": "An address." },
            },
            "additionalProperties": false,
        })
    }
}
