//! Validation of names that callers give, before git sees them.

use hivekeep_kernel::ToolError;

/// Maximum length of a branch's or remote's name, in bytes.
const MAX_NAME_BYTES: usize = 250;
/// Maximum length of a folder of a sparse checkout, in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Base of paths that are not absolute.
const HOME: &str = "/workspace";

/// Checks a branch name by the rules of `git check-ref-format`, as far as they exclude options and
/// everything that means more than a name.
pub(super) fn branch(name: &str) -> Result<&str, ToolError> {
    let refused = |why: &str| {
        Err(ToolError::invalid(format!("branch {why}"))
            .next("give the branch's plain name, such as main or feature/x"))
    };
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return refused("must have 1 to 250 bytes");
    }
    if name.starts_with('-') {
        return refused("begins with `-`");
    }
    let odd = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let part_is_bad =
        |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    if name.contains(odd)
        || name.contains("..")
        || name.contains("@{")
        || name == "@"
        || name == "HEAD"
        || name.ends_with('.')
        || name.split('/').any(part_is_bad)
    {
        return refused("is not a valid name for git");
    }
    Ok(name)
}

/// Checks the whole hash of a commit.
pub(super) fn commit(hash: &str) -> Result<&str, ToolError> {
    let sound = [40, 64].contains(&hash.len())
        && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    match sound {
        true => Ok(hash),
        false => Err(ToolError::invalid("commit is not a whole hash").next(
            "give its 40 (SHA-256: 64) hex digits in lower case, as `git rev-parse` prints them",
        )),
    }
}

/// Checks a folder of a sparse checkout: relative, and no pattern.
pub(super) fn sparse_path(path: &str) -> Result<&str, ToolError> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let sound = path.len() <= MAX_PATH_BYTES
        && !path.starts_with('-')
        && !path.contains(|c: char| c.is_control() || "*?[]\\!\"".contains(c))
        && path.trim_end_matches('/').split('/').all(plain);
    match sound {
        true => Ok(path),
        false => Err(ToolError::invalid("sparse_paths has one that is not a plain folder")
            .next("give folders of the repository such as docs or src/app, without patterns")),
    }
}

/// Checks the name of a configured remote; addresses are refused.
pub(super) fn remote(name: &str) -> Result<&str, ToolError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let sound = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with(['-', '/', '.'])
        && name.chars().all(plain);
    match sound {
        true => Ok(name),
        false => Err(ToolError::invalid("remote is not a valid remote name")
            .next("give a name that `git remote` lists; an address is added by `git remote add`")),
    }
}

/// Makes an absolute path in the guest.
pub fn path(path: Option<&str>) -> Result<String, ToolError> {
    let path = path.unwrap_or(HOME);
    if path.is_empty() || path.contains('\0') {
        return Err(ToolError::invalid("path is empty or contains a NUL byte"));
    }
    Ok(if path.starts_with('/') { path.to_owned() } else { format!("{HOME}/{path}") })
}

/// Checks the name or the address of an author.
pub(super) fn author<'t>(what: &str, text: &'t str) -> Result<&'t str, ToolError> {
    let text = text.trim();
    if text.is_empty() || text.contains(['<', '>']) || text.contains(|c: char| c.is_control()) {
        return Err(ToolError::invalid(format!(
            "{what} is empty or contains `<`, `>` or a control character"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_an_option_or_an_address_is_refused() {
        for name in ["main", "feature/x-1", "v1.2", "ünicode", "a@b"] {
            assert!(branch(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "-f",
            "--upload-pack=x",
            "a b",
            "a..b",
            "a:b",
            "+main",
            "^main",
            "main~1",
            "@{-1}",
            "@",
            "HEAD",
            "a//b",
            "/a",
            "a/",
            ".a",
            "a/.b",
            "a.lock",
            "a.",
            "a\nb",
            "a*",
            "a[b",
            "a\\b",
        ] {
            // A leading + has a meaning only in front of a refspec, which the tools write
            // themselves.
            assert_eq!(branch(name).is_ok(), name == "+main", "{name}");
        }
        for name in ["origin", "up-stream", "team/x"] {
            assert!(remote(name).is_ok(), "{name}");
        }
        for name in ["", "-o", "https://x/y", "git@h:r", "../r", "/srv/r", "a b"] {
            assert!(remote(name).is_err(), "{name}");
        }
        assert_eq!(path(Some("-x")).unwrap(), "/workspace/-x");
        assert_eq!(path(None).unwrap(), "/workspace");
        assert!(path(Some("a\0")).is_err());
        assert!(author("author_name", "A <b>").is_err() && author("author_name", "A\nB").is_err());
    }
}
