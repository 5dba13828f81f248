//! Hostile archives and layouts: members are names in an index, and nothing else is opened by them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tar::EntryType::{Char, Directory, Fifo, GNULongName, Link, Regular, Symlink, XHeader};
use tempfile::TempDir;

use super::*;
use crate::options::EXTENSION_BYTES;
use crate::{Error, ImageOptions};

/// A configuration with one layer, whatever that holds.
fn config() -> String {
    let digest = Sha256Digest::of(b"layer");
    format!(
        r#"{{"os": "linux", "architecture": "amd64", "config": {{}},
            "rootfs": {{"type": "layers", "diff_ids": ["{digest}"]}}}}"#
    )
}

/// Archive of entries whose names, targets and sizes are written as they are.
fn archive(folder: &Path, entries: &[(tar::EntryType, &str, &str, &[u8])]) -> PathBuf {
    let mut archive = tar::Builder::new(Vec::new());
    for (kind, path, link, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        archive.append(&header, *content).unwrap();
    }
    let path = folder.join("saved.tar");
    fs::write(&path, archive.into_inner().unwrap()).unwrap();
    path
}

fn image(path: &Path) -> OciResult<FetchedImage> {
    DockerArchive::open(path)?.image(&ImageOptions::default().limits())
}

/// Manifest that names a configuration and a layer.
fn names(config: &str, layer: &str) -> Vec<u8> {
    serde_json::to_vec(&serde_json::json!([{ "Config": config, "Layers": [layer] }])).unwrap()
}

#[test]
fn members_of_an_archive_are_never_files_of_the_host() {
    let folder = TempDir::new().unwrap();
    let (config, outside) = (config(), folder.path().join("outside"));
    fs::write(&outside, &config).unwrap();
    let outside = outside.to_str().unwrap();
    let good = names("c", "l");
    let found = image(&archive(
        folder.path(),
        &[
            (Regular, "manifest.json", "", &good),
            (Regular, "c", "", config.as_bytes()),
            (Symlink, "l", "../real", b""),
            (Regular, "real", "", b"layer"),
        ],
    ));
    assert_eq!(found.unwrap().layers.len(), 1, "of a sound archive");
    let up = format!("../../../../..{outside}");
    for member in [outside, &up, "../outside", "outside", "/proc/self/environ", "", "a\0b"] {
        for manifest in [names(member, "l"), names("c", member)] {
            let path = archive(
                folder.path(),
                &[
                    (Regular, "manifest.json", "", &manifest),
                    (Regular, "c", "", config.as_bytes()),
                    (Regular, "l", "", b"layer"),
                ],
            );
            assert!(matches!(image(&path).err(), Some(Error::NotFound { .. })), "{member}");
        }
    }
    // A link, a device or a pipe of that name, a folder, and links that lead to each other.
    for (kind, to) in [
        (Symlink, outside),
        (Symlink, up.get(..99).unwrap_or(&up)),
        (Link, outside),
        (Symlink, "c"),
        (Char, ""),
        (Fifo, ""),
        (Directory, ""),
    ] {
        let path = archive(
            folder.path(),
            &[
                (Regular, "manifest.json", "", &good),
                (kind, "c", to, b""),
                (Regular, "l", "", b"layer"),
            ],
        );
        assert!(image(&path).is_err(), "{kind:?} {to}");
    }
}

#[test]
fn names_sizes_and_numbers_of_members_are_bounded() {
    let folder = TempDir::new().unwrap();
    let (config, manifest) = (config(), names(&"c".repeat(300), "l"));
    // Long and broken names by each kind of extension; those that are too long are cut.
    let long = [b"c".repeat(300), b"\0".to_vec()].concat();
    let entries: &[(_, &str, &str, &[u8])] = &[
        (Regular, "manifest.json", "", &manifest),
        (GNULongName, "x", "", &long),
        (Regular, "cut", "", config.as_bytes()),
        (Regular, "l", "", b"layer"),
    ];
    assert!(image(&archive(folder.path(), entries)).is_ok());
    let huge = vec![b'1'; 2 * usize::try_from(EXTENSION_BYTES).unwrap()];
    for kind in [GNULongName, XHeader] {
        let path = archive(folder.path(), &[(kind, "x", "", &huge), (Regular, "l", "", b"")]);
        assert!(image(&path).is_err(), "{kind:?}");
    }
    let many: Vec<(_, &str, &str, &[u8])> = vec![(Regular, "f", "", b""); 5000];
    let refused = image(&archive(folder.path(), &many)).err().unwrap().to_string();
    assert!(refused.contains("too many"), "{refused}");
    // An archive that says more than it has is told, or found out when its layers are unpacked.
    let whole = fs::read(archive(folder.path(), entries)).unwrap();
    let path = folder.path().join("saved.tar");
    for length in (0..whole.len()).step_by(511) {
        fs::write(&path, &whole[..length]).unwrap();
        let _told_or_found = image(&path).is_ok();
    }
    // Nothing waits for what is no file.
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for place in [&pipe, folder.path(), Path::new("/dev/zero")] {
        assert!(image(place).is_err(), "{}", place.display());
    }
}

#[test]
fn a_layout_is_read_through_no_link() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join("layout").join(name);
    fs::create_dir_all(at("blobs/sha256")).unwrap();
    let config = config();
    let digest = Sha256Digest::of(config.as_bytes());
    let index = |digest: &str| {
        let media = "application/vnd.oci.image.manifest.v1+json";
        let row = serde_json::json!({ "mediaType": media, "digest": digest, "size": config.len() });
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [row] });
        fs::write(at("index.json"), index.to_string()).unwrap();
    };
    index(&digest.to_string());
    let blob = at("blobs/sha256").join(digest.hex());
    let top = || OciLayout::open(&at(""), None).and_then(|layout| layout.top());
    fs::write(&blob, &config).unwrap();
    assert_eq!(top().unwrap().1, digest, "of a sound layout");
    let outside = folder.path().join("outside");
    fs::write(&outside, &config).unwrap();
    let gone = || fs::remove_file(&blob).unwrap();
    for target in [outside.as_path(), Path::new("../../../outside"), Path::new("/proc/self/fd/0")] {
        gone();
        symlink(target, &blob).unwrap();
        assert!(top().is_err(), "{}", target.display());
    }
    gone();
    mknodat(CWD, &blob, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(top().is_err(), "a pipe");
    // A folder on the way, and the index itself.
    gone();
    fs::write(folder.path().join(digest.hex()), &config).unwrap();
    fs::remove_dir(at("blobs/sha256")).unwrap();
    symlink(folder.path(), at("blobs/sha256")).unwrap();
    assert!(top().is_err(), "a folder that is a link");
    for bad in ["sha256:../../../outside", "sha256:/etc/passwd", "../outside:00", ""] {
        index(bad);
        assert!(top().is_err(), "{bad}");
    }
    index(&digest.to_string());
    fs::rename(at("index.json"), folder.path().join("index")).unwrap();
    symlink("../index", at("index.json")).unwrap();
    assert!(top().is_err(), "an index that is a link");
}
