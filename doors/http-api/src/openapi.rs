//! The OpenAPI 3.1 document, from the handlers, and the routes that it is of.

use std::sync::Arc;

use axum::Router;
use utoipa::{
    OpenApi as _,
    openapi::{
        Content, OpenApi, Ref, RefOr, Response, ResponseBuilder,
        path::Operation,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    approvals, artifacts, audit, chats, events, execution_files, grants, invoke, policy,
    published::{AnyErrorBody, PlainErrorBody},
    runs, sessions,
    state::Api,
    status, tools, toolsets, webhooks,
};

/// Name of the way to authenticate.
const SCHEME: &str = "bearer";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "hivekeep",
        description = "Tools, the decisions about them, sessions and events. Operations of the tag \
            `tools` are the published tool registry's; those of the tag `hivekeep` are additions.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "tools", description = "The published tool registry."),
        (name = "hivekeep", description = "Additions of this daemon."),
    ),
    components(schemas(PlainErrorBody, AnyErrorBody)),
)]
struct Document;

/// All routes that the document has, and the document.
pub(super) fn routes() -> (Router<Arc<Api>>, OpenApi) {
    let (routes, mut document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(tools::list))
        .routes(routes!(tools::search))
        .routes(routes!(tools::get))
        .routes(routes!(invoke::invoke))
        .routes(routes!(tools::of_session))
        .routes(routes!(tools::search_of_session))
        .routes(routes!(approvals::mint::mint))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::get))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::deny))
        .routes(routes!(sessions::list, sessions::open))
        .routes(routes!(sessions::get))
        .routes(routes!(sessions::stop))
        .routes(routes!(sessions::resume))
        .routes(routes!(toolsets::list))
        .routes(routes!(toolsets::get))
        .routes(routes!(status::actors))
        .routes(routes!(events::stream_events))
        .routes(routes!(events::socket))
        .routes(routes!(audit::list))
        .routes(routes!(audit::export))
        .routes(routes!(artifacts::list))
        .routes(routes!(artifacts::info))
        .routes(routes!(artifacts::download))
        .routes(routes!(execution_files::download))
        .routes(routes!(chats::list, chats::open))
        .routes(routes!(chats::messages, chats::send))
        .routes(routes!(chats::stream))
        .routes(routes!(runs::stream))
        .routes(routes!(webhooks::begin))
        .routes(routes!(policy::rules, policy::add))
        .routes(routes!(policy::remove))
        .routes(routes!(policy::explain))
        .routes(routes!(grants::list))
        .routes(routes!(grants::revoke))
        .routes(routes!(status::health))
        .split_for_parts();
    complete(&mut document);
    (routes, document)
}

/// Adds what holds for every route: the credential, and the answers that come before any handler.
fn complete(document: &mut OpenApi) {
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme(SCHEME, scheme);
    document.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post, &mut item.delete].into_iter().flatten() {
            guards(operation);
        }
    }
}

fn guards(operation: &mut Operation) {
    let public = operation.security.is_some();
    let body = operation.request_body.is_some();
    for (status, why, holds) in [
        ("400", "The request is not valid.", true),
        ("401", "No credential, or one that is not known or was revoked.", !public),
        ("403", "A foreign Host or Origin, or a credential of another scope.", true),
        ("408", "The body took too long.", body),
        ("413", "The body is too large.", body),
        ("503", "Too much runs already; try again soon.", true),
    ] {
        let responses = &mut operation.responses.responses;
        if holds && !responses.contains_key(status) {
            responses.insert(status.to_owned(), RefOr::T(plain(why)));
        }
    }
}

fn plain(why: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("AnyError")));
    ResponseBuilder::new().description(why).content("application/json", content).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_says_what_guards_it() {
        let (_, document) = routes();
        let document = serde_json::to_value(document).expect("it serialises");
        assert_eq!(document["openapi"], "3.1.0");
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                let responses = operation["responses"].as_object().expect("responses");
                let public = operation["security"].is_array();
                let open = ["/api/health", execution_files::PATH].contains(&&**path);
                assert_eq!(public, open, "{path}");
                assert!(public || responses.contains_key("401"), "{method} {path}");
                assert!(responses.contains_key("403"), "{method} {path}");
                let body = operation["requestBody"].is_object();
                assert_eq!(responses.contains_key("413"), body, "{method} {path}");
                let tag = operation["tags"][0].as_str().expect("a tag");
                let published = path.contains("/tools/") || path.ends_with("/tools");
                assert_eq!(tag == "tools", published, "{path} is tagged {tag}");
                operations += 1;
            }
        }
        assert!(operations >= 30, "{operations}");
    }
}
