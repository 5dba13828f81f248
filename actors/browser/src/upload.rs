//! Upload to a file input: files of the browser's place, or a text as a file.

use hivekeep_kernel::{CallCx, Layer, ToolError};
use serde_json::{Value, json};

use crate::{
    codes,
    page::{LivePage, Located},
};

/// Content for a file input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadWish<'a> {
    /// Paths in the place.
    pub(crate) files: &'a [String],
    /// Name of the file that `text` becomes where there are no paths.
    pub(crate) name: &'a str,
    /// Content of that file.
    pub(crate) text: &'a str,
}

/// Puts files of the place, or the text, where Chrome reads them, and gives them to the input.
pub(crate) async fn upload(
    page: &LivePage,
    cx: &CallCx,
    located: &Located,
    wish: UploadWish<'_>,
) -> Result<(), ToolError> {
    let Some(folder) = page.chrome.folder.clone() else {
        return Err(refused("a browser that runs elsewhere is given no files"));
    };
    let UploadWish { files, name, text } = wish;
    if name.contains(['/', '\0']) || name.starts_with('.') {
        return Err(ToolError::invalid(format!("`{name:.100}` is not a valid name of a file")));
    }
    let handle = page.handle(located).await?;
    let several = "((_, el) => el.multiple)";
    if files.len() > 1
        && page
            .run(several, json!({}), Some(&handle), true)
            .await?
            .is_some_and(|it| it["value"] != true)
    {
        return Err(refused("the input takes only one file"));
    }
    let contents = match files.is_empty() {
        true => vec![(name.to_owned(), text.as_bytes().to_vec())],
        false => page.chrome.place.get(cx, files).await?,
    };
    let put = tokio::task::spawn_blocking(move || {
        let each = contents.into_iter();
        each.map(|(name, content)| folder.put_upload(&name, &content)).collect()
    });
    let put: std::io::Result<Vec<String>> =
        put.await.map_err(|panic| ToolError::internal(format!("an upload: {panic}")))?;
    let files = put.map_err(|error| refused(&format!("the file is not given: {error}")))?;
    let files = json!({ "files": files, "objectId": handle });
    page.call::<Value>("DOM.setFileInputFiles", files).await.map(drop)
}

/// Error of a refused upload.
pub(crate) fn refused(why: &str) -> ToolError {
    ToolError::new(Layer::Actor, codes::BROWSER_UPLOAD_REFUSED, why)
}
