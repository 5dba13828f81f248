//! Sessions and credentials of clients: `hivekeep sessions` and `hivekeep credential`.

use hivekeep_door_server::credentials::{CredentialRow, CredentialScope};
use hivekeep_kernel::SessionId;
use serde_json::Value;

use super::{CliContext, CommandFailure, output};
use crate::control::{ControlMethod, CredentialMade};

/// List the sessions of clients, or end one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep sessions
  hivekeep sessions --end ses_0192f0c1a2b37c4d8e5f60718293a4b5")]
pub struct Args {
    /// End this session: its workspaces go on, without an owner, and can be adopted.
    #[arg(long, value_name = "SESSION")]
    end: Option<SessionId>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    if let Some(session) = args.end {
        client.get(ControlMethod::EndSession { session })?;
        return Ok(());
    }
    let rows: Vec<Value> = client.get_as(ControlMethod::Sessions {})?;
    if args.json {
        return Ok(output::json(&rows)?);
    }
    // A column for each field that says something short.
    let mut columns: Vec<&str> = Vec::new();
    for row in rows.iter().filter_map(Value::as_object) {
        for (key, value) in row {
            if !value.is_object() && !columns.contains(&key.as_str()) {
                columns.push(key);
            }
        }
    }
    let cell = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let table: Vec<Vec<_>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
    let heads: Vec<_> = columns.iter().map(|column| column.to_uppercase()).collect();
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    Ok(output::text(&output::table(&heads, &table))?)
}

/// Make, list or revoke the bearer credentials with which clients reach the daemon over HTTP.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep credential create dashboard --scope read-only
  hivekeep credential create github --webhook nightly     # POST /api/webhooks/nightly runs it
  hivekeep credential list
  hivekeep credential revoke dashboard")]
pub struct CredentialArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a credential and print it: it is not kept, and cannot be shown again.
    Create {
        /// Your name for it: letters, digits, `-`, `_`, `.` and `@`.
        name: String,
        /// Access that it gives its owner.
        #[arg(long, value_enum, required_unless_present = "webhook")]
        scope: Option<CredentialScope>,
        /// DAG of a watched folder that its owner runs by webhooks, and nothing else: its name, or PLACE:PATH of its file.
        #[arg(long, value_name = "DAG", conflicts_with = "scope")]
        webhook: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the credentials that are not revoked.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a credential: its next request is refused, its streams and its sessions end. What these
    /// own goes on, and can be adopted.
    Revoke {
        /// Its name.
        name: String,
    },
}

pub(super) fn credential(context: &CliContext, args: CredentialArgs) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    match args.action {
        Action::Create { name, scope, webhook, json } => {
            let wanted = match (webhook, scope) {
                (Some(dag), _) => ControlMethod::CreateWebhook { name, dag },
                (None, Some(scope)) => ControlMethod::CreateCredential { name, scope },
                (None, None) => return Err(CommandFailure::Usage("--scope is missing".to_owned())),
            };
            let made: CredentialMade = client.get_as(wanted)?;
            match json {
                true => Ok(output::json(&made)?),
                false => Ok(output::text(&format!("{}\n", made.token))?),
            }
        }
        Action::List { json } => {
            let rows: Vec<CredentialRow> = client.get_as(ControlMethod::Credentials {})?;
            match json {
                true => Ok(output::json(&rows)?),
                false => Ok(output::text(&table(&rows))?),
            }
        }
        Action::Revoke { name } => {
            client.get(ControlMethod::RevokeCredential { name })?;
            Ok(())
        }
    }
}

fn table(rows: &[CredentialRow]) -> String {
    let row = |row: &CredentialRow| {
        let made = row.created_at.format("%Y-%m-%d %H:%M").to_string();
        let dag = row.webhook.as_ref().map(|target| format!(" {}", target.dag));
        let scope = format!("{}{}", row.scope, dag.unwrap_or_default());
        vec![row.name.clone(), scope, made, row.id.to_string()]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    output::table(&["NAME", "SCOPE", "CREATED", "CREDENTIAL"], &rows)
}
