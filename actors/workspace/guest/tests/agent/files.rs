//! Files: whole or not at all, in bounded memory, and nothing else is touched.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use hivekeep_protocol::*;

use crate::client::Host;
use crate::guest::{Guest, Way, eventually};

async fn start() -> (Guest, Host, PathBuf) {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let dir = guest.dir.path().join("files");
    std::fs::create_dir(&dir).expect("a folder");
    (guest, host, dir)
}

fn text(path: PathBuf) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

fn write(path: PathBuf, size_bytes: u64) -> WriteFile {
    WriteFile { path: text(path), mode: None, size_bytes }
}

fn read(path: PathBuf) -> ReadFile {
    ReadFile { path: text(path), offset: 0, limit: None }
}

async fn put(host: &Host, path: PathBuf, bytes: &[u8]) -> Result<WriteFileReply, GuestError> {
    host.upload(write(path, bytes.len() as u64), [bytes.to_vec()].into_iter()).await
}

fn leftovers(dir: &std::path::Path) -> usize {
    let draft = |e: &std::fs::DirEntry| hivekeep_file_engine::is_draft(&e.file_name());
    std::fs::read_dir(dir).expect("list").flatten().filter(draft).count()
}

/// Whether the daemon writes a file in the folder, which has no name yet.
fn is_writing(guest: &Guest, dir: &std::path::Path) -> bool {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).expect("its descriptors");
    fds.flatten().any(|fd| {
        std::fs::read_link(fd.path()).is_ok_and(|it| {
            it.starts_with(dir) && it.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")
        })
    })
}

#[tokio::test]
async fn a_large_file_passes_both_ways_in_little_memory() {
    let (guest, host, dir) = start().await;
    let (chunks, chunk) = (4096_u32, 65_536_usize);
    let piece = |n: u32| n.to_le_bytes().repeat(chunk / 4);
    let size = u64::from(chunks) * chunk as u64;
    let done = host.upload(write(dir.join("large"), size), (0..chunks).map(piece)).await;
    assert_eq!(done.expect("written").bytes, size);
    let mut call = host.call(read(dir.join("large")).into_wire()).await;
    let (mut at, mut received) = (0_u64, 0_u64);
    loop {
        let frame = call.next().await;
        if frame.kind == FrameKind::Reply {
            break;
        }
        let bytes = &frame.payload[1..];
        let n = u32::try_from(at / chunk as u64).expect("small").to_le_bytes();
        assert_eq!(bytes[0], n[usize::try_from(at % 4).expect("small")]);
        at += bytes.len() as u64;
        received += bytes.len() as u64;
        let grant = u32::try_from(bytes.len()).expect("small").to_be_bytes();
        call.send(FrameKind::Credit, &grant).await;
    }
    assert_eq!(received, size);
    assert!(guest.peak_rss_bytes() < 30 << 20, "{} bytes", guest.peak_rss_bytes());
}

#[tokio::test]
async fn writing_keeps_owner_and_mode_and_makes_parents() {
    let (_guest, host, dir) = start().await;
    let path = dir.join("a/b/c");
    let done = put(&host, path.clone(), b"one").await.expect("written");
    assert_eq!((done.replaced, done.mode), (false, 0o644));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4711)).expect("chmod");
    let owner = if rustix::process::getuid().is_root() {
        1234
    } else {
        hivekeep_skip::skip("the part of another owner: needs root");
        rustix::process::getuid().as_raw()
    };
    std::os::unix::fs::chown(&path, Some(owner), None).expect("chown");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).expect("chmod");
    let done = put(&host, path.clone(), b"two").await.expect("written");
    assert_eq!((done.replaced, done.mode), (true, 0o711));
    let meta = std::fs::metadata(&path).expect("stat");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (owner, 0o711));
    let asked = WriteFile { mode: Some(0o600), ..write(path.clone(), 0) };
    assert_eq!(host.upload(asked, [].into_iter()).await.expect("emptied").mode, 0o600);
    assert_eq!(std::fs::read(&path).expect("read"), b"");
    assert_eq!(leftovers(&dir.join("a/b")), 0);
}

