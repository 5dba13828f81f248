//! Introspection port: what the daemon as a whole knows of itself. Boot offers it before any family is
//! mounted.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::Finding;

/// Tool as clients see it.
#[derive(Debug, Clone)]
pub struct ToolSchemas {
    /// Name as declared.
    pub name: &'static str,
    /// Family that it is listed under.
    pub family: &'static str,
    /// JSON Schema of its input.
    pub input: Value,
    /// JSON Schema of its output.
    pub output: Value,
}

/// Key of the configuration with its value.
#[derive(Debug, Clone)]
pub struct ConfigValue {
    /// Section and key, joined by dots.
    pub key: String,
    /// Value in force; secrets are redacted by their type.
    pub value: Value,
    /// Layer that set it.
    pub source: String,
}

/// Knowledge of the daemon about itself.
#[async_trait]
pub trait Introspection: Send + Sync {
    /// Version of the daemon.
    fn version(&self) -> &'static str;

    /// Time since its start.
    fn uptime(&self) -> Duration;

    /// Tools in the order of their declaration.
    fn tools(&self) -> &[ToolSchemas];

    /// JSON Schema of the configuration.
    fn config_schema(&self) -> &Value;

    /// Effective configuration, in the order of the shipped file; secrets are redacted by their type.
    fn config(&self) -> &Value;

    /// Keys that somebody set.
    fn config_set(&self) -> &[ConfigValue];

    /// File that it was read from, if any.
    fn config_file(&self) -> Option<String>;

    /// Findings of `hivekeep check` on this host. They take seconds: a recent answer is given again,
    /// and one check runs at a time.
    async fn findings(&self) -> Vec<Finding>;
}
