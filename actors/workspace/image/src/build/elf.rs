//! ELF inspection: the few properties that a build checks.

use object::elf::{DT_NEEDED, EM_X86_64, FileHeader64, NoteType, PT_INTERP, PT_NOTE};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection};

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
