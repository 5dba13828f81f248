//! `hivekeep credential`.

use super::{CliContext, CommandFailure, output};
use crate::{
    credentials::{CredentialRow, CredentialScope},
    doors::control::{ControlMethod, CredentialMade},
};

/// Make, list or revoke the bearer credentials with which clients reach the daemon over HTTP.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep credential create dashboard --scope read-only
  hivekeep credential list
  hivekeep credential revoke dashboard")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a credential and print it: it is not kept, and cannot be shown again.
    Create {
        /// Your name for it: letters, digits, `-`, `_`, `.` and `@`.
        name: String,
        /// What it lets its owner do.
        #[arg(long, value_enum)]
        scope: CredentialScope,
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

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    match args.action {
        Action::Create { name, scope, json } => {
            let wanted = ControlMethod::CreateCredential { name, scope };
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
        vec![row.name.clone(), row.scope.to_string(), made, row.id.to_string()]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    output::table(&["NAME", "SCOPE", "CREATED", "CREDENTIAL"], &rows)
}
