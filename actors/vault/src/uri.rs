//! URIs of notes (RFC 3986): `vault:///path/to/note.md`.

use hivekeep_kernel::ToolError;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

const ROOT: &str = "vault:///";
/// Characters that must be escaped in the path of a URI (RFC 3986, 3.3).
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// URI of a note.
pub(crate) fn uri(path: &str) -> String {
    format!("{ROOT}{}", utf8_percent_encode(path, ESCAPED))
}

/// Path in a URI. The vault decides whether it is that of a note.
pub(crate) fn path(uri: &str) -> Result<String, ToolError> {
    let bad = |why: &str| ToolError::invalid(format!("`{uri}` {why}"));
    let path = uri.strip_prefix(ROOT).ok_or_else(|| bad("is not vault:///path/to/note.md"))?;
    if path.contains(['?', '#']) {
        return Err(bad("has a query or a fragment"));
    }
    let path = percent_decode_str(path).decode_utf8();
    path.map(Into::into).map_err(|_| bad("is not UTF-8 when it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uri_is_in_the_standard_form_and_goes_back_to_its_path() {
        assert_eq!(uri("a b/100% #1?.md"), "vault:///a%20b/100%25%20%231%3F.md");
        assert_eq!(uri("ideen/größe.md"), "vault:///ideen/gr%C3%B6%C3%9Fe.md");
        for bad in ["file:///a.md", "vault://a.md", "vault:///a.md?x", "vault:///a.md#x", "a.md"] {
            assert_eq!(path(bad).expect_err(bad).code, "invalid_input");
        }
        assert!(path("vault:///%ff.md").is_err(), "not UTF-8");
        // An escaped spelling of the same path.
        assert_eq!(path("vault:///%61.md").expect("a path"), "a.md");
    }

    proptest! {
        #[test]
        fn every_path_has_a_uri(given in "\\PC{0,40}") {
            let uri = uri(&given);
            prop_assert!(uri.is_ascii() && !uri.contains(' '));
            prop_assert_eq!(path(&uri).expect("its own"), given);
        }
    }
}
