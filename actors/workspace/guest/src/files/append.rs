//! Appending to a file that is to be on the disk soon: past the page cache, straight
//! from where it was received, where the file system takes that.
//!
//! The content of a large file is thus not copied once more, does not push other files
//! out of a small guest's memory, and is on the disk already when it is synced.

use std::fs::File;
use std::io::{self, IoSlice};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::session::payload::ALIGNMENT;

/// Size from which files bypass the page cache; smaller ones stay in it, for reads to come.
pub(super) const DIRECT_FROM_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum number of pieces of one write.
const AT_ONCE: usize = 1024;

/// A new file that is written from its beginning.
#[derive(Debug)]
pub(super) struct Appending {
    file: File,
    /// The descriptor is `O_DIRECT`.
    direct: bool,
    written: u64,
}

impl Appending {
    pub(super) fn new(file: File, expected_bytes: u64) -> Self {
        let direct = expected_bytes >= DIRECT_FROM_BYTES && set_direct(&file, true).is_ok();
        Self { file, direct, written: 0 }
    }

    /// Appends all pieces.
    ///
    /// # Errors
    /// As write(2).
    pub(super) fn append(&mut self, contents: &[&[u8]]) -> io::Result<()> {
        let fits = |content: &&&[u8]| {
            content.len().is_multiple_of(ALIGNMENT) && content.as_ptr().align_offset(ALIGNMENT) == 0
        };
        let fitting = match self.direct && self.written.is_multiple_of(ALIGNMENT as u64) {
            true => contents.iter().take_while(fits).count(),
            false => 0,
        };
        let mut slices: Vec<IoSlice<'_>> =
            contents.iter().map(|content| IoSlice::new(content)).collect();
        let (direct, cached) = slices.split_at_mut(fitting);
        let left = self.write(direct)?;
        if !left.is_empty() || !cached.is_empty() {
            self.leave_direct()?;
        }
        for slices in [left, cached] {
            if !self.write(slices)?.is_empty() {
                return Err(Errno::INVAL.into());
            }
        }
        Ok(())
    }

    /// Writes pieces; returns those that a direct file does not take.
    fn write<'s, 'b>(
        &mut self,
        mut slices: &'s mut [IoSlice<'b>],
    ) -> io::Result<&'s mut [IoSlice<'b>]> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match rustix::io::writev(&self.file, &slices[..slices.len().min(AT_ONCE)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.written += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if self.direct => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(slices)
    }

    fn leave_direct(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.direct) { set_direct(&self.file, false) } else { Ok(()) }
    }
}

fn set_direct(file: &File, on: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, on);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the file system of the temporary folder takes, and in whatever pieces
    /// the content comes, the file holds it.
    #[test]
    fn content_of_any_shape_arrives_whole() {
        let room: Vec<u8> = (0..40 * ALIGNMENT).map(|n| (n / 7) as u8).collect();
        let page = room.as_ptr().align_offset(ALIGNMENT);
        let aligned = &room[page..];
        let batches: [&[&[u8]]; 4] = [
            &[&aligned[..ALIGNMENT], &aligned[ALIGNMENT..4 * ALIGNMENT]],
            &[&aligned[4 * ALIGNMENT..8 * ALIGNMENT], &aligned[8 * ALIGNMENT..9 * ALIGNMENT + 5]],
            &[],
            &[&[], &aligned[9 * ALIGNMENT + 5..20 * ALIGNMENT]],
        ];
        for expected_bytes in [0, DIRECT_FROM_BYTES] {
            let dir = tempfile::tempdir().expect("a folder");
            let path = dir.path().join("file");
            let file = File::create_new(&path).expect("a file");
            let mut appending = Appending::new(file, expected_bytes);
            for batch in batches {
                appending.append(batch).expect("appended");
            }
            assert!(std::fs::read(&path).expect("read") == aligned[..20 * ALIGNMENT]);
            assert!(!appending.direct);
        }
    }
}
