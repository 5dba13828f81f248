//! Packed memory: the pages of a guest that stands still, as a difference to a memory image that it
//! began with or to zeroes, compressed.
//!
//! ```text
//! zstd( ( first page: u32, pages: u32, their bytes )* )      little endian, ascending
//! ```
//!
//! The memory is read from outside: the memfd itself, or, of a machine that maps an image privately, what `/proc` shows
//! of its process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use procfs::process::{MMPermissions, MemoryPageFlags, PageInfo, PageMap, Process};
use rustix::fs::SealFlags;
use uuid::Uuid;

use super::map::PAGE_BYTES;
use super::{data_ranges, make};
use crate::{MachineHandle, SharedImage};

/// Pages that are looked at in one go: 1 MiB.
const CHUNK_BYTES: usize = 256 * PAGE_BYTES;
/// Quickest level of zstd: memory is written once and read once.
const LEVEL: i32 = 1;

/// Writes what differs between the memory and the base, synced; returns the bytes of the pages.
/// The memory is read as a file: a page that was never written stays so. Blocks.
pub(in crate::vm) fn pack(
    memory: &Pages,
    base: Option<(Uuid, &File)>,
    into: &File,
) -> io::Result<u64> {
    let len = memory.len;
    let (over, base_id) = (memory.over.as_ref(), base.map(|(id, _)| id));
    let base = base.map(|(_, file)| file);
    let mut rest = Vec::new();
    // Pages that the machine did not write are as in the image that it began with.
    if over.map(|(id, _)| *id) != base_id {
        for file in over.map(|(_, image)| image).into_iter().chain(base) {
            rest.extend(data_ranges(file, len)?);
        }
    }
    let mut encoder = zstd::Encoder::new(into, LEVEL)?;
    encoder.include_checksum(true)?;
    let (mut now, mut before) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut bytes = 0;
    for at in (0..len).step_by(CHUNK_BYTES) {
        let end = len.min(at + CHUNK_BYTES);
        let has_data = |range: &Range<usize>| range.start < end && at < range.end;
        if !memory.own.iter().chain(&rest).any(has_data) {
            continue;
        }
        let now = &mut now[..end - at];
        memory.file.read_exact_at(now, memory.first + at as u64)?;
        let before = &mut before[..end - at];
        match base {
            Some(base) => base.read_exact_at(before, at as u64)?,
            None => before.fill(0),
        }
        for run in differing(now, before) {
            let first = u32::try_from(at / PAGE_BYTES + run.start).map_err(io::Error::other)?;
            let count = u32::try_from(run.len()).map_err(io::Error::other)?;
            encoder.write_all(&first.to_le_bytes())?;
            encoder.write_all(&count.to_le_bytes())?;
            let run = &now[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
            encoder.write_all(run)?;
            bytes += run.len() as u64;
        }
    }
    encoder.finish()?;
    into.sync_all()?;
    Ok(bytes)
}

/// Makes memory of what was packed, over the same base. Blocks.
pub(in crate::vm) fn unpack(
    packed: &File,
    memory_mb: u64,
    base: Option<&File>,
) -> io::Result<OwnedFd> {
    let len = usize::try_from(memory_mb << 20).map_err(io::Error::other)?;
    let memory = File::from(make(memory_mb)?);
    let mut chunk = vec![0; CHUNK_BYTES];
    if let Some(base) = base {
        for range in data_ranges(base, len)? {
            for at in range.clone().step_by(CHUNK_BYTES) {
                let part = &mut chunk[..range.end.min(at + CHUNK_BYTES) - at];
                base.read_exact_at(part, at as u64)?;
                memory.write_all_at(part, at as u64)?;
            }
        }
    }
    let mut decoder = zstd::Decoder::new(packed)?;
    while let Some(head) = next_head(&mut decoder)? {
        let [first, count] = head.map(|number| number as usize);
        let bytes = count * PAGE_BYTES;
        if bytes == 0 || bytes > CHUNK_BYTES || first * PAGE_BYTES + bytes > len {
            return Err(io::Error::other("pages that this memory does not have"));
        }
        decoder.read_exact(&mut chunk[..bytes])?;
        memory.write_all_at(&chunk[..bytes], (first * PAGE_BYTES) as u64)?;
    }
    Ok(memory.into())
}

/// First page and number of the next run; `None` at the end.
fn next_head(from: &mut impl Read) -> io::Result<Option<[u32; 2]>> {
    let mut head = [0; 8];
    let mut have = 0;
    while have < head.len() {
        match from.read(&mut head[have..])? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => have += more,
        }
    }
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Ok(Some([number(0), number(4)]))
}