#[tokio::test]
async fn writing_goes_through_links() {
    let (_guest, host, dir) = start().await;
    symlink("real", dir.join("link")).expect("a link");
    put(&host, dir.join("link"), b"x").await.expect("written");
    assert_eq!(std::fs::read_link(dir.join("link")).expect("still a link"), PathBuf::from("real"));
    assert_eq!(std::fs::read(dir.join("real")).expect("read"), b"x");
    symlink("loop", dir.join("loop")).expect("a link");
    let error = put(&host, dir.join("loop"), b"x").await.expect_err("a loop");
    assert_eq!(error.code, GuestCode::Invalid);
}

#[tokio::test]
async fn an_upload_that_breaks_off_or_lies_leaves_the_old_content() {
    let (guest, host, dir) = start().await;
    let path = dir.join("kept");
    put(&host, path.clone(), b"old").await.expect("written");
    for (announced, sent) in [(10, 5), (5, 10)] {
        let pieces = [vec![0; sent]].into_iter();
        let error = host.upload(write(path.clone(), announced), pieces).await.expect_err("a lie");
        assert_eq!(error.code, GuestCode::Invalid);
    }
    let mut call = host.call(write(path.clone(), 100_000).into_wire()).await;
    call.send(FrameKind::Data, &[0; 50_000]).await;
    call.cancel().await;
    assert_eq!(call.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    eventually("it is given up", || !is_writing(&guest, &dir));
    let exec = write(path.clone(), 100_000);
    let socket = guest.socket();
    let stream = tokio::task::spawn_blocking(move || half_an_upload(&socket, exec)).await;
    eventually("the upload has begun", || is_writing(&guest, &dir));
    drop(stream);
    eventually("it is given up", || !is_writing(&guest, &dir));
    assert_eq!(leftovers(&dir), 0);
    assert_eq!(std::fs::read(&path).expect("read"), b"old");
}

fn half_an_upload(socket: &std::path::Path, write: WriteFile) -> std::os::unix::net::UnixStream {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("connect");
    stream.write_all(&sync_preamble([5; 16])).expect("preamble");
    stream.read_exact(&mut [0; SYNC_LEN]).expect("echo");
    let hello = encode(&crate::client::hello()).expect("hello");
    let request = encode(&write.into_wire()).expect("request");
    for (kind, id, payload) in [
        (FrameKind::Hello, 0, hello),
        (FrameKind::Request, 1, request),
        (FrameKind::Data, 1, vec![0; 30_000]),
    ] {
        stream.write_all(&Frame { kind, id, payload }.to_bytes()).expect("sent");
    }
    stream
}

#[tokio::test]
async fn a_killed_daemon_leaves_nothing_of_an_upload() {
    let (mut guest, host, dir) = start().await;
    let call = host.call(write(dir.join("new"), 100_000).into_wire()).await;
    call.send(FrameKind::Data, &[0; 50_000]).await;
    eventually("the upload has begun", || is_writing(&guest, &dir));
    guest.crash_and_restart();
    assert_eq!(std::fs::read_dir(&dir).expect("list").count(), 0);
}

#[tokio::test]
async fn data_beyond_the_credit_closes_the_link() {
    let (guest, host, dir) = start().await;
    // A call that never reads what it is sent.
    let call = host.call(crate::client::shell("sleep 1000").into_wire()).await;
    for _ in 0..20 {
        call.send(FrameKind::Data, &[0; 65_537]).await;
    }
    let mut call = call;
    let closed = async { while call.frames.recv().await.is_some() {} };
    tokio::time::timeout(crate::client::PATIENCE, closed).await.expect("the link is closed");
    Host::to(&guest).await.ask(Ping { payload: vec![] }).await.expect("a new link is served");
    drop(dir);
}

#[tokio::test]
async fn reading_takes_a_range_and_files_without_a_size() {
    let (_guest, host, dir) = start().await;
    std::fs::write(dir.join("f"), "0123456789").expect("write");
    let (done, content) =
        host.download(ReadFile { offset: 3, limit: Some(4), ..read(dir.join("f")) }).await;
    assert_eq!(content, b"3456");
    assert_eq!(done.expect("read").size_bytes, 10);
    let (done, content) = host.download(ReadFile { offset: 99, ..read(dir.join("f")) }).await;
    assert_eq!((done.expect("read").sent_bytes, content.len()), (0, 0));
    let (_, content) = host.download(read("/proc/self/status".into())).await;
    assert!(content.starts_with(b"Name:"));
}

#[tokio::test]
async fn what_is_no_file_is_refused_by_kind() {
    let (_guest, host, dir) = start().await;
    let fifo = dir.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a fifo");
    for (path, code) in [
        (dir.clone(), GuestCode::IsADirectory),
        (fifo.clone(), GuestCode::Invalid),
        ("/dev/zero".into(), GuestCode::Invalid),
        (dir.join("none"), GuestCode::NotFound),
        (dir.join("f/x"), GuestCode::NotFound),
        ("relative".into(), GuestCode::Invalid),
        (format!("/{}", "x".repeat(5000)).into(), GuestCode::TooLarge),
    ] {
        let (reply, _) = host.download(read(path.clone())).await;
        assert_eq!(reply.expect_err("refused").code, code, "{path:?}");
    }
    for (path, code) in [
        (dir.clone(), GuestCode::IsADirectory),
        (fifo, GuestCode::Invalid),
        ("/dev/null".into(), GuestCode::Invalid),
        (PathBuf::from("/"), GuestCode::IsADirectory),
    ] {
        let error = put(&host, path.clone(), b"x").await.expect_err("refused");
        assert_eq!(error.code, code, "{path:?}");
    }
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_is_left() {
    let (_guest, host, dir) = start().await;
    let at = dir.join("small");
    std::fs::create_dir(&at).expect("a folder");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(&at)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        return hivekeep_skip::skip(
            "a_full_disk_is_named_and_nothing_is_left: cannot mount a tmpfs",
        );
    }
    let outcome = async {
        put(&host, at.join("f"), b"old").await.expect("fits");
        let big =
            host.upload(write(at.join("f"), 8 << 20), (0..128).map(|_| vec![0; 65_536])).await;
        let slow = host.upload(write(at.join("g"), 900_000), [vec![1; 900_000]].into_iter()).await;
        let full = put(&host, at.join("h"), &[2; 1_000_000]).await;
        (big, slow, full, leftovers(&at), std::fs::read(at.join("f")))
    };
    let (big, slow, full, left, kept) = outcome.await;
    let unmounted = std::process::Command::new("umount").arg(&at).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(big.expect_err("full").code, GuestCode::NoSpace);
    assert!(slow.is_ok());
    assert!(full.is_ok() || full.is_err_and(|error| error.code == GuestCode::NoSpace));
    assert_eq!((left, kept.expect("read")), (0, b"old".to_vec()));
}

#[tokio::test]
async fn a_directory_is_listed_in_pages() {
    let (_guest, host, dir) = start().await;
    for number in 0..2500 {
        std::fs::write(dir.join(format!("f{number:04}")), "x").expect("write");
    }
    symlink("nowhere", dir.join("a-link")).expect("a link");
    let ask =
        |after: Option<String>| ListFolder { path: text(dir.clone()), after, limit: u32::MAX };
    let first = host.ask(ask(None)).await.expect("a page");
    assert_eq!((first.entries.len(), first.more), (limits::MAX_LIST_ENTRIES, true));
    assert_eq!(
        (first.entries[0].name.as_str(), first.entries[0].kind),
        ("a-link", EntryKind::Symlink)
    );
    let last = first.entries.last().map(|entry| entry.name.clone());
    let second = host.ask(ask(last)).await.expect("a page");
    assert!(!second.more);
    let names: Vec<String> =
        first.entries.into_iter().chain(second.entries).map(|entry| entry.name).collect();
    assert_eq!(names.len(), 2501);
    assert!(names.is_sorted());
    let code = async |path: PathBuf| {
        let ask = ListFolder { path: text(path), after: None, limit: 1 };
        host.ask(ask).await.expect_err("refused").code
    };
    assert_eq!(code(dir.join("f0000")).await, GuestCode::NotADirectory);
    assert_eq!(code(dir.join("none")).await, GuestCode::NotFound);
    let stat = host.ask(FileStat { path: text(dir.join("a-link")) }).await.expect("stat");
    assert_eq!((stat.name.as_str(), stat.kind), ("a-link", EntryKind::Symlink));
}
