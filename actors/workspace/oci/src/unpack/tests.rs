//! Hostile and odd layers, each in a tree of its own.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::LayerName::{self, *};
use super::*;
use crate::{ImageOptions, LayerPacking, Sha256Digest};

/// Archive in the making.
struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// Entry whose path and target are written as they are, also those that libraries refuse.
    fn entry(mut self, kind: tar::EntryType, path: &str, link: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if kind == tar::EntryType::Directory { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1000);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.entry(tar::EntryType::Regular, path, "", content.as_bytes())
    }

    fn folder(self, path: &str) -> Self {
        self.entry(tar::EntryType::Directory, path, "", b"")
    }

    fn link(self, path: &str, to: &str) -> Self {
        self.entry(tar::EntryType::Symlink, path, to, b"")
    }

    fn hard(self, path: &str, to: &str) -> Self {
        self.entry(tar::EntryType::Link, path, to, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

fn layer(archive: &[u8], packed: &[u8], packing: LayerPacking) -> LayerFile {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(packed).unwrap();
    let bytes = packed.len() as u64;
    LayerFile { file, offset: 0, bytes, packing, diff_id: Sha256Digest::of(archive) }
}

/// Folder with a tree, and beside it a file that no layer may touch.
struct Ground(TempDir);

impl Ground {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("tree")).unwrap();
        fs::write(folder.path().join("outside"), "untouched").unwrap();
        Self(folder)
    }

    fn tree(&self) -> std::path::PathBuf {
        self.0.path().join("tree")
    }

    fn put_with(&self, options: &ImageOptions, layers: Vec<LayerFile>) -> OciResult<UnpackedTree> {
        let done = unpack(
            layers,
            &self.tree(),
            None,
            options.limits(),
            &CancellationToken::new(),
            &|_| (),
        );
        assert_eq!(fs::read(self.0.path().join("outside")).unwrap(), b"untouched");
        assert_eq!(fs::read_dir(self.0.path()).unwrap().count(), 2, "something escaped");
        done
    }

    fn put(&self, archives: Vec<Tar>) -> OciResult<UnpackedTree> {
        let plain = |archive: Tar| {
            let bytes = archive.bytes();
            layer(&bytes, &bytes, LayerPacking::Plain)
        };
        self.put_with(&ImageOptions::default(), archives.into_iter().map(plain).collect())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.tree().join(path)).unwrap_or_else(|error| error.kind().to_string())
    }
}

fn refusal(archives: Vec<Tar>) -> String {
    Ground::new().put(archives).expect_err("it was unpacked").to_string()
}

#[test]
fn paths_and_hard_links_that_lead_upward_are_refused() {
    for path in ["../outside", "a/../../outside", ".."] {
        assert!(refusal(vec![Tar::new().file(path, "x")]).contains("leads upward"), "{path}");
        let linked = refusal(vec![Tar::new().hard("a", path)]);
        assert!(linked.contains("leads upward"), "{linked}");
    }
    // Absolute paths are the tree's own.
    let ground = Ground::new();
    ground.put(vec![Tar::new().file("/etc/passwd", "ours").hard("/copy", "/etc/passwd")]).unwrap();
    assert_eq!((ground.read("etc/passwd"), ground.read("copy")), ("ours".into(), "ours".into()));
    assert!(refusal(vec![Tar::new().hard("a", "none")]).contains("does not exist"));
    assert!(refusal(vec![Tar::new().folder("d").hard("a", "d")]).contains("not another file"));
    assert!(refusal(vec![Tar::new().file("d/f", "").hard("d", "d/f")]).contains("would replace"));
    assert!(refusal(vec![Tar::new().file("a", "").hard("./a", "a")]).contains("not another file"));
}

#[test]
fn links_lead_to_where_they_lead_inside() {
    let ground = Ground::new();
    let outside = ground.0.path().join("outside").display().to_string();
    let (up, host) = ("../../../../../..", ground.0.path().display().to_string());
    ground
        .put(vec![
            Tar::new().folder("etc").link("abs", "/etc").link("up", up).link("file", &outside),
            Tar::new().file("abs/a", "1").file("up/etc/b", "2").file("file", "3"),
        ])
        .unwrap();
    assert_eq!((ground.read("etc/a"), ground.read("etc/b")), ("1".into(), "2".into()));
    assert!(
        ground.tree().join("file").symlink_metadata().unwrap().is_file(),
        "replaced, not followed"
    );
    // A link to the host's folder is dangling inside.
    let dangling =
        refusal(vec![Tar::new().link("l", &host[..host.len().min(99)]).file("l/outside", "x")]);
    assert!(dangling.contains("leads nowhere"), "{dangling}");
    let circle = refusal(vec![Tar::new().link("a", "b").link("b", "a").file("a/c", "x")]);
    assert!(circle.contains("lead to each other"), "{circle}");
    let proc = Ground::new();
    symlink("/proc/self/fd", proc.tree().join("fd")).unwrap();
    proc.put(vec![Tar::new().file("fd/0", "x")]).expect_err("a link of the kernel was followed");
}

