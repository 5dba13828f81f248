//! What other families have of workspaces: connections to ports of guests, and what is known without a question.

use std::time::Duration;

use hivekeep_kernel::{CallCx, SessionId, User, WorkspaceId};
use hivekeep_link::fake::RequestBehaviour;
use hivekeep_ports::{ByteStream, NetworkMode, ProgramConnections, WorkspaceFiles, WorkspacePorts};
use hivekeep_protocol::{GuestCode, GuestError, ToGuest};
use hivekeep_testkit::context;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    stage::{Stage, guest},
    wires::Wires,
};
use crate::{WorkspaceFilesHandle, WorkspacePortsHandle};

/// Port 80 echoes; nothing listens on others.
fn script(request: &ToGuest) -> RequestBehaviour {
    match request {
        ToGuest::OpenStream(open) if open.port == 80 => RequestBehaviour::Echo,
        ToGuest::AcceptStream(accept) if accept.port == 8_000 => RequestBehaviour::Echo,
        ToGuest::OpenStream(_) => {
            RequestBehaviour::Reply(Err(GuestError::new(GuestCode::PortClosed, "nothing")))
        }
        other => guest(other),
    }
}

fn own_cx(session: SessionId) -> CallCx {
    context(session, "internal", Duration::from_secs(30), Default::default())
}

async fn refused(
    ports: &WorkspacePortsHandle,
    session: SessionId,
    id: WorkspaceId,
    port: u16,
) -> String {
    let dialled = ports.dial(&own_cx(session), id, port).await;
    dialled.map(|_| ()).expect_err("refused").code.into_owned()
}

#[tokio::test]
async fn the_owner_reaches_ports_without_a_network_and_nobody_else_does() {
    let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(network, script).await;
    let id: WorkspaceId = stage.create("w").await.parse().unwrap();
    let ports = WorkspacePortsHandle::new(stage.daemon.shared.clone());
    let own = own_cx(stage.session);
    let mut stream: Box<dyn ByteStream> = ports.dial(&own, id, 80).await.unwrap();
    stream.write_all(b"over the link").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut echo = String::new();
    stream.read_to_string(&mut echo).await.unwrap();
    assert_eq!(echo, "over the link");

    let mut taken = ports.accept(&own, id, 8_000).await.unwrap();
    taken.write_all(b"from a program").await.unwrap();
    taken.shutdown().await.unwrap();
    let mut echo = String::new();
    taken.read_to_string(&mut echo).await.unwrap();
    assert_eq!(echo, "from a program");
    let others = ports.accept(&own_cx(SessionId::new()), id, 8_000).await;
    assert_eq!(others.map(|_| ()).expect_err("refused").code, "not_owner");

    assert_eq!(refused(&ports, stage.session, id, 81).await, "port_closed");
    assert_eq!(refused(&ports, SessionId::new(), id, 80).await, "not_owner");
    assert_eq!(refused(&ports, stage.session, WorkspaceId::new(), 80).await, "workspace_not_found");
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(refused(&ports, stage.session, id, 80).await, "workspace_state");
}

#[tokio::test]
async fn a_users_workspaces_and_their_labels_are_known_without_a_call() {
    let stage = Stage::open().await;
    let wanted = json!({ "name": "w", "disk_gb": 1, "labels": { "a": "b" } });
    let made = stage.call("workspace_create", wanted).await.unwrap();
    let id: WorkspaceId = made["workspace_id"].as_str().unwrap().parse().unwrap();
    let known = WorkspaceFilesHandle::new(stage.daemon.shared.clone());
    // Every session of the stage is this user's.
    assert_eq!(known.of_user(User::Bearer), [id]);
    assert_eq!(known.of_user(User::Nobody), []);
    assert!(known.has_label(id, "a", "b"));
    assert!(!known.has_label(id, "a", "c") && !known.has_label(id, "b", "b"));
    assert!(!known.has_label(WorkspaceId::new(), "a", "b"));
}
