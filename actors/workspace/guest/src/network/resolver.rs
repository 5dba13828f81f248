//! Name server of the machine, in `resolv.conf`.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::identity::write_beside;

/// Sets the name server, or none. A file or symlink that a program put there is replaced.
pub(super) fn name(resolv_conf: &Path, server: Option<Ipv4Addr>) -> io::Result<()> {
    let text = server.map_or_else(String::new, |server| format!("nameserver {server}\n"));
    let is_file = std::fs::symlink_metadata(resolv_conf).is_ok_and(|meta| meta.is_file());
    if is_file && std::fs::read(resolv_conf)? == text.as_bytes() {
        return Ok(());
    }
    // Not synced: each start of the machine sets it again, and a flush of the disk is what a
    // start waits for.
    let temp = write_beside(resolv_conf, text.as_bytes(), 0o644)?;
    std::fs::rename(temp, resolv_conf)
}

/// First name server in the file.
pub(super) fn first(resolv_conf: &Path) -> io::Result<Option<Ipv4Addr>> {
    let text = std::fs::read_to_string(resolv_conf)?;
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|word| *word == "nameserver").and(words.next())?.parse().ok()
    };
    Ok(text.lines().find_map(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_one_server_or_none_whatever_was_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let (conf, far) = (dir.path().join("resolv.conf"), dir.path().join("far"));
        std::fs::write(&far, "nameserver 9.9.9.9\n").expect("written");
        std::os::unix::fs::symlink(&far, &conf).expect("linked");
        let server = Ipv4Addr::new(10, 213, 0, 1);
        name(&conf, Some(server)).expect("named");
        assert_eq!(first(&conf).expect("read"), Some(server));
        assert!(std::fs::symlink_metadata(&conf).expect("there").is_file());
        assert_eq!(std::fs::read_to_string(&far).expect("read"), "nameserver 9.9.9.9\n");

        let made = std::fs::metadata(&conf).expect("there").modified().expect("a time");
        name(&conf, Some(server)).expect("right already");
        assert_eq!(std::fs::metadata(&conf).expect("there").modified().expect("a time"), made);
        name(&conf, None).expect("emptied");
        assert_eq!(first(&conf).expect("read"), None);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
    }
}
