//! Builder of the initrd: an uncompressed cpio archive, the same bytes for the same inputs.
//!
//! ```text
//! /init                    the guest daemon; process 1
//! /lib/hivekeep/modules    file names in load order, one per line
//! /lib/hivekeep/*.ko       the modules; EEXIST from finit_module means "already there"
//! /dev/console             so that the kernel can give process 1 its output
//! /dev /proc /sys /newroot empty, to mount on
//! ```

use std::io::{Cursor, Read, Write};

use cpio::newc::{Builder, ModeFileType, Reader, trailer};

use super::modules::Module;
use crate::{Error, Result};

const FOLDER: &str = "lib/hivekeep";
/// Page of the guest's memory.
const PAGE_BYTES: usize = 4096;

/// Content of an archive entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Dir,
    File { mode: u32, bytes: Vec<u8> },
    Console,
}

/// Archive entry; its path is relative to the root, and parents are written first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    path: String,
    content: Content,
}

/// Archive of the part that depends on the kernel alone.
pub(super) fn modules_part(modules: &[Module]) -> Vec<u8> {
    let order: String = modules.iter().map(|module| format!("{}\n", module.file)).collect();
    let mut items = vec![item("lib", Content::Dir), item(FOLDER, Content::Dir)];
    items.push(item(&format!("{FOLDER}/modules"), file(0o644, order.into_bytes())));
    for module in modules {
        let path = format!("{FOLDER}/{}", module.file);
        items.push(item(&path, file(0o644, module.bytes.clone())));
    }
    archive(items)
}

/// Assembles the whole initrd from the kernel's part and the guest daemon, in whole pages. QEMU lets it begin at a
/// page and end in the last one of memory, where QEMU 10's firmware has the ACPI tables; one of whole pages ends
/// before that. The kernel takes zeros behind an archive.
pub(super) fn assemble(modules_part: &[u8], guest: &[u8]) -> Result<Vec<u8>> {
    let mut items = read(modules_part)?;
    for folder in ["dev", "newroot", "proc", "sys"] {
        items.push(item(folder, Content::Dir));
    }
    items.push(item("dev/console", Content::Console));
    items.push(item("init", file(0o755, guest.to_vec())));
    let mut initrd = archive(items);
    initrd.resize(initrd.len().next_multiple_of(PAGE_BYTES), 0);
    Ok(initrd)
}

fn item(path: &str, content: Content) -> Item {
    Item { path: path.to_owned(), content }
}

fn file(mode: u32, bytes: Vec<u8>) -> Content {
    Content::File { mode, bytes }
}

/// Writes an archive with sorted paths, numbered inodes, no times and no owners: nothing depends on
/// the building host.
fn archive(mut items: Vec<Item>) -> Vec<u8> {
    items.sort_by(|a, b| a.path.cmp(&b.path));
    let mut out = Vec::new();
    for (number, item) in (1u32..).zip(&items) {
        let entry = Builder::new(&item.path).ino(number);
        let (entry, bytes): (_, &[u8]) = match &item.content {
            Content::Dir => {
                (entry.mode(0o755).nlink(2).set_mode_file_type(ModeFileType::Directory), &[])
            }
            Content::File { mode, bytes } => {
                (entry.mode(*mode).set_mode_file_type(ModeFileType::Regular), bytes)
            }
            Content::Console => (
                entry
                    .mode(0o600)
                    .rdev_major(5)
                    .rdev_minor(1)
                    .set_mode_file_type(ModeFileType::Char),
                &[],
            ),
        };
        let size = u32::try_from(bytes.len()).expect("no module or daemon is 4 GiB");
        let mut writer = entry.write(&mut out, size);
        writer.write_all(bytes).expect("writing to memory does not fail");
        writer.finish().expect("the size was declared from the bytes");
    }
    trailer(&mut out).expect("writing to memory does not fail");
    out
}

/// Reads back what `archive` wrote.
fn read(archive: &[u8]) -> Result<Vec<Item>> {
    let damaged = Error::io("read", "modules.cpio");
    let mut items = Vec::new();
    let mut rest = Cursor::new(archive);
    let mut next = || -> std::io::Result<Option<Item>> {
        let mut reader = Reader::new(&mut rest)?;
        if reader.entry().is_trailer() {
            return Ok(None);
        }
        let path = reader.entry().name().to_owned();
        let mode = reader.entry().mode();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        reader.finish()?;
        let content =
            if mode & 0o170_000 == 0o040_000 { Content::Dir } else { file(mode & 0o7777, bytes) };
        Ok(Some(Item { path, content }))
    };
    loop {
        match next() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return Ok(items),
            Err(error) => return Err(damaged(error)),
        }
    }
}

/// Module files of an initrd in load order.
#[cfg(test)]
pub(super) fn load_order(archive: &[u8]) -> Vec<String> {
    let items = read(archive).unwrap();
    let list = items.iter().find(|item| item.path == "lib/hivekeep/modules").unwrap();
    let Content::File { bytes, .. } = &list.content else {
        panic!("the list is not a file");
    };
    let order: Vec<_> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    for file in &order {
        assert!(items.iter().any(|item| item.path == format!("lib/hivekeep/{file}")), "{file}");
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Vec<Module> {
        ["virtio.ko", "virtio_ring.ko"]
            .map(|name| Module { file: name.to_owned(), bytes: name.as_bytes().to_vec() })
            .to_vec()
    }

    #[test]
    fn same_inputs_give_the_same_bytes() {
        let once = assemble(&modules_part(&modules()), b"guest").unwrap();
        let again = assemble(&modules_part(&modules()), b"guest").unwrap();
        assert_eq!(once, again);
        assert_ne!(once, assemble(&modules_part(&modules()), b"other").unwrap());
    }

    #[test]
    fn holds_what_the_guest_expects_in_load_order() {
        let initrd = assemble(&modules_part(&modules()), b"guest").unwrap();
        assert_eq!(initrd.len() % PAGE_BYTES, 0);
        let items = read(&initrd).unwrap();
        let paths: Vec<_> = items.iter().map(|item| item.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "dev",
                "dev/console",
                "init",
                "lib",
                "lib/hivekeep",
                "lib/hivekeep/modules",
                "lib/hivekeep/virtio.ko",
                "lib/hivekeep/virtio_ring.ko",
                "newroot",
                "proc",
                "sys",
            ]
        );
        assert_eq!(items[2].content, file(0o755, b"guest".to_vec()));
        assert_eq!(items[5].content, file(0o644, b"virtio.ko\nvirtio_ring.ko\n".to_vec()));
    }
}
