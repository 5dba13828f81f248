//! The file system through the kernel: it is one, and it forgets what was not synced.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hivekeep_power_cut::{Cut, Image, Mount, Node, Order};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};

/// A mount of an empty disk; `None` where there can be none.
pub fn empty() -> Option<Mount> {
    if let Some(refused) = Mount::refused() {
        hivekeep_skip::skip(refused);
        return None;
    }
    Some(Mount::new(&Image::default()).unwrap())
}

/// What a cut finds of a path, in many cuts: the files' bytes, or nothing.
fn found(mount: &Mount, order: Order, path: &str) -> Vec<Option<Vec<u8>>> {
    let mut found: Vec<_> = (0..200)
        .map(|seed| {
            let cut = std::thread::scope(|scope| {
                let asked = scope.spawn(|| mount.cut(Cut { after: 0, order, seed }, || ()));
                while !asked.is_finished() {
                    // Anything that makes no difference.
                    fs::set_permissions(
                        mount.path(),
                        fs::metadata(mount.path()).unwrap().permissions(),
                    )
                    .unwrap();
                }
                asked.join().unwrap().1
            });
            match cut.at(path) {
                Some(Node::File(_, bytes)) => Some(bytes.clone()),
                _ => None,
            }
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn sync(dir: &Path) {
    File::open(dir).unwrap().sync_all().unwrap();
}

#[test]
fn what_was_written_is_read() {
    let Some(mount) = empty() else { return };
    let dir = mount.path().join("a/b");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("file");
    fs::write(&path, vec![7; 300_000]).unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(299_999)).unwrap();
    file.write_all(b"end").unwrap();
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), &bytes[299_998..]), (300_002, &b"\x07end"[..]));
    fallocate(&file, FallocateFlags::KEEP_SIZE, 300_002, 1 << 20).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 300_002);
    assert!(meta.blocks() * 512 > 1_300_000, "{meta:?}");
    file.set_len(3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [7; 3]);
    assert!(file.try_lock().is_ok());
    assert!(File::open(&path).unwrap().try_lock().is_err(), "locks are the kernel's");
    fs::copy(&path, dir.join("copy")).unwrap();
    fs::hard_link(&path, dir.join("link")).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
    let (copy, link) = (dir.join("copy"), dir.join("link"));
    let refused = renameat_with(CWD, &copy, CWD, &link, RenameFlags::NOREPLACE).unwrap_err();
    assert_eq!(std::io::Error::from(refused).kind(), ErrorKind::AlreadyExists);
    fs::rename(&copy, &link).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
    let refused = fs::remove_dir(mount.path().join("a")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
    for number in 0..2000 {
        fs::write(dir.join(number.to_string()), b"").unwrap();
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2002);
    fs::remove_dir_all(mount.path().join("a")).unwrap();
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
    assert_eq!(file.metadata().unwrap().len(), 3, "an open file outlives its name");
}

#[test]
fn a_cut_forgets_what_was_not_synced() {
    let Some(mount) = empty() else { return };
    let path = mount.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"old").unwrap();
    file.sync_all().unwrap();
    for order in [Order::Journal, Order::Apart] {
        let either = [None, Some(b"old".to_vec())];
        assert_eq!(found(&mount, order, "file"), either, "a synced file without its name");
    }
    sync(mount.path());
    assert_eq!(found(&mount, Order::Apart, "file"), [Some(b"old".to_vec())]);
    fs::write(mount.path().join("new"), b"new").unwrap();
    File::open(mount.path().join("new")).unwrap().sync_all().unwrap();
    fs::rename(mount.path().join("new"), &path).unwrap();
    let either = [Some(b"new".to_vec()), Some(b"old".to_vec())];
    assert_eq!(found(&mount, Order::Journal, "file"), either);
    sync(mount.path());
    assert_eq!(found(&mount, Order::Apart, "file"), either[..1]);
}

#[test]
fn the_survivor_of_a_cut_is_the_next_disk() {
    let Some(mount) = empty() else { return };
    fs::create_dir(mount.path().join("dir")).unwrap();
    fs::write(mount.path().join("dir/file"), b"bytes").unwrap();
    File::open(mount.path().join("dir/file")).unwrap().sync_all().unwrap();
    sync(&mount.path().join("dir"));
    let cut = Cut { after: 1, order: Order::Journal, seed: 1 };
    let (told, image) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| mount.cut(cut, || "acknowledged"));
        while !asked.is_finished() {
            fs::write(mount.path().join("later"), b"").unwrap();
        }
        asked.join().unwrap()
    });
    assert_eq!((told, image.lost), ("acknowledged", image.lost));
    drop(mount);
    let folder = tempfile::tempdir().unwrap();
    image.write_to(folder.path()).unwrap();
    let next = Mount::new(&image).unwrap();
    for root in [folder.path(), next.path()] {
        assert_eq!(fs::read(root.join("dir/file")).unwrap(), b"bytes");
    }
}
