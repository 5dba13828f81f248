//! Builder of the initrd: an uncompressed cpio archive, the same bytes for the same inputs.
//!
//! ```text
//! /init                    the guest daemon; process 1
//! /lib/hivekeep/modules    file names in load order, one per line
//! /lib/hivekeep/*.ko       the modules; EEXIST from finit_module means "already there"
//! /dev/console             so that the kernel can give process 1 its output
//! /dev /proc /sys /newroot empty, to mount on
//! ```
//!
//! The modules are those that a workspace VM needs, in load order. Debian's packages have no `modules.dep` (it is
//! made when a kernel is installed), so the dependencies are read from the modules themselves.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, Reader, trailer};

use super::elf;
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

/// Modules to load, the devices that a VM cannot start without first. Only what a kernel has as a
/// module counts; what is built in needs no file.
pub(super) const WANTED: [&str; 12] = [
    "virtio_mmio",
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "ext4",
    "virtio_net",
    "vmw_vsock_virtio_transport",
    "vsock_loopback",
    "virtio_rng",
    "overlay",
    "qemu_fw_cfg",
    "virtiofs",
];

/// Mark at the end of a signed module, after the signature and twelve bytes about it.
const SIGNATURE_MARK: &[u8] = b"~Module signature appended~\n";

/// Module ready for `finit_module`: uncompressed, without its signature.
#[derive(Debug, Clone)]
pub(super) struct Module {
    /// File name, such as `virtio_blk.ko`.
    pub(super) file: String,
    pub(super) bytes: Vec<u8>,
}

/// Collects the wanted modules below `folder` (a `/lib/modules/<release>`) with all their
/// dependencies, each after those. Blocks.
pub(super) fn select(folder: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let mut index = Index {
        files: BTreeMap::new(),
        builtin: builtin(folder)?,
        chosen: Vec::new(),
        seen: HashSet::new(),
    };
    find(folder, &mut index.files)?;
    for name in wanted {
        index.add(name, None)?;
    }
    Ok(index.chosen)
}

struct Index {
    files: BTreeMap<String, PathBuf>,
    builtin: HashSet<String>,
    chosen: Vec<Module>,
    seen: HashSet<String>,
}

impl Index {
    fn add(&mut self, name: &str, wanted_by: Option<&str>) -> Result<()> {
        let name = canonical(name);
        if self.builtin.contains(&name) || !self.seen.insert(name.clone()) {
            return Ok(());
        }
        let Some(path) = self.files.get(&name).cloned() else {
            let by = wanted_by.map_or_else(String::new, |by| format!(", which {by} needs,"));
            return Err(Error::Kernel {
                reason: format!("module {name}{by} is neither built in nor a file"),
            });
        };
        let bytes = unsigned(unpack(&path)?);
        let depends = elf::modinfo(&bytes, "depends").map_err(|error| Error::Kernel {
            reason: format!("module {name} is not a 64-bit ELF: {error}"),
        })?;
        for dependency in depends.iter().flat_map(|list| list.split(',')) {
            if !dependency.is_empty() {
                self.add(dependency, Some(&name))?;
            }
        }
        self.chosen.push(Module { file: format!("{name}.ko"), bytes });
        Ok(())
    }
}

/// Canonical module name: the kernel treats `-` and `_` as the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn module_name(file: &str) -> Option<String> {
    let name = file.strip_suffix(".xz").unwrap_or(file);
    name.strip_suffix(".ko").map(canonical)
}

fn builtin(folder: &Path) -> Result<HashSet<String>> {
    let path = folder.join("modules.builtin");
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    Ok(text.lines().filter_map(|line| module_name(line.rsplit('/').next()?)).collect())
}

fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find(&path, files)?;
        } else if let Some(name) = entry.file_name().to_str().and_then(module_name) {
            files.insert(name, path);
        }
    }
    Ok(())
}

fn unpack(path: &Path) -> Result<Vec<u8>> {
    let packed = fs::read(path).map_err(Error::io("read", path))?;
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Ok(packed);
    }
    let mut plain = Vec::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true)
        .read_to_end(&mut plain)
        .map_err(Error::io("unpack", path))?;
    Ok(plain)
}

/// Cuts the signature off. Checking it would cost the guest one RSA operation per module, and the
/// initrd's own hash already vouches for the content.
fn unsigned(mut bytes: Vec<u8>) -> Vec<u8> {
    const DETAILS: usize = 12;
    let Some(body) = bytes.strip_suffix(SIGNATURE_MARK) else {
        return bytes;
    };
    let Some(length) = body.last_chunk::<4>().copied().map(u32::from_be_bytes) else {
        return bytes;
    };
    let Some(keep) = body.len().checked_sub(DETAILS + length as usize) else {
        return bytes;
    };
    bytes.truncate(keep);
    bytes
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

    #[test]
    fn a_signature_is_cut_off_and_anything_else_is_kept() {
        let details = [[0u8; 8].as_slice(), 5u32.to_be_bytes().as_slice()].concat();
        let signed = [b"\x7fELF module", b"12345".as_slice(), &details, SIGNATURE_MARK].concat();
        assert_eq!(unsigned(signed), b"\x7fELF module");

        let plain = b"\x7fELF module".to_vec();
        assert_eq!(unsigned(plain.clone()), plain);
        let forged = [u32::MAX.to_be_bytes().as_slice(), SIGNATURE_MARK].concat();
        assert_eq!(unsigned(forged.clone()), forged);
    }

    #[test]
    fn a_module_that_is_nowhere_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        assert_eq!(select(folder.path(), &["ext4"]).unwrap().len(), 0);
        let error = select(folder.path(), &["virtio-rng"]).unwrap_err();
        assert!(error.to_string().contains("module virtio_rng is neither"), "{error}");
    }
}
