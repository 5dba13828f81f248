//! Credentials in files of the host, read when they are used, so that whatever renews them can do so.

use std::path::Path;

use tokio::io::AsyncReadExt;

/// Largest file with a secret.
const SECRET_BYTES: u64 = 64 * 1024;

/// Reads a small text file without the end of its line.
///
/// # Errors
/// The reason, for people; never what is in it.
pub async fn read_secret(file: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{} cannot be read: {why}", file.display());
    let opened = tokio::fs::File::open(file).await.map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    let read = opened.take(SECRET_BYTES + 1).read_to_string(&mut text).await;
    read.map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > SECRET_BYTES {
        return Err(wrong(format!("it is larger than {SECRET_BYTES} bytes")));
    }
    let text = text.trim_end_matches(['\r', '\n']);
    match text.is_empty() || text.contains('\0') {
        true => Err(wrong("it has no text".to_owned())),
        false => Ok(text.to_owned()),
    }
}