#[test]
fn a_folder_becomes_a_link_and_files_through_it_stay_inside() {
    let ground = Ground::new();
    ground
        .put(vec![
            Tar::new().file("d/old", "x").file("real/kept", "k"),
            Tar::new().link("d", "/real").file("d/new", "n"),
            Tar::new().folder("d").file("d/newest", "f"),
        ])
        .unwrap();
    assert_eq!((ground.read("real/new"), ground.read("real/kept")), ("n".into(), "k".into()));
    assert!(ground.tree().join("d").symlink_metadata().unwrap().is_dir());
    assert_eq!(ground.read("d/newest"), "f");
    assert_eq!(fs::read_dir(ground.tree().join("d")).unwrap().count(), 1);
}

#[test]
fn devices_and_pipes_are_refused_but_below_dev() {
    use tar::EntryType::{Block, Char, Fifo};
    for kind in [Block, Char, Fifo] {
        for path in ["device", "srv/dev/sda"] {
            let error = refusal(vec![Tar::new().entry(kind, path, "", b"")]);
            assert!(error.contains("device or a pipe"), "{error}");
        }
    }
    let ground = Ground::new();
    let made = ground.put(vec![Tar::new().entry(Char, "dev/null", "", b"").entry(
        Fifo,
        "./dev/log",
        "",
        b"",
    )]);
    assert_eq!(made.unwrap().devices_left_out, 2);
    assert_eq!(fs::read_dir(ground.tree().join("dev")).unwrap().count(), 0);
    let sparse = refusal(vec![Tar::new().entry(tar::EntryType::GNUSparse, "s", "", b"")]);
    assert!(sparse.contains("entries of the type"), "{sparse}");
}

#[test]
fn whiteouts_take_what_is_below_and_nothing_of_their_own_layer() {
    let ground = Ground::new();
    ground
        .put(vec![
            Tar::new().file("a/gone", "1").file("a/kept", "2").file("o/x/y", "3").file("o/z", "4"),
            Tar::new()
                .file("o/x/own", "5")
                .entry(tar::EntryType::Regular, "o/.wh..wh..opq", "", b"")
                .file("o/late", "6")
                .entry(tar::EntryType::Regular, "a/.wh.gone", "", b"")
                .entry(tar::EntryType::Regular, "none/.wh.gone", "", b"")
                .entry(tar::EntryType::Regular, ".wh..wh.plnk", "", b""),
        ])
        .unwrap();
    assert_eq!(
        (ground.read("a/gone"), ground.read("a/kept")),
        ("entity not found".into(), "2".into())
    );
    assert_eq!(
        (ground.read("o/x/y"), ground.read("o/z")),
        ("entity not found".into(), "entity not found".into())
    );
    assert_eq!((ground.read("o/x/own"), ground.read("o/late")), ("5".into(), "6".into()));
    assert!(!ground.tree().join("none").exists() && !ground.tree().join(".wh..wh.plnk").exists());
    for name in [".wh.", ".wh..", ".wh...", "a/.wh..."] {
        assert!(
            refusal(vec![Tar::new().file(name, "")]).contains("not a valid whiteout"),
            "{name}"
        );
    }
    // Through a link it takes away what is inside, not what is outside.
    let linked = Ground::new();
    let up = Tar::new().link("up", "../..").file("outside", "inner").file("up/.wh.outside", "");
    linked.put(vec![Tar::new().file("outside", "lower"), up]).unwrap();
}

#[test]
fn special_modes_times_owners_and_attributes_are_kept() {
    let ground = Ground::new();
    let mut archive = tar::Builder::new(Vec::new());
    let capability =
        b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    archive
        .append_pax_extensions([
            ("mtime", b"1234567890.5".as_slice()),
            ("SCHILY.xattr.security.capability", capability.as_slice()),
            ("SCHILY.xattr.user.overlay.opaque", b"y".as_slice()),
            ("SCHILY.xattr.trusted.x", b"y".as_slice()),
        ])
        .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o4755);
    header.set_uid(7);
    header.set_gid(8);
    header.set_size(2);
    archive.append_data(&mut header, "bin/su", b"su".as_slice()).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o1700);
    header.set_uid(7);
    header.set_gid(8);
    header.set_size(0);
    header.set_mtime(77);
    archive.append_data(&mut header, "bin", b"".as_slice()).unwrap();
    let made = ground.put(vec![Tar(archive), Tar::new().hard("linked", "bin/su")]).unwrap();
    let owner = &made.owners["bin/su"];
    assert_eq!((owner.uid, owner.gid), (7, 8));
    assert_eq!(owner.capability.as_deref().map(str::len), Some(2 * capability.len()));
    assert_eq!((made.owners.get("linked"), made.xattrs_left_out), (Some(owner), 2));
    let meta = |path: &str| fs::symlink_metadata(ground.tree().join(path)).unwrap();
    let (su, bin) = (meta("bin/su"), meta("bin"));
    assert_eq!((su.mode() & 0o7777, su.nlink()), (0o4755, 2));
    assert_eq!((su.mtime(), su.mtime_nsec()), (1_234_567_890, 500_000_000));
    assert_eq!((bin.permissions().mode() & 0o7777, bin.mtime()), (0o1700, 77));
    if rustix::process::geteuid().is_root() {
        assert_eq!((su.uid(), su.gid(), bin.uid()), (7, 8, 7));
        let mut value = [0u8; 64];
        let file = File::open(ground.tree().join("bin/su")).unwrap();
        let got = rustix::fs::fgetxattr(&file, "security.capability", &mut value).unwrap();
        assert_eq!(&value[..got], capability);
    } else {
        hivekeep_skip::skip("only root can look at owners and capabilities");
    }
}

