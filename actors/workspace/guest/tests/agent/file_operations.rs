//! Operations of the file engine, asked for over the link.

use hivekeep_file_engine::{
    FileError, FileErrorKind, FileOperation, FileOutcome, GrepFiles, Operation, ReadText,
    RemovePath, WriteText, decode, encode,
};
use hivekeep_protocol::*;

use crate::client::{Call, Host};
use crate::guest::{Guest, Way};

async fn start() -> (Guest, Host, String) {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let dir = guest.dir.path().join("files");
    std::fs::create_dir(&dir).expect("a folder");
    let dir = dir.to_str().expect("UTF-8").to_owned();
    (guest, host, dir)
}

async fn open(host: &Host, operation_bytes: u64, walks: bool) -> Call {
    host.call(RunFileOperation { operation_bytes, walks }.into_wire()).await
}

async fn send(call: &Call, bytes: &[u8]) {
    for piece in bytes.chunks(limits::DATA_CHUNK_BYTES) {
        call.send(FrameKind::Data, &[&[Stream::Content as u8], piece].concat()).await;
    }
    call.send(FrameKind::End, &[]).await;
}

async fn finish(mut call: Call) -> Result<Result<FileOutcome, FileError>, GuestError> {
    let (reply, content) = call.content().await;
    let done = RunFileOperation::reply_of(reply?).expect("of its kind");
    assert_eq!(done.outcome_bytes, content.len() as u64);
    Ok(decode(&content).expect("an outcome"))
}

async fn ask<O: Operation>(host: &Host, operation: O) -> Result<O::Outcome, FileError> {
    let operation: FileOperation = operation.into();
    let encoded = encode(&operation).expect("it fits");
    let call = open(host, encoded.len() as u64, operation.walks()).await;
    send(&call, &encoded).await;
    let outcome = finish(call).await.expect("the guest answers")?;
    Ok(O::outcome_of(outcome).expect("of its kind"))
}

#[tokio::test]
async fn files_are_written_read_searched_and_removed() {
    let (guest, host, dir) = start().await;
    let content = "0123456789abcde\n".repeat(12_000) + "needle é\n";
    let path = format!("{dir}/deep/f");
    let write = WriteText { path: path.clone(), content: content.clone(), mode: Some(0o640) };
    let written = ask(&host, write).await.expect("written");
    assert_eq!((written.existed, written.mode), (false, 0o640));
    let read = ReadText { path: path.clone(), offset: 0, limit: 4 << 20 };
    assert!(ask(&host, read).await.expect("read").text == content);
    let grep = GrepFiles {
        path: dir.clone(),
        pattern: r"\bneedle \w$".to_owned(),
        ignore_case: false,
        glob: Some("*".to_owned()),
        gitignore: true,
        limit: 10,
    };
    let found = ask(&host, grep).await.expect("searched");
    assert_eq!(found.shown, [format!("{path}:12001:needle é")], "classes know Unicode");
    let missing = ReadText { path: format!("{dir}/none"), offset: 0, limit: 8 };
    assert_eq!(ask(&host, missing).await.expect_err("none").kind, FileErrorKind::NotFound);
    ask(&host, RemovePath { path: dir.clone(), recursive: true }).await.expect("removed");
    assert!(!std::path::Path::new(&dir).exists());
    assert!(guest.peak_rss_bytes() < 64 << 20, "{} bytes", guest.peak_rss_bytes());
}

async fn ask_as<O: Operation>(
    host: &Host,
    user: Option<&str>,
    folder: &str,
    operation: O,
) -> Result<Result<O::Outcome, FileError>, GuestError> {
    let operation: FileOperation = operation.into();
    let encoded = encode(&operation).expect("it fits");
    let operation_bytes = encoded.len() as u64;
    let request = RunFileOperationIn {
        operation: RunFileOperation { operation_bytes, walks: operation.walks() },
        user: user.map(str::to_owned),
        folder: folder.to_owned(),
    };
    let call = host.call(request.into_wire()).await;
    send(&call, &encoded).await;
    let mut call = call;
    let (reply, content) = call.content().await;
    reply.map(|reply| {
        RunFileOperationIn::reply_of(reply).expect("of its kind");
        let outcome: Result<FileOutcome, FileError> = decode(&content).expect("an outcome");
        outcome.map(|outcome| O::outcome_of(outcome).expect("of its kind"))
    })
}

/// A user who need not be in `/etc/passwd`.
const FOLK: u32 = 64_781;

