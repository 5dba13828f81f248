//! An adapter: the kernel's requests, asked of the state.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::contents::Contents;
use crate::image::Meta;
use crate::mount::{Shared, lock};
use crate::names::Ino;
use crate::state::{Kind, State};

/// How long the kernel may believe an answer. Everything is changed by way of it.
const TTL: Duration = Duration::from_secs(3600);
const BLOCK: u32 = 4096;
/// How large the disk says it is, and how much of that is free.
const BLOCKS: u64 = 1 << 24;

/// The way in for the kernel.
pub(crate) struct Door {
    shared: Arc<Mutex<Shared>>,
    listings: Mutex<Listings>,
}

/// What open folders held when they were opened: who removes what it reads misses nothing.
#[derive(Default)]
struct Listings {
    last: u64,
    open: HashMap<u64, Vec<(OsString, Ino, FileType)>>,
}

impl Door {
    pub(crate) fn new(shared: Arc<Mutex<Shared>>) -> Self {
        Self { shared, listings: Mutex::default() }
    }

    /// Asks without changing anything.
    fn ask<T>(&self, ask: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        ask(&mut lock(&self.shared).state)
    }

    /// Changes or syncs something.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut shared = lock(&self.shared);
        shared.step();
        change(&mut shared.state)
    }

    /// Syncs something, unless it lies.
    fn sync(&self, sync: impl FnOnce(&mut State) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut shared = lock(&self.shared);
        shared.step();
        if shared.lies { Ok(()) } else { sync(&mut shared.state) }
    }

    fn listings(&self) -> std::sync::MutexGuard<'_, Listings> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attr(state: &mut State, ino: Ino) -> Result<FileAttr, Errno> {
    let inode = state.inode(ino)?;
    let (size, reserved) = match &inode.kind {
        Kind::Folder => (0, 0),
        Kind::File(contents) => (contents.len(), contents.reserved),
        Kind::Link(to) => (to.len(), 0),
    };
    Ok(FileAttr {
        ino: INodeNo(ino),
        size: size as u64,
        blocks: size.max(reserved).div_ceil(BLOCK as usize) as u64 * u64::from(BLOCK / 512),
        atime: inode.modified,
        mtime: inode.modified,
        ctime: inode.modified,
        crtime: inode.modified,
        kind: inode.file_type(),
        perm: inode.meta.mode,
        nlink: inode.links,
        uid: inode.meta.uid,
        gid: inode.meta.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    })
}

/// Attributes of what the kernel will know by its number from now on.
fn told(state: &mut State, ino: Ino) -> Result<FileAttr, Errno> {
    state.inode(ino)?.lookups += 1;
    attr(state, ino)
}

fn meta(request: &Request, mode: u32, umask: u32) -> Meta {
    let mode = (mode & !umask & 0o7777) as u16;
    Meta { mode, uid: request.uid(), gid: request.gid() }
}

