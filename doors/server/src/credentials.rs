//! Bearer credentials of the HTTP doors (RFC 6750): made, listed and revoked over the control door.
//!
//! A credential is shown once, when it is made. What is kept of it is its SHA-256: it has 256 random
//! bits, so that a slow hash would protect nothing. A given one is compared with all that are kept,
//! in constant time, and one that was revoked is refused from the next request on.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use getrandom::Error as NoRandom;
use hivekeep_kernel::{CredentialId, Layer, SecretString, ToolError, User};
use hivekeep_ports::{KnownUsers, WebhookTarget};
use hivekeep_runtime::log::{self, Decision, Log, LogError, Sourced};
use hivekeep_store::{Journal, NewEvent};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use tokio::sync::watch;

use crate::codes;

/// First characters of every credential, by which scanners for leaked secrets know one.
pub const PREFIX: &str = "hivekeep_";
/// Random bytes of a credential.
const RANDOM_BYTES: usize = 32;
/// Most credentials at once. Each is looked at with each request.
const MOST: usize = 256;
/// Characters of a name.
const NAME_CHARS: usize = 64;

/// Access that a credential gives its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialScope {
    /// Everything, in all sessions.
    Operator,
    /// Opens sessions, and sees and uses those alone.
    Session,
    /// Reads and searches, and changes nothing.
    ReadOnly,
    /// Begins runs of one DAG by webhooks. It is shown nowhere else: no door lets it in.
    #[value(skip)]
    Webhook,
}

impl std::fmt::Display for CredentialScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Operator => "operator",
            Self::Session => "session",
            Self::ReadOnly => "read-only",
            Self::Webhook => "webhook",
        })
    }
}

/// A credential as it is listed: without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRow {
    /// The credential; its sessions belong to the user of this id.
    pub id: CredentialId,
    /// The operator's name for the credential.
    pub name: String,
    /// Access that the credential gives its owner.
    pub scope: CredentialScope,
    /// When the credential was made.
    pub created_at: DateTime<Utc>,
    /// The user that made the credential.
    pub created_by: User,
    /// DAG of a credential for webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookTarget>,
}

impl CredentialRow {
    /// The user that the credential's sessions belong to.
    pub fn user(&self) -> User {
        User::Credential(self.id)
    }
}

/// All credentials. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Credentials(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    log: Log<Keyring>,
    /// Counts revocations.
    revoked: watch::Sender<u64>,
}

impl Credentials {
    /// Reads the credentials from the journal.
    ///
    /// # Errors
    /// When their stream cannot be read.
    pub async fn open(journal: &Journal) -> Result<Self, LogError> {
        let stream = log::stream::<Keyring>("all").expect("a name of letters");
        let log = Log::open(journal.clone(), stream).await?;
        Ok(Self(Arc::new(Inner { log, revoked: watch::Sender::new(0) })))
    }

    /// Makes a credential. Answered when it is durable, with the only copy of the secret.
    ///
    /// # Errors
    /// `invalid_input` for a name that is none, `name_taken`, `too_many_credentials`,
    /// `journal_failed`.
    pub async fn create(
        &self,
        name: &str,
        scope: CredentialScope,
        by: User,
    ) -> Result<(CredentialRow, SecretString), ToolError> {
        self.make(name, scope, by, None).await
    }

