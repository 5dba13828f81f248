//! ELF files: the few properties that a build checks, and the kernel's, out of its bzImage.
//!
//! Booting the ELF spares the guest from unpacking it, which is slow under software emulation. The layout of the
//! bzImage is that of the x86 boot protocol (the kernel's `Documentation/x86/boot.rst`).

use std::io::Read;

use object::elf::{DT_NEEDED, EM_X86_64, FileHeader64, NoteType, PT_INTERP, PT_NOTE};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection};

use crate::{Error, Result};

/// Type of the note that tells a PVH loader where to enter a kernel in 32-bit protected mode.
const XEN_ELFNOTE_PHYS32_ENTRY: NoteType = NoteType(18);

type Header = FileHeader64<Endianness>;
type Answer<T> = std::result::Result<T, object::Error>;

/// True if these are the first bytes of an ELF file.
pub(super) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// True if the file is a 64-bit x86 program that needs no dynamic loader.
pub(super) fn is_static_program(bytes: &[u8]) -> Answer<bool> {
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    let interpreted = header
        .program_headers(endian, bytes)?
        .iter()
        .any(|segment| segment.p_type(endian) == PT_INTERP);
    Ok(header.e_machine(endian) == EM_X86_64 && !interpreted)
}

/// Physical address at which a PVH loader enters the kernel, if the kernel offers one.
pub(super) fn pvh_entry(bytes: &[u8]) -> Answer<Option<u64>> {
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, bytes)? {
        if segment.p_type(endian) != PT_NOTE {
            continue;
        }
        let Some(mut notes) = segment.notes(endian, bytes)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if note.name() == b"Xen" && note.n_type(endian) == XEN_ELFNOTE_PHYS32_ENTRY {
                let address = note.desc();
                let mut wide = [0; 8];
                let length = address.len().min(8);
                wide[..length].copy_from_slice(&address[..length]);
                return Ok(Some(u64::from_le_bytes(wide)));
            }
        }
    }
    Ok(None)
}

/// Shared libraries that a program or library needs.
pub(super) fn needed(bytes: &[u8]) -> Answer<Vec<String>> {
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let mut names = Vec::new();
    for section in sections.iter() {
        let Some((entries, link)) = section.dynamic(endian, bytes)? else {
            continue;
        };
        let strings = sections.strings(endian, bytes, link)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            names.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
        }
    }
    Ok(names)
}

/// Values of one key in a kernel module's `.modinfo`.
pub(super) fn modinfo(bytes: &[u8], key: &str) -> Answer<Vec<String>> {
    let file = object::read::elf::ElfFile64::<Endianness>::parse(bytes)?;
    let Some(section) = file.section_by_name(".modinfo") else {
        return Ok(Vec::new());
    };
    let prefix = format!("{key}=");
    Ok(section
        .data()?
        .split(|byte| *byte == 0)
        .filter_map(|pair| std::str::from_utf8(pair).ok()?.strip_prefix(prefix.as_str()))
        .map(str::to_owned)
        .collect())
}

const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// First boot protocol version that gives the payload's position.
const MIN_VERSION: u16 = 0x0208;

const LZ4_LEGACY: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Block size of the legacy format.
const LZ4_BLOCK: usize = 8 << 20;
/// Maximum size of a kernel. No x86 kernel comes near this; more means a forged or broken file.
const MAX_KERNEL: usize = 512 << 20;

/// Extracts the ELF from a bzImage and checks that it has a PVH entry.
pub(super) fn extract_kernel(image: &[u8]) -> Result<Vec<u8>> {
    let payload = payload(image)?;
    let kernel = if is_elf(payload) {
        payload.to_vec()
    } else if payload.starts_with(&LZ4_LEGACY) {
        unpack_lz4(&payload[4..])?
    } else if payload.starts_with(&ZSTD) {
        unpack_zstd(payload)?
    } else {
        return Err(refuse(format!(
            "it is compressed in a way that is neither lz4 nor zstd (it starts {:02x?})",
            &payload[..payload.len().min(6)]
        )));
    };
    check(&kernel)?;
    Ok(kernel)
}

/// Refuses a kernel that QEMU could not enter directly.
pub(super) fn check(kernel: &[u8]) -> Result<()> {
    match pvh_entry(kernel) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(refuse("it has no PVH entry note (CONFIG_PVH is off)".to_owned())),
        Err(error) => Err(refuse(format!("it is not a 64-bit ELF: {error}"))),
    }
}

fn payload(image: &[u8]) -> Result<&[u8]> {
    let header = |offset: usize, length: usize| {
        image
            .get(offset..offset + length)
            .ok_or_else(|| refuse("it is shorter than a boot header".to_owned()))
    };
    if header(MAGIC, 4)? != b"HdrS" {
        return Err(refuse("it is not a bzImage".to_owned()));
    }
    let version = header(VERSION, 2)?;
    if u16::from_le_bytes([version[0], version[1]]) < MIN_VERSION {
        return Err(refuse("its boot protocol is older than 2.08".to_owned()));
    }
    let word = |offset| {
        let bytes = header(offset, 4)?;
        Ok::<_, Error>(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    let setup = match header(SETUP_SECTORS, 1)?[0] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup + 1) * 512 + word(PAYLOAD_OFFSET)?;
    image
        .get(start..start.saturating_add(word(PAYLOAD_LENGTH)?))
        .ok_or_else(|| refuse("its payload lies outside of the file".to_owned()))
}

/// Unpacks the legacy frame: blocks with a length before each. The last four bytes of a kernel's
/// payload are its unpacked size, not a block.
fn unpack_lz4(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut kernel = Vec::new();
    while let Some((length, tail)) =
        rest.split_first_chunk::<4>().filter(|(_, tail)| !tail.is_empty())
    {
        let length = u32::from_le_bytes(*length) as usize;
        let block =
            tail.get(..length).ok_or_else(|| refuse("its lz4 data ends too early".to_owned()))?;
        let plain = lz4_flex::block::decompress(block, LZ4_BLOCK)
            .map_err(|error| refuse(format!("its lz4 data is damaged: {error}")))?;
        if kernel.len() + plain.len() > MAX_KERNEL {
            return Err(refuse("it unpacks to more than 512 MiB".to_owned()));
        }
        kernel.extend_from_slice(&plain);
        rest = &tail[length..];
    }
    let size = rest.try_into().map(u32::from_le_bytes);
    if size.is_ok_and(|size| size as usize == kernel.len()) {
        Ok(kernel)
    } else {
        Err(refuse("its lz4 data is not as long as it says".to_owned()))
    }
}

fn unpack_zstd(payload: &[u8]) -> Result<Vec<u8>> {
    let damaged = |error: std::io::Error| refuse(format!("its zstd data is damaged: {error}"));
    let mut decoder = zstd::stream::read::Decoder::new(payload).map_err(damaged)?.single_frame();
    // Kernels are packed with the largest window.
    decoder.window_log_max(31).map_err(damaged)?;
    let mut kernel = Vec::new();
    decoder.take(MAX_KERNEL as u64).read_to_end(&mut kernel).map_err(damaged)?;
    Ok(kernel)
}

fn refuse(reason: String) -> Error {
    Error::Kernel { reason }
}