/// Runs of pages in which two chunks differ.
fn differing(now: &[u8], before: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let pages = now.chunks(PAGE_BYTES).zip(before.chunks(PAGE_BYTES)).enumerate();
    for (page, _) in pages.filter(|(_, (now, before))| now != before) {
        match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pages: &[(usize, u8)]) -> File {
        let memory = File::from(make(64).unwrap());
        for (page, byte) in pages {
            memory.write_all_at(&[*byte; PAGE_BYTES], (page * PAGE_BYTES) as u64).unwrap();
        }
        memory
    }

    fn read(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn pages(source: &File) -> Pages {
        Pages::of_memfd(source.try_clone().unwrap(), 64).unwrap()
    }

    fn round(source: &File, base: Option<&File>) -> (u64, u64, File) {
        let packed = tempfile::tempfile().unwrap();
        let base_file = base.map(|file| (Uuid::nil(), file));
        let bytes = pack(&pages(source), base_file, &packed).unwrap();
        let mut again = packed.try_clone().unwrap();
        io::Seek::rewind(&mut again).unwrap();
        let memory = unpack(&again, 64, base).unwrap();
        (bytes, packed.metadata().unwrap().len(), memory.into())
    }

    #[test]
    fn memory_comes_back_page_for_page_and_zeroes_take_nothing() {
        // Beside a border of a chunk, at the ends, and a page that was written with zeroes.
        let source = memory(&[(0, 1), (255, 2), (256, 3), (300, 0), (16_383, 4)]);
        let (bytes, packed, back) = round(&source, None);
        assert!(read(&back) == read(&source));
        assert_eq!(bytes, 4 * PAGE_BYTES as u64);
        assert!(packed < PAGE_BYTES as u64, "{packed} bytes");
        let (bytes, _, back) = round(&memory(&[]), None);
        assert!((bytes, read(&back)) == (0, vec![0; 64 << 20]));
    }

    #[test]
    fn over_a_base_only_what_differs_is_kept_also_where_it_became_zero() {
        let base = memory(&[(1, 1), (2, 2), (3, 3), (1_000, 9)]);
        let source = memory(&[(1, 1), (2, 7), (5, 5)]);
        let (bytes, _, back) = round(&source, Some(&base));
        assert!(read(&back) == read(&source));
        // Pages 2, 3, 5 and 1,000.
        assert_eq!(bytes, 4 * PAGE_BYTES as u64);
    }

    #[test]
    fn what_is_damaged_or_of_another_size_is_refused() {
        let packed = tempfile::tempfile().unwrap();
        pack(&pages(&memory(&[(9, 1)])), None, &packed).unwrap();
        let rewound = |file: &File| {
            let mut again = file.try_clone().unwrap();
            io::Seek::rewind(&mut again).unwrap();
            again
        };
        packed.set_len(packed.metadata().unwrap().len() - 3).unwrap();
        assert!(unpack(&rewound(&packed), 64, None).is_err(), "cut off");
        let foreign = tempfile::tempfile().unwrap();
        let mut encoder = zstd::Encoder::new(&foreign, LEVEL).unwrap();
        encoder.write_all(&[0xff; 8]).unwrap();
        encoder.finish().unwrap();
        assert!(unpack(&rewound(&foreign), 64, None).is_err(), "pages beyond its end");
        assert!(Pages::of_memfd(memory(&[]), 128).is_err(), "another size");
        let unsealed = tempfile::tempfile().unwrap();
        unsealed.set_len(64 << 20).unwrap();
        assert!(Pages::of_memfd(unsealed, 64).is_err(), "it may shrink");
    }
}