    /// Makes a credential for the webhooks of a DAG, as [`Self::create`] does.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn create_webhook(
        &self,
        name: &str,
        target: WebhookTarget,
        by: User,
    ) -> Result<(CredentialRow, SecretString), ToolError> {
        self.make(name, CredentialScope::Webhook, by, Some(target)).await
    }

    async fn make(
        &self,
        name: &str,
        scope: CredentialScope,
        by: User,
        webhook: Option<WebhookTarget>,
    ) -> Result<(CredentialRow, SecretString), ToolError> {
        check(name)?;
        let secret = secret().map_err(|error| ToolError::internal(error.to_string()))?;
        let (id, at) = (CredentialId::new(), Utc::now());
        let (name, created_at, created_by) = (name.to_owned(), at, by);
        let row = CredentialRow { id, name, scope, created_at, created_by, webhook };
        let digest = digest(secret.expose().as_bytes());
        let record = Record::Created(Box::new(Kept { row: row.clone(), sha256: hex(&digest) }));
        let event = event("credential.created", &row, by);
        let durable = self.0.log.decide(|keyring| {
            let live = keyring.map(Keyring::rows).unwrap_or_default();
            if live.iter().any(|one| one.name == row.name) {
                return Err(taken(&row.name));
            }
            match live.len() < MOST {
                true => Ok(Decision::record(record).event(event)),
                false => Err(too_many()),
            }
        })?;
        durable.await?;
        Ok((row, secret))
    }

    /// The credentials that are not revoked, the oldest first.
    pub fn list(&self) -> Vec<CredentialRow> {
        self.0.log.view(|keyring| keyring.map(Keyring::rows).unwrap_or_default())
    }

    /// Revokes a credential by its name. Answered when it is durable; no request passes with it then.
    ///
    /// # Errors
    /// `credential_not_found`, `journal_failed`.
    pub async fn revoke(&self, name: &str, by: User) -> Result<CredentialRow, ToolError> {
        let mut revoked = None;
        let durable = self.0.log.decide(|keyring| {
            let live = keyring.map(Keyring::rows).unwrap_or_default();
            let row = live.into_iter().find(|one| one.name == name).ok_or_else(|| {
                ToolError::not_found(Layer::Door, codes::CREDENTIAL_NOT_FOUND, "credential", name)
                    .next("`hivekeep credential list` shows them")
            })?;
            let record = Record::Revoked { id: row.id, at: Utc::now() };
            let event = event("credential.revoked", &row, by);
            revoked = Some(row);
            Ok::<_, ToolError>(Decision::record(record).event(event))
        })?;
        durable.await?;
        self.0.revoked.send_modify(|count| *count += 1);
        revoked.ok_or_else(|| ToolError::internal("a credential was revoked and has no name"))
    }

    /// The credential that a client shows, if it is one, and none for webhooks. Takes as long for a near miss as for a
    /// wild guess.
    pub fn find(&self, given: &[u8]) -> Option<CredentialRow> {
        self.known(given).filter(|row| row.scope != CredentialScope::Webhook)
    }

    /// The credential and the DAG of a webhook that somebody shows the bearer of, as [`Self::find`] does.
    pub fn find_webhook(&self, given: &[u8]) -> Option<(CredentialRow, WebhookTarget)> {
        let row = self.known(given).filter(|row| row.scope == CredentialScope::Webhook)?;
        let target = row.webhook.clone()?;
        Some((row, target))
    }

    fn known(&self, given: &[u8]) -> Option<CredentialRow> {
        let given = digest(given);
        self.0.log.view(|keyring| {
            let all = keyring?.all();
            let (mut at, mut found) = (0_u32, Choice::from(0));
            for (index, (known, _)) in (0..).zip(all) {
                let same = known[..].ct_eq(&given[..]);
                at.conditional_assign(&index, same);
                found |= same;
            }
            let known = all.get(usize::try_from(at).ok()?);
            known.filter(|_| found.into()).map(|(_, kept)| kept.row.clone())
        })
    }

    /// True while the credential is not revoked.
    pub fn is_live(&self, id: CredentialId) -> bool {
        let has = |keyring: &Keyring| keyring.all().iter().any(|(_, kept)| kept.row.id == id);
        self.0.log.view(|keyring| keyring.is_some_and(has))
    }

    /// Waits until a user's credential is revoked; for ever for a user without one.
    pub async fn revocation(&self, user: User) {
        let User::Credential(id) = user else { return std::future::pending().await };
        let mut revoked = self.0.revoked.subscribe();
        // The sender is this handle's own.
        while self.is_live(id) && revoked.changed().await.is_ok() {}
    }
}

