//! Blocking adapter: a client that brings its own runtime.

use std::{borrow::Borrow, path::Path, process::Command};

use rmcp::model::Tool;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::Error;

/// A [`crate::Client`] for code that waits. Dropped, it has ended the server that it started.
pub struct Client {
    client: Option<crate::Client>,
    runtime: Runtime,
}

impl Client {
    /// As [`crate::Client::spawn`].
    ///
    /// # Errors
    /// As there.
    pub fn spawn(name: &str, command: Command) -> Result<Self, Error> {
        Self::attach(|| crate::Client::spawn(name, command))
    }

    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(name: &str, socket: &Path) -> Result<Self, Error> {
        Self::attach(|| crate::Client::connect(name, socket))
    }

    fn attach<F>(attached: impl FnOnce() -> F) -> Result<Self, Error>
    where
        F: Future<Output = Result<crate::Client, Error>>,
    {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async { attached().await })?;
        Ok(Self { client: Some(client), runtime })
    }

    fn client(&self) -> &crate::Client {
        self.client.as_ref().expect("only its end takes it")
    }

    /// As [`crate::Client::session`].
    pub fn session(&self) -> Option<&str> {
        self.client().session()
    }

    /// As [`crate::Client::call`].
    ///
    /// # Errors
    /// As there.
    pub fn call(&self, tool: &str, arguments: impl Borrow<Value>) -> Result<Value, Error> {
        self.runtime.block_on(self.client().call(tool, arguments))
    }

    /// As [`crate::Client::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, uri: &str) -> Result<String, Error> {
        self.runtime.block_on(self.client().read(uri))
    }

    /// As [`crate::Client::revision`].
    pub fn revision(&self) -> Option<String> {
        self.client().revision()
    }

    /// As [`crate::Client::tools`].
    ///
    /// # Errors
    /// As there.
    pub fn tools(&self) -> Result<Vec<Tool>, Error> {
        self.runtime.block_on(self.client().tools())
    }

    /// As [`crate::Client::leave`].
    ///
    /// # Errors
    /// As there.
    pub fn leave(mut self) -> Result<(), Error> {
        let client = self.client.take().expect("only its end takes it");
        self.runtime.block_on(client.leave())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(crate::Client { server: Some(mut server), .. }) = self.client.take() else {
            return;
        };
        let _ended_already = self.runtime.block_on(server.kill());
    }
}
