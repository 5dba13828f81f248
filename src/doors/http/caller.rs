//! Authentication of a request over HTTP: whose credential it shows, and what that allows.

use hivekeep_kernel::User;

use crate::credentials::{CredentialRow, CredentialScope};

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doors) struct HttpCaller {
    /// The user that the caller's sessions belong to.
    pub(in crate::doors) user: User,
    /// Access that the caller's credential gives.
    pub(in crate::doors) scope: CredentialScope,
    /// The operator's name for the credential.
    pub(in crate::doors) name: String,
}

impl From<CredentialRow> for HttpCaller {
    fn from(row: CredentialRow) -> Self {
        Self { user: row.user(), scope: row.scope, name: row.name }
    }
}

impl HttpCaller {
    /// Whoever has the token of the MCP door's file: a client with sessions of its own.
    pub(in crate::doors) fn bearer() -> Self {
        Self { user: User::Bearer, scope: CredentialScope::Session, name: "bearer".to_owned() }
    }

    /// True for whoever reaches all sessions.
    pub(in crate::doors) fn is_operator(&self) -> bool {
        self.scope == CredentialScope::Operator
    }

    /// True for whoever may change something.
    pub(in crate::doors) fn may_change(&self) -> bool {
        self.scope != CredentialScope::ReadOnly
    }
}
