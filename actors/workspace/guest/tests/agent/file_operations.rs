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
