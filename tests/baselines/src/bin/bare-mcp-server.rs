//! The least an MCP server can be: rmcp on standard input and output, one tool,
//! one fixed answer. What a tool call through the daemon is measured against.
//!
//! Its answer has the shape and size of `workspace_list` with no workspaces, so
//! that both sides carry the same bytes. `cargo xtask bench` runs it.

use std::sync::Arc;

use anyhow::Result;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::stdio,
};
use serde_json::json;

const TOOL: &str = "workspace_list";

#[derive(Clone)]
struct Bare;

fn tool() -> Tool {
    let schema = JsonObject::from_iter([("type".to_owned(), json!("object"))]);
    Tool::new(TOOL, "List workspaces.", Arc::new(schema))
}

impl ServerHandler for Bare {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == TOOL).then(tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != TOOL {
            return Err(ErrorData::invalid_params("there is one tool only", None));
        }
        let answer = CallToolResult::structured(json!({ "workspaces": [], "count": 0 }));
        Ok(CallToolResponse::Complete(answer))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    Bare.serve(stdio()).await?.waiting().await?;
    Ok(())
}
