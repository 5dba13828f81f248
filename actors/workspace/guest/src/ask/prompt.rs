//! Credential prompts of git, and their answers. Pure.

use hivekeep_protocol::Credential;

/// Field of a credential that a prompt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialField {
    /// The user name.
    Username,
    /// The password.
    Password,
}

/// Parses prompts such as `Username for 'https://host': ` into the field and the origin. `None` for any other
/// prompt, such as one for a passphrase of ssh.
pub fn parse(prompt: &str) -> Option<(CredentialField, String)> {
    let (wanted, rest) = match prompt.split_once(" for '")? {
        ("Username", rest) => (CredentialField::Username, rest),
        ("Password", rest) => (CredentialField::Password, rest),
        _ => return None,
    };
    let url = rest.trim_end().strip_suffix("':")?;
    Some((wanted, origin(url)?))
}

/// Scheme, host and port of an address, as [`Credential::origin`] has them.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    // A user name that holds an @ does not move the host.
    let host = authority.rsplit('@').next()?.to_ascii_lowercase();
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '\'' | '"' | '\\' | '%');
    let sound = !host.is_empty() && host.chars().all(plain);
    sound.then(|| format!("{scheme}://{host}"))
}

/// Answer to a prompt; `None` if the credential is for another origin.
pub fn answer<'c>(
    credential: &'c Credential,
    wanted: CredentialField,
    origin: &str,
) -> Option<&'c str> {
    (credential.origin == origin).then(|| match wanted {
        CredentialField::Username => credential.username.as_str(),
        CredentialField::Password => credential.secret.expose(),
    })
}

#[cfg(test)]
mod tests {
    use hivekeep_protocol::Secret;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prompts_name_what_they_want_and_of_whom() {
        for (prompt, expected) in [
            (
                "Username for 'https://example.org': ",
                (CredentialField::Username, "https://example.org"),
            ),
            (
                "Password for 'https://me@example.org': ",
                (CredentialField::Password, "https://example.org"),
            ),
            (
                "Password for 'http://a@b@Example.org:8080': ",
                (CredentialField::Password, "http://example.org:8080"),
            ),
            (
                "Username for 'https://example.org:443/r.git': ",
                (CredentialField::Username, "https://example.org"),
            ),
            (
                "Password for 'https://u@[::1]:81': ",
                (CredentialField::Password, "https://[::1]:81"),
            ),
        ] {
            let (wanted, origin) = parse(prompt).expect(prompt);
            assert_eq!((wanted, origin.as_str()), expected, "{prompt}");
        }
    }

    #[test]
    fn other_questions_have_no_answer() {
        for prompt in [
            "",
            "Username for ''",
            "Password for 'example.org': ",
            "Password for 'ssh://example.org': ",
            "Password for 'https://': ",
            "Password for 'https://good.org%40evil.org': ",
            "Enter passphrase for key '/root/.ssh/id': ",
            "Are you sure you want to continue connecting (yes/no)? ",
        ] {
            assert_eq!(parse(prompt), None, "{prompt}");
        }
    }

    #[test]
    fn only_its_own_origin_is_told_a_secret() {
        let credential = Credential {
            origin: "https://example.org".into(),
            username: "me".into(),
            secret: Secret::new("s3cr3t".into()),
        };
        let told = |prompt: &str| {
            let (wanted, origin) = parse(prompt)?;
            answer(&credential, wanted, &origin)
        };
        assert_eq!(told("Username for 'https://example.org': "), Some("me"));
        assert_eq!(told("Password for 'https://me@example.org': "), Some("s3cr3t"));
        for other in [
            "http://example.org",
            "https://example.org:8443",
            "https://example.org.evil.net",
            "https://example.org@evil.net",
            "https://example.org:443@evil.net",
            "https://evil.net/https://example.org",
            "https://evil.net?@example.org",
            "https://evil.net#@example.org",
        ] {
            assert_eq!(told(&format!("Password for '{other}': ")), None, "{other}");
        }
        assert!(!format!("{credential:?}").contains("s3cr3t"));
    }

    proptest! {
        #[test]
        fn rubbish_never_panics(prompt in "\\PC{0,200}") {
            let _ = parse(&prompt);
            let _ = parse(&format!("Password for '{prompt}': "));
        }
    }
}
