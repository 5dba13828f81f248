//! Receivers of an agent's result as plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::JsonObject;

/// Receivers of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentDelivery {
    /// Each is told.
    pub destinations: Vec<DeliveryDestination>,
}

/// Receiver: exactly one of `email`, `webhook`, `rest`, `sms`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveryDestination {
    /// Name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// When it is told. Default: `always`.
    pub condition: Option<DeliveryCondition>,
    /// Program that makes the message of the result.
    pub transform: Option<Transform>,
    /// Settings of a mail.
    pub email: Option<JsonObject>,
    /// Settings of a webhook.
    pub webhook: Option<JsonObject>,
    /// Settings of a request.
    pub rest: Option<JsonObject>,
    /// Settings of a text message.
    pub sms: Option<JsonObject>,
}

/// When a receiver is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryCondition {
    /// Of a success.
    OnSuccess,
    /// Of a failure.
    OnFailure,
    /// Of both.
    Always,
}

/// Program that makes a message of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transform {
    /// Path of the script.
    pub script: String,
    /// Arguments.
    pub args: Option<Vec<String>>,
    /// Longest run in seconds. Default: 300.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
}