impl KnownUsers for Credentials {
    fn knows(&self, user: User) -> bool {
        match user {
            User::Credential(id) => self.is_live(id),
            _ => true,
        }
    }
}

/// Whether a text begins like a credential, be it one or not.
pub fn looks_like_one(text: &str) -> bool {
    text.starts_with(PREFIX)
}

fn secret() -> Result<SecretString, NoRandom> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random)?;
    Ok(SecretString::new(format!("{PREFIX}{}", hex(&random))))
}

fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check(name: &str) -> Result<(), ToolError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    match !name.is_empty() && name.len() <= NAME_CHARS && name.chars().all(good) {
        true => Ok(()),
        false => {
            let shown: String = name.chars().take(NAME_CHARS).collect();
            let what = format!("`{shown}` is not a valid name of a credential");
            Err(ToolError::new(Layer::Door, codes::INVALID_INPUT, what)
                .next(format!("use 1 to {NAME_CHARS} of a-z, A-Z, 0-9, `-`, `_`, `.` and `@`")))
        }
    }
}

fn taken(name: &str) -> ToolError {
    let what = format!("there is a credential `{name}`");
    ToolError::new(Layer::Door, codes::NAME_TAKEN, what).next("revoke it, or choose another name")
}

fn too_many() -> ToolError {
    let what = format!("there are {MOST} credentials, and no more are kept");
    ToolError::new(Layer::Door, codes::TOO_MANY_CREDENTIALS, what)
        .next("revoke some; `hivekeep credential list` shows them")
}

fn event(kind: &str, row: &CredentialRow, by: User) -> NewEvent {
    let data = json!({ "name": row.name, "scope": row.scope, "by": by, "webhook": row.webhook });
    NewEvent { kind: kind.to_owned(), subject: row.id.to_string(), data }
}

/// A credential as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    row: CredentialRow,
    /// SHA-256 of the secret, as hexadecimal digits.
    sha256: String,
}

/// Record of the stream `credential/all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Created(Box<Kept>),
    Revoked { id: CredentialId, at: DateTime<Utc> },
}

/// The credentials that are not revoked, the oldest first, each with its digest.
#[derive(Debug, Clone, Default)]
struct Keyring(Vec<([u8; 32], Kept)>);

impl Keyring {
    fn all(&self) -> &[([u8; 32], Kept)] {
        &self.0
    }

    fn rows(&self) -> Vec<CredentialRow> {
        self.0.iter().map(|(_, kept)| kept.row.clone()).collect()
    }

    fn add(&mut self, kept: Box<Kept>) -> Result<(), Box<Kept>> {
        match bytes(&kept.sha256) {
            Some(digest) => self.0.push((digest, *kept)),
            None => return Err(kept),
        }
        Ok(())
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Sourced for Keyring {
    const KIND: &'static str = "credential";
    const FOLD_EVERY: usize = 256;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let mut keyring = Self::default();
        keyring.apply(record)?;
        Ok(keyring)
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Created(kept) => self.add(kept).map_err(Record::Created),
            Record::Revoked { id, at } => {
                let before = self.0.len();
                self.0.retain(|(_, kept)| kept.row.id != id);
                match self.0.len() < before {
                    true => Ok(()),
                    false => Err(Record::Revoked { id, at }),
                }
            }
        }
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.0.iter().map(|(_, kept)| kept).collect::<Vec<_>>()).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let all: Vec<Kept> = serde_json::from_slice(snapshot).map_err(|error| error.to_string())?;
        let mut keyring = Self::default();
        for kept in all {
            keyring.add(Box::new(kept)).map_err(|kept| format!("{} has no digest", kept.row.id))?;
        }
        Ok(keyring)
    }
}

#[cfg(test)]
mod tests;
