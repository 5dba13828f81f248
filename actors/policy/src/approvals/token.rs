//! Approval tokens: random, shown once, kept as a hash.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hivekeep_kernel::ToolError;
use sha2::{Digest, Sha256};

use crate::digest::hexadecimal;

/// Random bytes of a token: 43 characters of base64url.
const BYTES: usize = 32;

/// A token, and the hash that is kept of it.
pub(super) fn made() -> Result<(String, String), ToolError> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random).map_err(|error| ToolError::internal(error.to_string()))?;
    let token = URL_SAFE_NO_PAD.encode(random);
    let hash = hash(&token);
    Ok((token, hash))
}

/// Hash of a token. Looking one up by its hash tells nothing of the tokens that are there.
pub(super) fn hash(token: &str) -> String {
    hexadecimal(&Sha256::digest(token))
}
