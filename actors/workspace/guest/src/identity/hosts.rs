//! The machine's own name in `/etc/hosts`.

use std::io;
use std::path::Path;

use super::small;

/// Debian's address for a host's own name.
const OWN_ADDRESS: &str = "127.0.1.1";
/// A larger `/etc/hosts` is left alone.
const HOSTS_BYTES: u64 = 1 << 20;
/// Width of the name, the maximum of a host name: the line keeps its length and can be overwritten.
const NAME_WIDTH: usize = 63;

/// Makes the host's own name resolve, as Debian does. Other lines stay as they are.
///
/// # Errors
/// When the file is too large or cannot be replaced.
pub fn name_in_hosts(hosts: &Path, hostname: &str) -> io::Result<()> {
    let text = match std::fs::metadata(hosts) {
        Ok(meta) if meta.len() > HOSTS_BYTES => return Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => std::fs::read_to_string(hosts)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let named = with_own_name(&text, hostname);
    if named == text { Ok(()) } else { small::put(hosts, named.as_bytes(), 0o644) }
}

fn with_own_name(text: &str, hostname: &str) -> String {
    let own = format!("{OWN_ADDRESS}\t{hostname:<NAME_WIDTH$}\n");
    let (mut named, mut found) = (String::with_capacity(text.len() + own.len()), false);
    for line in text.lines() {
        if line.split_ascii_whitespace().next() != Some(OWN_ADDRESS) {
            named.push_str(line);
            named.push('\n');
        } else if !std::mem::replace(&mut found, true) {
            named.push_str(&own);
        }
    }
    if !found {
        named.push_str(&own);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().map(str::trim_end).collect()
    }

    #[test]
    fn the_own_name_is_in_hosts_once_and_nothing_else_changes() {
        let image = "127.0.0.1\tlocalhost\n::1\tlocalhost\n";
        let named = with_own_name(image, "one");
        assert_eq!(lines(&named), ["127.0.0.1\tlocalhost", "::1\tlocalhost", "127.0.1.1\tone"]);
        assert_eq!(with_own_name(&named, "one"), named);
        let twice = format!("127.0.1.1 x\n{named}# end");
        let two = with_own_name(&twice, "two");
        assert_eq!(lines(&two)[..2], ["127.0.1.1\ttwo", "127.0.0.1\tlocalhost"]);
        assert_eq!(lines(&two)[3..], ["# end"]);
        assert_eq!(lines(&with_own_name("", "a")), ["127.0.1.1\ta"]);
    }

    #[test]
    fn another_name_does_not_change_the_length() {
        let one = with_own_name("127.0.0.1\tlocalhost\n", "a");
        let long = "b".repeat(63);
        assert_eq!(with_own_name(&one, &long).len(), one.len());
    }

    #[test]
    fn hosts_is_made_and_left_alone_when_right() {
        let dir = tempfile::tempdir().expect("a folder");
        let hosts = dir.path().join("hosts");
        name_in_hosts(&hosts, "one").expect("made");
        let made = std::fs::metadata(&hosts).expect("there").modified().expect("a time");
        name_in_hosts(&hosts, "one").expect("right");
        assert_eq!(std::fs::metadata(&hosts).expect("there").modified().expect("a time"), made);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
