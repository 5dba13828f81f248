//! Guest memory outside of the guest: sealed memory images that are made, copied while the guest runs, kept in a cache,
//! so that many forks load and share one, and loaded.

mod map;
mod packed;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hivekeep_kernel::lock;
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use tokio::sync::OnceCell;
use uuid::Uuid;

pub(super) use packed::{Pages, PrivateMapping, pack, unpack};

use crate::Error;
use map::{Mapping, PAGE_BYTES};

/// Words of the bitmap in one thread's turn: 4096 pages, 16 MiB.
const WORDS_A_TURN: usize = 64;
/// Maximum number of threads; more do not make the bus faster.
const MAX_THREADS: usize = 4;

/// New guest memory of this size. It can neither grow nor shrink, and nobody can unseal it.
pub(super) fn make(memory_mb: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("hivekeep-ram", flags)?;
    rustix::fs::ftruncate(&memfd, memory_mb << 20)?;
    rustix::fs::fcntl_add_seals(&memfd, SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(memfd)
}

/// A memory image that nobody can write any more. Machines map it privately.
#[derive(Debug)]
pub(super) struct Sealed(OwnedFd);

impl Sealed {
    fn of(memfd: OwnedFd) -> io::Result<Self> {
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SEAL)?;
        Ok(Self(memfd))
    }

    /// A descriptor of the image, for a machine.
    pub(super) fn fd(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Reads a memory image from its file.
    pub(super) fn load(path: &Path, memory_mb: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let memfd = make(memory_mb)?;
        let len = usize::try_from(memory_mb << 20).map_err(io::Error::other)?;
        if file.metadata()?.len() != len as u64 {
            return Err(io::Error::other("not a memory image of this size"));
        }
        let mut mapping = Mapping::of(&memfd, len, true)?;
        for range in data_ranges(&file, len)? {
            let offset = range.start as u64;
            file.read_exact_at(mapping.own_bytes(range), offset)?;
        }
        drop(mapping);
        Self::of(memfd)
    }
}

/// A copy in progress, of memory that may still change.
#[derive(Debug)]
pub(super) struct Copy {
    source: OwnedFd,
    from: Mapping,
    target: OwnedFd,
    to: Mapping,
    /// Bitmap of pages: a set bit says that the page is in the target.
    known: Vec<u64>,
}

impl Copy {
    /// An empty copy of a guest's memory.
    pub(super) fn of(source: OwnedFd, memory_mb: u64) -> io::Result<Self> {
        let len = usize::try_from(memory_mb << 20).map_err(io::Error::other)?;
        let target = make(memory_mb)?;
        let (from, to) = (Mapping::of(&source, len, false)?, Mapping::of(&target, len, true)?);
        let known = vec![0; to.pages().div_ceil(64)];
        Ok(Self { source, from, target, to, known })
    }

    /// Copies what is not in the target yet or differs; returns how many bytes that were. Pages
    /// that were never written, and zero pages, are not touched. Blocks.
    pub(super) fn refresh(&mut self) -> io::Result<u64> {
        let ranges = data_ranges(&self.source, self.to.pages() * PAGE_BYTES)?;
        let (from, to) = (&self.from, &self.to);
        let turns = Mutex::new(self.known.chunks_mut(WORDS_A_TURN).enumerate());
        let work = || {
            let mut copied = 0;
            loop {
                let turn = lock(&turns).next();
                let Some((index, known)) = turn else { return copied };
                copied += refresh_turn(from, to, index * WORDS_A_TURN * 64, known, &ranges);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS));
        let pages: u64 = std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            helpers.into_iter().map(|helper| helper.join().unwrap_or(0)).sum::<u64>() + own
        });
        Ok(pages * PAGE_BYTES as u64)
    }

    /// Seals the copy and writes it to a file, synced. Returns it with its bytes that are not
    /// holes. Blocks.
    pub(super) fn finish(self, path: &Path) -> io::Result<(Sealed, u64)> {
        let Self { from, target, to, known, .. } = self;
        let len = to.pages() * PAGE_BYTES;
        drop((from, to));
        let sealed = Sealed::of(target)?;
        let mapping = Mapping::of(&sealed.0, len, false)?;
        let file = File::options().write(true).create_new(true).open(path)?;
        file.set_len(len as u64)?;
        for range in runs(&known) {
            file.write_all_at(mapping.sealed_bytes(range.clone()), range.start as u64)?;
        }
        file.sync_all()?;
        let pages: u64 = known.iter().map(|word| u64::from(word.count_ones())).sum();
        Ok((sealed, pages * PAGE_BYTES as u64))
    }
}

