//! What is fetched for a workspace, by its network policy.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, ToolError, WorkspaceId};
use hivekeep_ports::{
    FoundWorkspace, GuestOperation, ReachRules, WorkspaceFiles, WorkspaceReadiness,
};
use serde_json::json;

use super::{
    server::{Server, no_rules, ok, redirect},
    stage::{Stage, options},
    targets::forbidden,
};
use crate::Options;

/// One workspace of the session and one of another, whose policies name 127.0.0.1 alone, until they are
/// closed.
struct Guests(FoundWorkspace, AtomicBool);

#[async_trait]
impl WorkspaceFiles for Guests {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let owner = self.0.owner.filter(|_| id_or_name == "mine");
        let known = ["mine", "theirs"].contains(&id_or_name);
        known.then(|| FoundWorkspace { owner, ..self.0.clone() })
    }

    async fn run(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _: GuestOperation,
    ) -> Result<Vec<u8>, ToolError> {
        panic!("the web does not touch files")
    }
}

impl ReachRules for Guests {
    fn admits(&self, id: WorkspaceId, host: &str, _: u16) -> bool {
        id == self.0.id && host == "127.0.0.1" && !self.1.load(SeqCst)
    }
}

#[tokio::test]
async fn what_is_fetched_for_a_workspace_is_what_its_policy_lets_it_reach() {
    let secret = forbidden().await;
    let (inside, port) = (secret.at, secret.at.port());
    let server = Server::new(no_rules(move |asked| match asked.path.as_str() {
        "/on" => redirect(&format!("http://other.test:{port}/")),
        _ => ok("text/plain", "reached"),
    }))
    .await;
    let options = Options { allow_networks: vec!["127.0.0.0/8".to_owned()], ..options() };
    let stage = Stage::with_names(&options, &[("other.test", &[&inside.ip().to_string()])]);
    let mine = FoundWorkspace {
        id: WorkspaceId::new(),
        name: "mine".to_owned(),
        owner: Some(stage.session),
        readiness: WorkspaceReadiness::Ready,
    };
    let guests = Arc::new(Guests(mine, AtomicBool::new(false)));
    stage.ports.offer::<dyn WorkspaceFiles>(guests.clone());
    stage.ports.offer::<dyn ReachRules>(guests.clone());
    let fetch = async |url: &str, workspace: &str| {
        let args = json!({ "url": url, "workspace_id": workspace });
        stage.fetch_with(args).await.map_err(|error| error.code.into_owned())
    };
    let page = fetch(&server.url("/"), "mine").await.expect("its policy names the address");
    assert_eq!(page.content, "reached");
    for (url, workspace, code) in [
        (server.url("/on"), "mine", "web_target_denied"),
        (format!("http://{inside}/"), "mine", "web_target_denied"),
        (format!("http://other.test:{port}/"), "mine", "web_target_denied"),
        (server.url("/"), "theirs", "not_owner"),
        (server.url("/"), "nobodys", "workspace_not_found"),
    ] {
        let refused = fetch(&url, workspace).await.map(|page| page.content);
        assert_eq!(refused, Err(code.to_owned()), "{url} {workspace}");
    }
    assert_eq!(secret.asked(), [""; 0]);
    // A page that is kept is no way around a policy that was closed since.
    let later = json!({ "url": server.url("/"), "workspace_id": "mine", "offset": 1 });
    assert_eq!(stage.fetch_with(later.clone()).await.expect("kept").content, "eached");
    guests.1.store(true, SeqCst);
    let refused = stage.fetch_with(later).await.map(|page| page.content);
    assert_eq!(refused.expect_err("closed").code, "web_target_denied");
    // The session itself may, by the operator's rules, unless those want a workspace.
    assert_eq!(stage.good(&server.url("/")).await.content, "reached");
    let stage = Stage::new(&Options { fetch_for_workspaces_only: true, ..options });
    assert_eq!(stage.refused(&server.url("/")).await, "web_target_denied");
}
