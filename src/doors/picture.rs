//! Results that are pictures: shown to models as pictures, and not as the text that carries them.

use std::borrow::Cow;

use serde_json::Value;

/// A picture in a result of a tool of ours: base64 in `data`, with its type in `mime_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResultPicture<'v> {
    /// MIME type.
    pub(super) mime_type: &'v str,
    /// Base64.
    pub(super) data: &'v str,
}

/// The picture of a result, and the result as it is told beside it.
pub(super) fn of(value: &Value) -> (Option<ResultPicture<'_>>, Cow<'_, Value>) {
    let mime_type = value["mime_type"].as_str().filter(|it| it.starts_with("image/"));
    let (Some(mime_type), Some(data)) = (mime_type, value["data"].as_str()) else {
        return (None, Cow::Borrowed(value));
    };
    let mut beside = value.clone();
    if let Some(fields) = beside.as_object_mut() {
        fields.remove("data");
    }
    (Some(ResultPicture { mime_type, data }), Cow::Owned(beside))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_picture_is_one() {
        let taken = json!({ "mime_type": "image/png", "data": "AAAA", "bytes": 3 });
        let (picture, beside) = of(&taken);
        assert_eq!(picture, Some(ResultPicture { mime_type: "image/png", data: "AAAA" }));
        assert_eq!(*beside, json!({ "mime_type": "image/png", "bytes": 3 }));
        for other in
            [json!({ "mime_type": "text/html", "data": "x" }), json!({ "data": "x" }), json!(1)]
        {
            assert_eq!(of(&other), (None, Cow::Borrowed(&other)));
        }
    }
}