/// Copies one thread's pages: those from `first` on that `known` has a bit for. Returns how many it copied.
fn refresh_turn(
    from: &Mapping,
    to: &Mapping,
    first: usize,
    known: &mut [u64],
    ranges: &[std::ops::Range<usize>],
) -> u64 {
    let mut present = vec![0_u64; known.len()];
    let last = (first + known.len() * 64).min(to.pages());
    for range in ranges {
        let begin = (range.start / PAGE_BYTES).max(first);
        for page in begin..range.end.div_ceil(PAGE_BYTES).min(last) {
            present[(page - first) / 64] |= 1 << ((page - first) % 64);
        }
    }
    let mut copied = 0;
    for (index, (known, present)) in known.iter_mut().zip(present).enumerate() {
        // Known pages that are no longer there read as zeroes.
        let mut candidates = *known | present;
        while candidates != 0 {
            let bit = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let page = first + index * 64 + bit;
            let is_known = *known >> bit & 1 == 1;
            if !is_known && from.is_zero(page) {
                continue;
            }
            *known |= 1 << bit;
            copied += u64::from(to.take(page, from));
        }
    }
    copied
}

/// The parts of a sparse file that are not holes.
fn data_ranges(file: impl AsFd, len: usize) -> io::Result<Vec<std::ops::Range<usize>>> {
    let (mut ranges, mut at) = (Vec::new(), 0_u64);
    loop {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(ranges),
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
        let within = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(len);
        ranges.push(within(start)..within(at));
    }
}

/// Runs of set bits, as byte ranges.
fn runs(known: &[u64]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, word) in known.iter().enumerate() {
        let mut left = *word;
        while left != 0 {
            let at = (index * 64 + left.trailing_zeros() as usize) * PAGE_BYTES;
            left &= left - 1;
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += PAGE_BYTES,
                _ => runs.push(at..at + PAGE_BYTES),
            }
        }
    }
    runs
}

/// Time that an image is kept after its last use.
const KEEP: Duration = Duration::from_secs(60);
/// Most images kept at once; the one that was used longest ago goes first.
const MAX_IMAGES: usize = 8;

type Cell = Arc<OnceCell<Arc<Sealed>>>;

/// Images by the id of their memory image. Clones are one cache.
#[derive(Debug, Clone, Default)]
pub(in crate::vm) struct RamCache {
    /// Locked for a lookup, never across an await.
    images: Arc<Mutex<HashMap<Uuid, (Cell, Instant)>>>,
}

impl RamCache {
    /// The image, loaded by `load` if it is not here. Those who ask meanwhile wait for it.
    pub(in crate::vm) async fn get(
        &self,
        id: Uuid,
        load: impl Future<Output = Result<Sealed, Error>> + Send,
    ) -> Result<Arc<Sealed>, Error> {
        let cell = self.cell(id);
        let loaded = cell.get_or_try_init(|| async { load.await.map(Arc::new) }).await.cloned();
        if loaded.is_err() {
            self.forget(id);
        }
        loaded
    }

    /// Keeps an image that was just made.
    pub(in crate::vm) fn put(&self, id: Uuid, image: Sealed) {
        // Nobody else knows the id yet.
        let _ = self.cell(id).set(Arc::new(image));
    }

    /// Drops an image; machines that have it keep it.
    pub(in crate::vm) fn forget(&self, id: Uuid) {
        lock(&self.images).remove(&id);
    }

    fn cell(&self, id: Uuid) -> Cell {
        let now = Instant::now();
        let mut images = lock(&self.images);
        let (cell, used) = images.entry(id).or_insert_with(|| (Cell::default(), now));
        *used = now;
        let cell = cell.clone();
        while images.len() > MAX_IMAGES {
            let oldest = images.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = oldest.min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id) else {
                break;
            };
            images.remove(&oldest);
        }
        drop(images);
        let cache = Arc::downgrade(&self.images);
        tokio::spawn(async move {
            tokio::time::sleep(KEEP).await;
            let Some(images) = cache.upgrade() else { return };
            let mut images = lock(&images);
            if images.get(&id).is_some_and(|(_, used)| *used == now) {
                images.remove(&id);
            }
        });
        cell
    }
}

#[cfg(test)]
mod tests;
