//! The service with names of the test's own.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use hivekeep_kernel::{Progress, SessionId, ToolError};
use hivekeep_runtime::Ports;
use hivekeep_testkit::context;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::{Value, json};

use crate::{
    Options, ProviderKind, ProviderOptions,
    tools::{Web, WebPage, WebResults},
};

/// Addresses that each name has in turn; the last ones stay.
#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<String, Vec<IpAddr>>>);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let mut names = self.0.lock().expect("no panic");
        let found = names.get_mut(name.as_str()).map(|turns| match turns.len() {
            1 => turns[0],
            _ => turns.remove(0),
        });
        Box::pin(async move {
            let found = found.ok_or("no such name")?;
            Ok(Box::new([SocketAddr::new(found, 0)].into_iter()) as Addrs)
        })
    }
}

#[derive(Clone)]
pub(super) struct Stage {
    pub(super) web: Arc<Web>,
    /// Of the daemon; nothing is offered.
    pub(super) ports: Ports,
    pub(super) session: SessionId,
}

/// Options that allow one address of the loopback network, and every port.
pub(super) fn options() -> Options {
    Options {
        allow_networks: vec!["127.0.0.1".to_owned()],
        ports: Vec::new(),
        max_body_mb: 1,
        ..Options::default()
    }
}

impl Stage {
    pub(super) fn new(options: &Options) -> Self {
        Self::with_names(options, &[])
    }

    pub(super) fn with_names(options: &Options, names: &[(&str, &[&str])]) -> Self {
        let turns =
            |turns: &[&str]| turns.iter().map(|ip| ip.parse().expect("an address")).collect();
        let names = names.iter().map(|(name, ips)| ((*name).to_owned(), turns(ips)));
        let resolver = Arc::new(Names(Mutex::new(names.collect())));
        let ports = Ports::default();
        let web = Arc::new(Web::new(options, resolver, ports.clone()).expect("it is made"));
        Self { web, ports, session: SessionId::new() }
    }

    /// A service with one provider of searches at a URL.
    pub(super) fn searching(providers: &[(ProviderKind, &str)]) -> Self {
        let provider = |(kind, url): &(ProviderKind, &str)| ProviderOptions {
            kind: *kind,
            url: Some((*url).to_owned()),
            key_file: None,
            key_env: None,
        };
        let providers = providers.iter().map(provider).collect();
        Self::new(&Options { providers, ..options() })
    }

    pub(super) async fn fetch_with(&self, args: Value) -> Result<WebPage, ToolError> {
        let limit = Duration::from_secs(60);
        let cx = context(self.session, "web.fetch", limit, Progress::default());
        self.web.clone().fetch(cx, serde_json::from_value(args).expect("an input")).await
    }

    pub(super) async fn fetch(&self, url: &str) -> Result<WebPage, ToolError> {
        self.fetch_with(json!({ "url": url })).await
    }

    pub(super) async fn good(&self, url: &str) -> WebPage {
        self.fetch(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// Code of the error of a fetch.
    pub(super) async fn refused(&self, url: &str) -> String {
        self.fetch(url).await.expect_err(url).code.into_owned()
    }

    pub(super) async fn search(&self, args: Value) -> Result<WebResults, ToolError> {
        let limit = Duration::from_secs(120);
        let cx = context(self.session, "web.search", limit, Progress::default());
        self.web.clone().search(cx, serde_json::from_value(args).expect("an input")).await
    }
}
