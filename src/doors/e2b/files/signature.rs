//! Who may reach a file: whoever has the sandbox's token, or a URL that was signed with it.

use axum::http::request::Parts;
use chrono::Utc;

use super::FileQuery;
use crate::{
    credentials::{CredentialRow, CredentialScope},
    doors::e2b::{
        error::{E2bError, Kind},
        state::E2b,
        target::Target,
        tokens::{FileOperation, SignedFile},
    },
};

fn refused(why: &str) -> E2bError {
    E2bError::new(Kind::Unauthenticated, why)
}

impl E2b {
    /// Sandbox of a request about a file.
    ///
    /// # Errors
    /// Without a token and a signature, or with one that is not valid or has expired.
    pub(super) async fn file_target(
        &self,
        parts: &Parts,
        query: &FileQuery,
        operation: FileOperation,
    ) -> Result<Target, E2bError> {
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
        let FileQuery { path, username, signature_expiration: expires, .. } = query;
        let file = SignedFile { path, operation, user: username, expires: *expires };
        let (row, id) = self.signer(named.map(|sandbox| sandbox.id), file, signature).await?;
        if expires.is_some_and(|at| at < Utc::now().timestamp()) {
            return Err(refused("signature is already expired"));
        }
        Ok(Target { owner: self.owner_of(&row).await?, id, user })
    }

    /// The credential and the sandbox by whose token a URL was signed. One URL may serve all sandboxes, and then
    /// names none.
    async fn signer(
        &self,
        named: Option<String>,
        file: SignedFile<'_>,
        signature: &str,
    ) -> Result<(CredentialRow, String), E2bError> {
        for row in self.core.credentials.list() {
            // Its tokens open nothing.
            if row.scope == CredentialScope::ReadOnly {
                continue;
            }
            let names = match &named {
                Some(id) => vec![id.clone()],
                None => match self.lasting.known(row.user()) {
                    Some(_) => self.names(&self.owner_of(&row).await?).await?,
                    None => continue,
                },
            };
            let signed = |id: &String| self.tokens.has_signed((row.id, id), file, signature);
            if let Some(id) = names.into_iter().find(signed) {
                return Ok((row, id));
            }
        }
        Err(refused("invalid signature"))
    }
}
