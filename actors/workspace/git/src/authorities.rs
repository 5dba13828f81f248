//! Certificate authorities that the operator trusts beside those of the image.

use std::{path::Path, time::Duration};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{CallTerms, Link, link_error};
use hivekeep_protocol::WriteFile;

use crate::codes;

/// Path at which the guest's git finds the operator's authorities.
pub(super) const PLACE: &str = "/run/hivekeep/git-authorities.pem";
/// Folder in images with the commonly trusted authorities.
pub(super) const USUAL: &str = "/etc/ssl/certs";
/// Maximum size of the file, several times the usual set of a browser.
const MAX_BYTES: u64 = 1024 * 1024;
/// Maximum time to upload them to the guest.
const PATIENCE: Duration = Duration::from_secs(30);

/// Uploads the certificates of a host's file to the guest.
///
/// # Errors
/// `ca_file_unavailable`; errors of the link to the guest.
pub(super) async fn bring(link: &Link, file: &Path) -> Result<(), ToolError> {
    let refused = |why: String| {
        let message = format!("the configured certificates in {}: {why}", file.display());
        ToolError::new(Layer::Machine, codes::CA_FILE_UNAVAILABLE, message)
            .next("mend git.ca_file on the host")
    };
    let bytes = read(file).await.map_err(refused)?;
    let (size_bytes, wait) = (bytes.len() as u64, CallTerms::at_most(PATIENCE));
    let write = WriteFile { path: PLACE.to_owned(), mode: Some(0o644), size_bytes };
    let sent = link.upload(write, size_bytes, bytes.as_slice(), wait, |_| {}).await;
    sent.map(drop).map_err(link_error)
}

async fn read(file: &Path) -> Result<Vec<u8>, String> {
    let describe = |error: std::io::Error| error.to_string();
    let bytes = tokio::fs::metadata(file).await.map_err(describe)?.len();
    if bytes > MAX_BYTES {
        return Err("more than 1 MiB".to_owned());
    }
    let text = tokio::fs::read_to_string(file).await.map_err(describe)?;
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(text.into_bytes()),
        false => Err("does not contain a PEM certificate".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_certificate_is_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        assert!(read(&file).await.is_err());
        std::fs::write(&file, "-----BEGIN RSA PRIVATE KEY-----\n").unwrap();
        assert_eq!(read(&file).await.unwrap_err(), "does not contain a PEM certificate");
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n").unwrap();
        assert!(read(&file).await.is_ok());
        std::fs::File::options().write(true).open(&file).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(read(&file).await.unwrap_err(), "more than 1 MiB");
    }
}
