//! Access to a file: by the sandbox's token, or by a URL that was signed with it.

use axum::{
    extract::Query,
    http::{Method, request::Parts},
};
use chrono::Utc;

use super::FileQuery;
use crate::{
    credentials::{CredentialRow, CredentialScope},
    doors::e2b::{
        access::refused,
        error::E2bError,
        state::E2b,
        target::Target,
        tokens::{FileOperation, SignedFile},
    },
};

impl E2b {
    /// Sandbox of a request about a file.
    ///
    /// # Errors
    /// Without a token and a signature, or with one that is not valid or has expired.
    pub(in super::super) async fn file_target(&self, parts: &Parts) -> Result<Target, E2bError> {
        let query = Query::<FileQuery>::try_from_uri(&parts.uri);
        let Query(query) = query.map_err(|error| E2bError::invalid(error.body_text()))?;
        let operation = match parts.method == Method::POST {
            true => FileOperation::Write,
            false => FileOperation::Read,
        };
        let user = self.user(&query.username)?;
        let named = self.sandbox_named(parts)?;
        if let (Some(sandbox), true) = (&named, parts.headers.contains_key("x-access-token")) {
            let owner = self.bearer(&parts.headers, &sandbox.id).await?;
            let user = match query.username.is_empty() {
                true => self.user_named(&parts.headers)?,
                false => user,
            };
            return Ok(Target { owner, id: sandbox.id.clone(), user });
        }
        let Some(signature) = &query.signature else {
            return Err(refused("neither `X-Access-Token` nor a signature was given"));
        };
        let FileQuery { path, username, signature_expiration: expires, .. } = &query;
        let file = SignedFile { path, operation, user: username, expires: *expires };
        let named = named.as_ref().map(|sandbox| &*sandbox.id);
        let (row, id) = self.signer(named, file, signature)?;
        if expires.is_some_and(|at| at < Utc::now().timestamp()) {
            return Err(refused("signature is already expired"));
        }
        Ok(Target { owner: self.owner_of(&row).await?, id, user })
    }

    /// The credential and the sandbox by whose token a URL was signed. One URL may serve all sandboxes, and then
    /// names none.
    fn signer(
        &self,
        named: Option<&str>,
        file: SignedFile<'_>,
        signature: &str,
    ) -> Result<(CredentialRow, String), E2bError> {
        let (workspaces, invalid) = (self.directory()?, || refused("invalid signature"));
        let named = named.map(|name| self.workspace(name)).transpose();
        let named = named.map_err(|_| invalid())?.map(|found| found.id);
        for row in self.core.credentials.list() {
            // Tokens of a read-only credential open nothing.
            if row.scope == CredentialScope::ReadOnly {
                continue;
            }
            let ids = named.map_or_else(|| workspaces.of_user(row.user()), |id| vec![id]);
            let signed = |id: &_| self.tokens.has_signed((row.id, *id), file, signature);
            if let Some(id) = ids.into_iter().find(signed) {
                let found = workspaces.find(&id.to_string()).ok_or_else(invalid)?;
                return Ok((row, found.name));
            }
        }
        Err(invalid())
    }
}
