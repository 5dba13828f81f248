//! Memory of a guest that stands still, read from outside: the memfd itself, or, of a machine that maps
//! an image privately, what `/proc` shows of its process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use procfs::process::{MMPermissions, MemoryPageFlags, PageInfo, PageMap, Process};
use rustix::fs::SealFlags;
use uuid::Uuid;

use super::data_ranges;
use super::map::PAGE_BYTES;
use crate::{MachineHandle, SharedImage};

/// A guest's memory, in a file.
#[derive(Debug)]
pub(in crate::vm) struct Pages {
    pub(super) file: File,
    /// Offset of the memory's first byte in the file.
    pub(super) first: u64,
    pub(super) len: usize,
    /// Parts that may hold something else than `over` has, or than zeroes.
    pub(super) own: Vec<Range<usize>>,
    /// Image that all other pages are of.
    pub(super) over: Option<(Uuid, File)>,
}

impl Pages {
    /// Memory that is shared with the daemon.
    pub(in crate::vm) fn of_memfd(file: File, memory_mb: u64) -> io::Result<Self> {
        let len = size_of(&file, memory_mb)?;
        let own = data_ranges(&file, len)?;
        Ok(Self { file, first: 0, len, own, over: None })
    }
}

/// The private mapping of an image in a running QEMU.
///
/// Everything here is what that process might as well write into a file: it can make the saved memory wrong,
/// and that memory is its own.
pub(in crate::vm) struct PrivateMapping {
    image: (Uuid, File),
    mem: File,
    pages: PageMap,
    first: u64,
    len: usize,
}

impl PrivateMapping {
    /// Looks for it.
    ///
    /// # Errors
    /// Also where the kernel lets this process not look into that one: as another user, or, under Yama, as a
    /// daemon that did not start it.
    pub(in crate::vm) fn of(
        handle: &MachineHandle,
        image: SharedImage,
        file: File,
        memory_mb: u64,
    ) -> io::Result<Self> {
        let len = size_of(&file, memory_mb)?;
        let process = Process::new(handle.process.pid).map_err(io::Error::other)?;
        handle.verify_process().map_err(io::Error::other)?;
        let inode = file.metadata()?.ino();
        let maps = process.maps().map_err(io::Error::other)?;
        let private = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
        let parts = maps.iter().filter(|map| map.inode == inode && map.perms.contains(private));
        let mut first = None;
        let mut end = 0;
        // The kernel may show one mapping in parts.
        for part in parts {
            let begins = *first.get_or_insert(part.address.0);
            if part.address.0.checked_sub(begins) != Some(part.offset) || part.offset != end {
                return Err(io::Error::other("the memory's image is mapped in another way"));
            }
            end += part.address.1.saturating_sub(part.address.0);
        }
        let first = first.filter(|_| end == len as u64);
        let first = first.ok_or_else(|| io::Error::other("the memory's image is not mapped"))?;
        let mem = process.mem().map_err(io::Error::other)?;
        let pages = process.pagemap().map_err(io::Error::other)?;
        Ok(Self { image: (image.id, file), mem, pages, first, len })
    }

    /// The pages of a guest that stands still. Blocks.
    pub(in crate::vm) fn pages(mut self) -> io::Result<Pages> {
        let page = |offset: u64| usize::try_from(offset / PAGE_BYTES as u64);
        let begin = page(self.first).map_err(io::Error::other)?;
        let count = self.len / PAGE_BYTES;
        let told = self.pages.get_range_info(begin..begin + count).map_err(io::Error::other)?;
        if told.len() != count {
            return Err(io::Error::other("the kernel does not tell of all pages"));
        }
        let mut own: Vec<Range<usize>> = Vec::new();
        for (page, _) in told.iter().enumerate().filter(|(_, info)| is_own(info)) {
            let at = page * PAGE_BYTES;
            match own.last_mut() {
                Some(range) if range.end == at => range.end += PAGE_BYTES,
                _ => own.push(at..at + PAGE_BYTES),
            }
        }
        let Self { image, mem, first, len, .. } = self;
        Ok(Pages { file: mem, first, len, own, over: Some(image) })
    }
}

/// True for a page that was written: no page of the image's file any more.
fn is_own(info: &PageInfo) -> bool {
    match info {
        PageInfo::MemoryPage(flags) => {
            flags.contains(MemoryPageFlags::PRESENT) && !flags.contains(MemoryPageFlags::FILE)
        }
        PageInfo::SwapPage(_) => true,
    }
}

/// Bytes of a guest's memory, which its QEMU may not have made smaller.
fn size_of(memory: &File, memory_mb: u64) -> io::Result<usize> {
    let len = usize::try_from(memory_mb << 20).map_err(io::Error::other)?;
    let sealed = rustix::fs::fcntl_get_seals(memory)?.contains(SealFlags::SHRINK);
    if !sealed || memory.metadata()?.len() != len as u64 {
        return Err(io::Error::other("not the memory of a guest of this size"));
    }
    Ok(len)
}