#[test]
fn bombs_end_at_their_limit() {
    let options = ImageOptions { max_unpacked_mb: 1, max_entries: 50, ..Default::default() };
    let zeros = Tar::new().file("zeros", &"\0".repeat(8 << 20)).bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&zeros).unwrap();
    let zstd = zstd::stream::encode_all(zeros.as_slice(), 3).unwrap();
    for (packed, packing) in
        [(gzip.finish().unwrap(), LayerPacking::Gzip), (zstd, LayerPacking::Zstd)]
    {
        assert!(packed.len() < 64 << 10);
        let error = Ground::new().put_with(&options, vec![layer(&zeros, &packed, packing)]);
        let key = "workspace.images.max_unpacked_mb";
        assert!(
            matches!(&error, Err(Error::TooLarge { key: found, .. }) if *found == key),
            "{error:?}"
        );
    }
    let many = (0..51).fold(Tar::new(), |tar, number| tar.file(&format!("f{number}"), "")).bytes();
    let error = Ground::new().put_with(&options, vec![layer(&many, &many, LayerPacking::Plain)]);
    assert!(matches!(error, Err(Error::TooLarge { what: "entries", .. })), "{error:?}");
    let long = Tar::new().entry(tar::EntryType::XHeader, "x", "", &vec![b'1'; 2 << 20]);
    let error = Ground::new().put(vec![long]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { key: "extension_bytes", .. }), "{error:?}");
}

#[test]
fn links_do_not_lead_deeper_than_any_path() {
    // Each layer goes on where a link of the one before leads.
    let deeper = "d/".repeat(40);
    let layers = (0..8)
        .map(|_| Tar::new().folder(&format!("l/{deeper}")).link("l", &format!("/l/{deeper}")));
    let error = refusal(std::iter::once(Tar::new().link("l", "/")).chain(layers).collect());
    assert!(error.contains("layer"), "{error}");
}

#[test]
fn a_changed_or_cut_layer_is_told() {
    let archive = Tar::new().file("a", "content").bytes();
    let mut changed = archive.clone();
    changed[512] ^= 1;
    let error = Ground::new()
        .put_with(&ImageOptions::default(), vec![layer(&archive, &changed, LayerPacking::Plain)]);
    assert!(matches!(error, Err(Error::Digest { .. })), "{error:?}");
    // Bytes behind the end of the archive count as well.
    let longer = [archive.clone(), vec![7; 100]].concat();
    let error = Ground::new()
        .put_with(&ImageOptions::default(), vec![layer(&archive, &longer, LayerPacking::Plain)]);
    assert!(error.is_err());
    let error = Ground::new().put_with(
        &ImageOptions::default(),
        vec![layer(&archive, &archive[..515], LayerPacking::Plain)],
    );
    assert!(matches!(error, Err(Error::Entry { .. } | Error::BadLayer { .. })), "{error:?}");
    // Without what fills up the last block it is whole; without a byte of content it is not.
    let options = ImageOptions::default();
    let plain = |archive: &[u8]| vec![layer(archive, archive, LayerPacking::Plain)];
    Ground::new().put_with(&options, plain(&archive[..519])).unwrap();
    let error = Ground::new().put_with(&options, plain(&archive[..518]));
    assert!(matches!(error, Err(Error::BadLayer { .. })), "{error:?}");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let ground = Ground::new();
    let limits = ImageOptions::default().limits();
    let archive = layer(&archive, &archive, LayerPacking::Plain);
    let error = unpack(vec![archive], &ground.tree(), None, limits, &cancel, &|_| ());
    assert!(matches!(error, Err(Error::Cancelled)), "{error:?}");
}

#[test]
fn names_of_whiteouts() {
    for (name, means) in [
        ("a.wh.b", Plain),
        (".wh.a", Removed("a")),
        (".wh..hidden", Removed(".hidden")),
        (".wh..wh..opq", Opaque),
        (".wh..wh.plnk", Ignored),
        (".wh.", Bad),
        (".wh..", Bad),
        (".wh...", Bad),
    ] {
        assert_eq!(LayerName::of(name), means, "{name}");
    }
}
