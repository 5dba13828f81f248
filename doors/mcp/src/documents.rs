//! Documents of families as MCP resources: listed and read in the client's session.

use std::sync::Arc;

use hivekeep_kernel::{Progress, ToolError};
use hivekeep_registry::{ApprovalRoute, CallRequest};
use hivekeep_runtime::documents::{Document, DocumentBody, Documents, Page, Refusal, Template};
use rmcp::{
    ErrorData, RoleServer,
    model::{
        ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
        ResourcesCapability,
    },
    service::RequestContext,
};
use serde_json::{Map, Value, json};

use super::{McpHandler, answer};

/// Documents in one page.
const PAGE: usize = 200;

/// The capability declared for documents; `watchable`: clients may hear of some.
pub(super) fn capability(watchable: bool) -> ResourcesCapability {
    let mut capability = ResourcesCapability::default();
    let told = watchable.then_some(true);
    (capability.subscribe, capability.list_changed) = (told, told);
    capability
}

/// The URI template of one family's documents.
pub(super) fn template(documents: &Arc<dyn Documents>) -> ResourceTemplate {
    let Template { uri, name, title, description, mime_type, .. } = documents.template();
    ResourceTemplate::new(uri, name)
        .with_title(title)
        .with_description(description)
        .with_mime_type(mime_type)
}

/// Finds the documents that a URI is one of.
///
/// # Errors
/// Invalid parameters, with what is offered.
pub(super) fn owner<'d>(
    offered: &'d [Arc<dyn Documents>],
    uri: &str,
) -> Result<&'d Arc<dyn Documents>, ErrorData> {
    offered.iter().find(|documents| documents.has(uri)).ok_or_else(|| {
        let templates: Vec<_> = offered.iter().map(|one| one.template().uri).collect();
        let text = format!("`{uri}` is not one of {}", templates.join(", "));
        ErrorData::invalid_params(text, None)
    })
}

/// A cursor: which family's list, and after what of it. Clients must not make sense of it.
fn cursor(family: usize, after: &str) -> String {
    format!("{family}-{after}")
}

fn place(cursor: Option<&str>) -> Result<(usize, Option<&str>), ErrorData> {
    let Some(cursor) = cursor else { return Ok((0, None)) };
    let place =
        cursor.split_once('-').and_then(|(family, after)| Some((family.parse().ok()?, after)));
    let (family, after) = place
        .ok_or_else(|| ErrorData::invalid_params("unknown cursor: list from the start", None))?;
    Ok((family, Some(after).filter(|after| !after.is_empty())))
}

impl McpHandler {
    /// Documents that the client may read: those of families whose tools it is shown.
    pub(super) fn offered(&self) -> Vec<Arc<dyn Documents>> {
        let core = &self.0.core;
        let catalogue = core.catalogue();
        let shown = |documents: &&Arc<dyn Documents>| {
            let tool = catalogue.find(documents.tool());
            documents.enabled() && tool.is_some_and(|entry| self.0.view.shows(entry.spec))
        };
        core.documents.iter().filter(shown).cloned().collect()
    }

    /// A page of all documents, family by family; it goes on with the next one while there is room.
    pub(super) async fn list_documents(
        &self,
        at: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let offered = self.offered();
        let (from, after) = place(at.as_deref())?;
        let (mut after, mut listed) = (after.map(str::to_owned), Vec::new());
        let mut next_cursor = None;
        let listings = offered.iter().map(|documents| documents.listing()).enumerate();
        for (family, listing) in listings.skip(from) {
            let Some(documents) = listing else { continue };
            if listed.len() >= PAGE {
                next_cursor = Some(cursor(family, ""));
                break;
            }
            let args = documents.list_args(after.take().as_deref(), PAGE - listed.len());
            let answer = self.call_for(documents.list_tool(), args, context).await?;
            let Page { documents: page, next } =
                answer.and_then(|answer| documents.listed(answer)).map_err(answer::protocol)?;
            listed.extend(page.into_iter().map(resource));
            if let Some(after) = next {
                next_cursor = Some(cursor(family, &after));
                break;
            }
        }
        let mut result = ListResourcesResult::with_all_items(listed);
        result.next_cursor = next_cursor;
        Ok(result)
    }

    /// A document as it is.
    pub(super) async fn read_document(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let offered = self.offered();
        let documents = owner(&offered, &uri)?;
        let refused = |error| refused(documents, &uri, error);
        let args = documents.read_args(&uri).map_err(refused)?;
        let answer = self.call_for(documents.tool(), args, context).await?;
        let body = answer.and_then(|answer| documents.body(&uri, answer)).map_err(refused)?;
        let contents = match body {
            DocumentBody::Text(text) => ResourceContents::text(text, uri.clone())
                .with_mime_type(documents.template().mime_type),
            DocumentBody::Binary { base64, mime_type } => {
                ResourceContents::blob(base64, uri.clone()).with_mime_type(mime_type)
            }
        };
        Ok(ReadResourceResult::new(vec![contents]))
    }

    pub(super) async fn call_for(
        &self,
        tool: &str,
        args: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<Value, ToolError>, ErrorData> {
        let session = self.session(context).await?;
        let call = self.0.core.dispatcher.call(CallRequest {
            session,
            door: self.0.door,
            tool: tool.to_owned(),
            args,
            progress: Progress::default(),
            cancel: context.ct.clone(),
            timeout: None,
            view: self.0.view.clone(),
            trace: super::calls::trace(context),
            effect: None,
            approval: ApprovalRoute::waiting(),
        });
        Ok(call.await.result)
    }
}

fn resource(document: Document) -> Resource {
    let Document { uri, name, mime_type, size } = document;
    Resource::new(uri, name).with_mime_type(mime_type).with_size(size)
}

/// A document that is not read, in the protocol's codes.
pub(super) fn refused(documents: &Arc<dyn Documents>, uri: &str, error: ToolError) -> ErrorData {
    let (text, refusal) = (error.to_text(), documents.refusal(&error));
    let data = Some(json!({ "uri": uri, "error": error }));
    match refusal {
        Refusal::Missing => ErrorData::resource_not_found(text, data),
        Refusal::Invalid => ErrorData::invalid_params(text, data),
        Refusal::Failed => ErrorData::internal_error(text, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        assert_eq!(place(None).expect("the beginning"), (0, None));
        assert_eq!(place(Some(&cursor(2, ""))).expect("a beginning"), (2, None));
        assert_eq!(place(Some(&cursor(0, "a-b/c.md"))).expect("a place"), (0, Some("a-b/c.md")));
        for bad in ["", "made up", "x-a.md", "-1-a.md"] {
            assert!(place(Some(bad)).is_err(), "{bad}");
        }
    }
}