fn entry(reply: ReplyEntry, done: Result<FileAttr, Errno>) {
    match done {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(reply: ReplyAttr, done: Result<FileAttr, Errno>) {
    match done {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(errno) => reply.error(errno),
    }
}

fn length(bytes: u64) -> Result<usize, Errno> {
    usize::try_from(bytes).map_err(|_| Errno::EFBIG)
}

impl Filesystem for Door {
    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.ask(|state| state.find(dir.0, name).and_then(|ino| told(state, ino))));
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        let _gone_already = self.ask(|state| {
            let inode = state.inode(ino.0)?;
            inode.lookups = inode.lookups.saturating_sub(count);
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply, self.ask(|state| attr(state, ino.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = |state: &mut State| {
            if let Some(size) = size {
                state.contents(ino.0)?.resize(length(size)?);
            }
            let inode = state.inode(ino.0)?;
            let Meta { mode: old_mode, uid: old_uid, gid: old_gid } = inode.meta;
            inode.meta = Meta {
                mode: mode.map_or(old_mode, |mode| (mode & 0o7777) as u16),
                uid: uid.unwrap_or(old_uid),
                gid: gid.unwrap_or(old_gid),
            };
            inode.modified = match mtime {
                Some(TimeOrNow::SpecificTime(time)) => time,
                _ => SystemTime::now(),
            };
            attr(state, ino.0)
        };
        attributes(reply, self.change(set));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let to = self.ask(|state| match &state.inode(ino.0)?.kind {
            Kind::Link(to) => Ok(to.clone()),
            _ => Err(Errno::EINVAL),
        });
        match to {
            Ok(to) => reply.data(to.as_encoded_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let meta = meta(request, mode, umask);
        let make = |state: &mut State| {
            let ino = state.make(dir.0, name, Kind::Folder, meta)?;
            told(state, ino)
        };
        entry(reply, self.change(make));
    }

    fn symlink(&self, request: &Request, dir: INodeNo, name: &OsStr, to: &Path, reply: ReplyEntry) {
        let (kind, meta) = (Kind::Link(to.into()), meta(request, 0o777, 0));
        let make = |state: &mut State| {
            let ino = state.make(dir.0, name, kind, meta)?;
            told(state, ino)
        };
        entry(reply, self.change(make));
    }

    fn link(&self, _: &Request, ino: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = |state: &mut State| {
            state.link(ino.0, dir.0, name)?;
            told(state, ino.0)
        };
        entry(reply, self.change(link));
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.change(|state| state.remove(dir.0, name)));
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.change(|state| state.remove(dir.0, name)));
    }

    fn rename(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        new_dir: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = |state: &mut State| {
            let refuses = flags.contains(RenameFlags::RENAME_NOREPLACE);
            if flags.contains(RenameFlags::RENAME_WHITEOUT) {
                return Err(Errno::EINVAL);
            }
            if refuses && state.find(new_dir.0, new_name).is_ok() {
                return Err(Errno::EEXIST);
            }
            let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
            state.rename((dir.0, name), (new_dir.0, new_name), exchange)
        };
        empty(reply, self.change(rename));
    }

    fn create(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let (kind, meta) = (Kind::File(Contents::default()), meta(request, mode, umask));
        let make = |state: &mut State| {
            let ino = state.make(dir.0, name, kind, meta)?;
            told(state, ino)
        };
        match self.change(make) {
            Ok(attr) => {
                let none = FopenFlags::empty();
                reply.created(&TTL, &attr, Generation(0), FileHandle(0), none);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut shared = lock(&self.shared);
        match (shared.state.contents(ino.0), length(at)) {
            (Ok(contents), Ok(at)) => reply.data(contents.read(at, size as usize)),
            (Err(errno), _) | (_, Err(errno)) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = |state: &mut State| {
            state.contents(ino.0)?.write(length(at)?, data);
            state.inode(ino.0)?.modified = SystemTime::now();
            u32::try_from(data.len()).map_err(|_| Errno::EFBIG)
        };
        match self.change(write) {
            Ok(size) => reply.written(size),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A file that is closed is not synced. With this answer the kernel asks no more, so that a
        // process that serves its own files can end while they are open.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = |state: &mut State| {
            state.contents(ino.0)?.sync();
            Ok(())
        };
        empty(reply, self.sync(sync));
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = |state: &mut State| {
            state.sync_names(ino.0);
            Ok(())
        };
        empty(reply, self.sync(sync));
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        size: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keeps_size = rustix::fs::FallocateFlags::KEEP_SIZE.bits();
        let reserve = |state: &mut State| {
            let (contents, end) = (state.contents(ino.0)?, length(at + size)?);
            match u32::try_from(mode) {
                Ok(0) => contents.resize(end.max(contents.len())),
                Ok(mode) if mode == keeps_size => {}
                _ => return Err(Errno::EOPNOTSUPP),
            }
            contents.reserved = contents.reserved.max(end);
            Ok(())
        };
        empty(reply, self.change(reserve));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let entries = lock(&self.shared).state.entries(ino.0);
        let mut listings = self.listings();
        listings.last += 1;
        let number = listings.last;
        listings.open.insert(number, entries);
        reply.opened(FileHandle(number), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = self.listings();
        let dots = [".", ".."].map(|name| (name.into(), ino.0, FileType::Directory));
        let entries = listings.open.get(&handle.0).into_iter().flatten();
        let from = dots.iter().chain(entries).zip(1..).skip_while(|(_, next)| *next <= offset);
        for ((name, ino, kind), next) in from {
            if reply.add(INodeNo(*ino), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().open.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK, 255, BLOCK);
    }
}