#[tokio::test]
async fn files_are_reached_and_made_with_the_rights_of_a_user_from_a_folder_on() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let (_guest, host, dir) = start().await;
    let write = |path: &str| WriteText { path: path.to_owned(), content: "x".into(), mode: None };
    let written = ask_as(&host, None, &dir, write("sub/f")).await.expect("answered");
    assert!(!written.expect("written").existed);
    assert_eq!(std::fs::read(format!("{dir}/sub/f")).expect("there"), b"x");
    let ghost = ask_as(&host, Some("no-such-user"), &dir, write("f")).await;
    assert_eq!(ghost.expect_err("refused").code, GuestCode::UnknownUser);
    let nowhere = ask_as(&host, None, "/../up", write("f")).await;
    assert_eq!(nowhere.expect_err("refused").code, GuestCode::Invalid);
    let root = host.ask(FindUser { user: "root".into() }).await.expect("found");
    assert_eq!((root.uid, &*root.home), (0, "/root"));
    let ghost = host.ask(FindUser { user: "no-such-user".into() }).await;
    assert_eq!(ghost.expect_err("refused").code, GuestCode::UnknownUser);
    if !rustix::process::geteuid().is_root() {
        return hivekeep_skip::skip("only root is somebody else");
    }
    let folk = FOLK.to_string();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let own = format!("{dir}/own");
    std::fs::create_dir(&own).expect("made");
    chown(&own, Some(FOLK), Some(0)).expect("given");
    mode(&own, 0o755);
    // The test's own folder is nobody else's to pass.
    mode(std::path::Path::new(&dir).parent().and_then(|it| it.to_str()).expect("UTF-8"), 0o755);
    mode(&dir, 0o755);
    let written = ask_as(&host, Some(&folk), &own, write("deep/er/f")).await.expect("answered");
    written.expect("written");
    for made in ["deep", "deep/er", "deep/er/f"] {
        assert_eq!(std::fs::metadata(format!("{own}/{made}")).expect("there").uid(), FOLK);
    }
    let again = ask_as(&host, Some(&folk), &own, write("deep/er/f")).await.expect("answered");
    assert!(again.expect("written").existed);
    // What is root's alone is denied, also to the threads of a search.
    let secret = format!("{own}/secret");
    std::fs::write(&secret, "needle").expect("written");
    mode(&secret, 0o600);
    let read = || ReadText { path: "secret".into(), offset: 0, limit: 8 };
    let denied = ask_as(&host, Some(&folk), &own, read()).await.expect("answered");
    assert_eq!(denied.expect_err("denied").kind, FileErrorKind::PermissionDenied);
    let denied = ask_as(&host, Some(&folk), &dir, write("f")).await.expect("answered");
    assert_eq!(denied.expect_err("denied").kind, FileErrorKind::PermissionDenied);
    let grep = || GrepFiles {
        path: ".".into(),
        pattern: "needle".into(),
        ignore_case: false,
        glob: None,
        gitignore: false,
        limit: 10,
    };
    let found = ask_as(&host, Some(&folk), &own, grep()).await.expect("answered").expect("found");
    assert_eq!((found.total, found.unread.total), (0, 1), "{found:?}");
    let found = ask_as(&host, None, &own, grep()).await.expect("answered").expect("found");
    assert_eq!(found.total, 1, "root goes on being root");
    assert_eq!(
        ask_as(&host, None, &own, read()).await.expect("answered").expect("read").text,
        "needle"
    );
}

#[tokio::test]
async fn what_is_no_operation_is_refused() {
    let (_guest, host, _) = start().await;
    for (announced, sent, code) in [
        (u64::MAX, &b""[..], GuestCode::TooLarge),
        (2, b"\xff\xff", GuestCode::Invalid),
        (0, b"", GuestCode::Invalid),
        (1, b"\x00\x01\x02", GuestCode::Invalid),
        (9, b"\x00", GuestCode::Invalid),
    ] {
        let call = open(&host, announced, false).await;
        send(&call, sent).await;
        assert_eq!(finish(call).await.expect_err("refused").code, code, "{sent:?}");
    }
    host.ask(Ping { payload: vec![] }).await.expect("it goes on");
}

#[tokio::test]
async fn operations_wait_for_a_place_and_searches_have_their_own() {
    let (_guest, host, dir) = start().await;
    std::fs::write(format!("{dir}/f"), "x").expect("written");
    let read = || ReadText { path: format!("{dir}/f"), offset: 0, limit: 8 };
    let encoded = encode(&FileOperation::from(read())).expect("it fits");
    // As many as may run, none of which gets its operation.
    let mut held = Vec::new();
    for _ in 0..limits::FILE_OPERATIONS_AT_ONCE {
        held.push(open(&host, encoded.len() as u64, true).await);
    }
    let waits = open(&host, encoded.len() as u64, true).await;
    send(&waits, &encoded).await;
    ask(&host, read()).await.expect("a search holds up no other operation");
    let mut first = held.remove(0);
    first.cancel().await;
    assert_eq!(first.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    finish(waits).await.expect("it has the place now").expect("read");
}
