//! Section `[agent]` of the configuration.

use std::{num::NonZeroU32, path::PathBuf};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::agent::AgentBudget;
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes;

/// Limits of each user's agents, of those that the operators keep for everybody, and of executions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Agents by name; a user's tier may allow fewer (`agents`).
    #[schemars(range(min = 1))]
    pub max_agents: usize,
    /// Size of all versions of all manifests, held in memory. A version counts for at least 4 KiB.
    #[schemars(range(min = 1))]
    pub max_manifests_mb: usize,
    /// Executions that run at a time, at most three quarters of them one user's; a user's tier may allow fewer
    /// (`executions`). One more is refused.
    #[schemars(range(min = 1))]
    pub max_running: usize,
    /// Turns of an iteration: requests to the model.
    #[schemars(range(min = 1, max = 1000))]
    pub max_turns: usize,
    /// Tokens of an execution, read and written. The turn that exceeds them is its last.
    #[schemars(range(min = 1))]
    pub max_tokens: u64,
    /// Bounds of the budget of an execution, which a manifest or a caller may lower and not raise; a user's tier
    /// may allow less (`execution_micro_usd`, `execution_tokens`, `execution_wall_secs`, `execution_tool_calls`).
    pub budget: AgentBudgetBounds,
    /// When older turns of a conversation are replaced by a summary that the model writes, unless a manifest says it.
    pub compaction: AgentCompactionOptions,
    /// Days that an execution waits for more budget before it fails.
    #[schemars(range(min = 1, max = 365))]
    pub wait_days: u32,
    /// Seconds after which the machine of a chat that waits for its next message stands still, a virtual machine saved
    /// to the disk; 0: never. It goes on with the next message, and when it is used.
    #[schemars(range(max = 31_622_400))]
    pub idle_secs: u64,
    /// Name of the agent that a chat of an editor is with, unless its user has one of the name.
    pub chat_agent: String,
    /// Seconds that an execution's workspace is kept after its end, stopped, before it is destroyed; 0: not at all.
    #[schemars(range(max = 31_622_400))]
    pub keep_workspace_secs: u64,
    /// Server for mails to receivers of results (`execution.delivery`); without one there are none.
    pub smtp: Option<SmtpOptions>,
    /// Executions that are over and kept.
    pub kept: usize,
    /// Days that an execution is kept after its end.
    pub kept_days: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_agents: 500,
            max_manifests_mb: 16,
            max_running: 16,
            max_turns: 100,
            max_tokens: 2_000_000,
            budget: AgentBudgetBounds::default(),
            compaction: AgentCompactionOptions::default(),
            wait_days: 30,
            idle_secs: 600,
            chat_agent: "assistant".to_owned(),
            keep_workspace_secs: 3_600,
            smtp: None,
            kept: 1_000,
            kept_days: 30,
        }
    }
}

/// Bounds of the budget of an execution. None is set with 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentBudgetBounds {
    /// US dollars for models.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub usd: f64,
    /// Tokens, read and written.
    pub tokens: u64,
    /// Seconds of work.
    pub wall_secs: u64,
    /// Calls of tools.
    pub tool_calls: u64,
}

/// Replacement of older turns of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentCompactionOptions {
    /// Tokens of a conversation beyond which it is made shorter; 0: never.
    pub tokens: u64,
    /// Turns that stay as they are, the last ones.
    #[schemars(range(min = 1, max = 1000))]
    pub keep_turns: u64,
}

impl Default for AgentCompactionOptions {
    fn default() -> Self {
        Self { tokens: 0, keep_turns: 4 }
    }
}

impl AgentBudgetBounds {
    /// The same as a manifest has it.
    pub(crate) fn budget(self) -> AgentBudget {
        let set = |amount: u64| Some(amount).filter(|amount| *amount > 0);
        AgentBudget {
            usd: Some(self.usd).filter(|usd| *usd > 0.0),
            tokens: set(self.tokens),
            wall_secs: set(self.wall_secs),
            tool_calls: set(self.tool_calls),
        }
    }
}

/// Server for mails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmtpOptions {
    /// Name of the server.
    pub host: String,
    /// Port. Default: that of the kind of its security.
    pub port: Option<u16>,
    /// Security of the connection. Default: `tls`.
    #[serde(default)]
    pub security: SmtpSecurity,
    /// Address that mails are from.
    pub from: String,
    /// User, if it asks for one.
    pub user: Option<String>,
    /// File that holds the user's password, read anew for each mail.
    pub password_file: Option<PathBuf>,
    /// File of authorities (PEM) that the server may have its certificate of, beside the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Receivers that agents may name: addresses, or `*@example.org` for all of a domain. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<Vec<String>>,
    /// Receivers of all mails of one user in an hour, since the daemon's start. Default: 100.
    #[serde(default = "hundred")]
    pub receivers_per_hour: NonZeroU32,
}

fn hundred() -> NonZeroU32 {
    const { NonZeroU32::new(100).unwrap() }
}

impl SmtpOptions {
    /// Checks that agents may write to all of these.
    ///
    /// # Errors
    /// `handler_denied`.
    pub(crate) fn admit(&self, to: &[String]) -> Result<(), ToolError> {
        let Some(receivers) = &self.receivers else { return Ok(()) };
        let is_of = |to: &str, receiver: &String| match receiver.strip_prefix('*') {
            Some(domain) if domain.starts_with('@') => {
                let at = to.rfind('@').unwrap_or_default();
                to.get(at..).is_some_and(|of| of.eq_ignore_ascii_case(domain))
            }
            _ => to.eq_ignore_ascii_case(receiver),
        };
        let denied = to.iter().find(|to| !receivers.iter().any(|receiver| is_of(to, receiver)));
        denied.map_or(Ok(()), |to| {
            let message = format!("agents may not write to `{to:.80}`");
            Err(ToolError::new(Layer::Policy, codes::HANDLER_DENIED, message)
                .next("name another receiver, or have the operator extend `agent.smtp.receivers`"))
        })
    }
}

/// Security of a connection to a server for mails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SmtpSecurity {
    /// TLS from the beginning.
    #[default]
    Tls,
    /// TLS after a plain beginning; without it nothing is sent.
    Starttls,
    /// None: for a server on this host.
    None,
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        match (0.0..=1e6).contains(&self.budget.usd) {
            true => Vec::new(),
            false => vec![("budget", "usd must be between 0 and 1000000".to_owned())],
        }
    }
}
