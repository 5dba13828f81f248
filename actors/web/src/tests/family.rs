//! The family as it is mounted, with the resolver of the host.

use std::{sync::Arc, time::Duration};

use hivekeep_ports::LateTools;
use hivekeep_runtime::{Family, FamilyOptions, Folders, Host};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, eventually};
use serde_json::json;

use super::{
    server::{Reply, Server},
    stage::options,
};
use crate::{Options, ProviderKind, ProviderOptions, WebFamily};

async fn mounted(options: Options) -> Rig<WebFamily> {
    let services = RigServices {
        sessions: Arc::new(FakeUsers::default()),
        tools: Arc::new(LateTools::default()),
        offer: Arc::new(|_| ()),
    };
    Rig::new(options, services).await
}

#[tokio::test]
async fn the_hosts_own_names_are_refused_and_searches_say_what_to_set() {
    let rig = mounted(Options::default()).await;
    let refused =
        rig.call("web.fetch", json!({ "url": "http://localhost/" })).await.expect_err("inside");
    assert_eq!(refused.code, "web_address_refused");
    for tool in ["web.search", "web_search"] {
        let unset = rig.call(tool, json!({ "query": "x" })).await.expect_err("no provider");
        assert_eq!(unset.code, "search_not_configured", "{tool}");
        assert!(unset.next_step.is_some_and(|step| step.contains("web.providers")), "{tool}");
    }
}

#[tokio::test]
async fn the_operator_can_turn_it_off() {
    let rig = mounted(Options { enabled: false, ..options() }).await;
    for (tool, args) in [
        ("web.fetch", json!({ "url": "http://127.0.0.1/" })),
        ("web.search", json!({ "query": "x" })),
        ("web_search", json!({ "query": "x" })),
    ] {
        assert_eq!(rig.call(tool, args).await.expect_err(tool).code, "web_disabled");
    }
}

#[tokio::test]
async fn a_fetch_that_nobody_waits_for_ends() {
    let server = Server::new(|_, _| {
        Reply::Endless(b"HTTP/1.1 2".to_vec(), Vec::new(), Duration::from_secs(1))
    })
    .await;
    let rig = mounted(options()).await;
    let args = json!({ "url": server.url("/"), "timeout_secs": 100 });
    let call = rig.begin_as(rig.session, "web.fetch", args, Duration::from_secs(100));
    eventually("the server is asked", async || !server.asked().is_empty()).await;
    call.cancel.cancel();
    assert_eq!(call.answer().await.expect_err("cancelled").code, "cancelled");
}

fn provider(kind: ProviderKind) -> ProviderOptions {
    ProviderOptions { kind, url: None, key_file: None, key_env: None }
}

#[test]
fn what_cannot_work_is_said() {
    let list = |text: &str| vec![text.to_owned()];
    let file = Some("key".into());
    let env = Some("KEY".to_owned());
    let two = ProviderOptions {
        key_file: Some("/key".into()),
        key_env: env.clone(),
        ..provider(ProviderKind::Brave)
    };
    let relative = ProviderOptions { key_file: file, ..provider(ProviderKind::Brave) };
    let keyed = ProviderOptions { key_env: env, ..provider(ProviderKind::Duckduckgo) };
    let url =
        ProviderOptions { url: Some("ftp://x/".to_owned()), ..provider(ProviderKind::Searxng) };
    let [searxng, brave] = [ProviderKind::Searxng, ProviderKind::Brave].map(provider);
    let wrong = Options {
        allow_domains: list("no domain"),
        deny_domains: list(""),
        allow_networks: list("10.0.0.0/99"),
        proxy: Some("socks5://a/".to_owned()),
        ca_file: Some("ca.pem".into()),
        contact_url: Some("https://a/\nx: y".to_owned()),
        providers: vec![two, relative, keyed, url, searxng, brave],
        ..Options::default()
    };
    let problems = wrong.problems();
    assert_eq!(problems.len(), 12, "{problems:?}");
    assert_eq!(Options::default().problems(), []);
    assert_eq!(options().problems(), []);
}

#[tokio::test]
async fn a_check_names_what_is_missing() {
    let folder: std::path::PathBuf = "/".into();
    let folders = Folders { state: folder.clone(), run: folder.clone(), logs: folder };
    let host = Host { folders, room: Default::default() };
    let key_file = Some("/does/not/exist".into());
    let unkeyed = ProviderOptions { key_file, ..provider(ProviderKind::Brave) };
    let broken = Options {
        ca_file: Some("/nor/this".into()),
        providers: vec![unkeyed, provider(ProviderKind::Duckduckgo)],
        ..Options::default()
    };
    let found = WebFamily::check(&broken, &host).await;
    let of = |what: &str| found.iter().find(|finding| finding.what.contains(what)).expect(what);
    assert!(!of("ca_file").ok && of("ca_file").needed);
    assert!(!of("brave").ok && of("brave").detail.contains("/does/not/exist"));
    assert!(of("duckduckgo").ok);
    let off = Options { enabled: false, ..broken };
    assert_eq!(WebFamily::check(&off, &host).await, []);
}
