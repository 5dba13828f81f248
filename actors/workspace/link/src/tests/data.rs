use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hivekeep_protocol::{
    FileOperationDone, FromGuest, GuestCode, GuestError, ReadFileReply, Stream, WriteFile,
    WriteFileReply, limits::INITIAL_CREDIT_BYTES,
};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::*;
use crate::fake::{exec_done, obliging};

const MIB: u64 = 1024 * 1024;

fn written(bytes: u64) -> RequestBehaviour {
    RequestBehaviour::Receive(Ok(FromGuest::WriteFile(WriteFileReply {
        bytes,
        replaced: true,
        mode: 0o644,
    })))
}

fn file(mode: Option<u32>, size_bytes: u64) -> WriteFile {
    WriteFile { path: "/f".to_owned(), mode, size_bytes }
}

#[tokio::test]
async fn output_is_collected_by_stream_and_seen_as_it_comes() {
    let (link, _seen) = link_to(|_| {
        let pieces = vec![
            (Stream::Stdout, b"one ".to_vec()),
            (Stream::Stderr, b"oops".to_vec()),
            (Stream::Stdout, b"two".to_vec()),
        ];
        RequestBehaviour::Send(pieces, Ok(FromGuest::RunCommand(exec_done(7, 4))))
    })
    .await;
    let mut seen = [Vec::new(), Vec::new()];
    let output = link
        .exec(shell("x", 100), wait(), |stream, bytes| {
            seen[usize::from(stream == Stream::Stderr)].extend_from_slice(bytes);
        })
        .await
        .unwrap();
    assert_eq!(
        (output.stdout.bytes.as_slice(), output.stderr.bytes.as_slice()),
        (&b"one two"[..], &b"oops"[..])
    );
    assert_eq!(seen, [b"one two".to_vec(), b"oops".to_vec()]);
    assert!(!output.stdout.text().truncated);
}

#[tokio::test]
async fn output_that_is_only_followed_may_be_longer_than_what_is_held() {
    let content: Vec<u8> = (0..5 * INITIAL_CREDIT_BYTES + 7).map(|n| n as u8).collect();
    let sent = content.clone();
    let (link, _seen) = link_to(move |_| {
        let done = exec_done(sent.len() as u64, 0);
        RequestBehaviour::Send(
            vec![(Stream::Stdout, sent.clone())],
            Ok(FromGuest::RunCommand(done)),
        )
    })
    .await;
    let mut followed = Vec::new();
    let follow = |_, bytes: &[u8]| followed.extend_from_slice(bytes);
    let done = link.exec_followed(shell("x", u64::MAX), wait(), follow).await.unwrap();
    assert!(followed == content && done.stdout_total_bytes == content.len() as u64);
}

#[tokio::test]
async fn output_past_64_kib_and_past_the_credit_arrives_whole() {
    let content: Vec<u8> = (0..3 * INITIAL_CREDIT_BYTES + 7).map(|n| n as u8).collect();
    let sent = content.clone();
    let (link, _seen) = link_to(move |_| {
        let done = exec_done(sent.len() as u64, 0);
        RequestBehaviour::Send(
            vec![(Stream::Stdout, sent.clone())],
            Ok(FromGuest::RunCommand(done)),
        )
    })
    .await;
    let output = link.exec(shell("x", 16 * MIB), wait(), |_, _| {}).await.unwrap();
    assert!(output.stdout.bytes == content);
}

#[tokio::test]
async fn a_guest_that_sends_more_than_asked_is_not_kept() {
    let (link, _seen) = link_to(|_| {
        let pieces = vec![(Stream::Stdout, vec![b'x'; 5 * MIB as usize])];
        RequestBehaviour::Send(pieces, Ok(FromGuest::RunCommand(exec_done(9 * MIB, 0))))
    })
    .await;
    let mut told = 0;
    let output = link.exec(shell("x", 1000), wait(), |_, bytes| told += bytes.len()).await.unwrap();
    assert_eq!((output.stdout.bytes.len(), told), (1000, 1000));
    assert_eq!(output.stdout.total_bytes, 9 * MIB);
    assert!(output.stdout.text().text.ends_with("[output truncated: 1000 of 9437184 bytes shown]"));
}

#[tokio::test]
async fn small_calls_pass_a_download_whose_sink_is_blocked() {
    let (link, _seen) = link_to(|request| match request {
        ToGuest::ReadFile(_) => RequestBehaviour::Content(200 * MIB),
        other => obliging(other),
    })
    .await;
    let (sink, mut slow) = tokio::io::duplex(64 * 1024);
    let download = tokio::spawn({
        let link = link.clone();
        async move { link.download("/big", 0, None, sink, wait(), |_| {}).await }
    });
    // Something has arrived, so the sink is full and stays full.
    slow.read_u8().await.unwrap();
    for _ in 0..100 {
        link.ping(wait()).await.unwrap();
    }
    assert!(!download.is_finished());
    let drained = tokio::io::copy(&mut slow, &mut tokio::io::sink()).await.unwrap();
    assert_eq!(drained + 1, 200 * MIB);
    assert_eq!(download.await.unwrap().unwrap().sent_bytes, 200 * MIB);
}

#[tokio::test]
async fn a_download_given_up_while_its_sink_is_blocked_is_cancelled_in_the_guest() {
    let (link, mut seen) = link_to(|request| match request {
        ToGuest::ReadFile(_) => RequestBehaviour::Content(200 * MIB),
        other => obliging(other),
    })
    .await;
    let (sink, _never_read) = tokio::io::duplex(1024);
    let outcome = link
        .download("/big", 0, None, sink, CallTerms::at_most(Duration::from_millis(100)), |_| {})
        .await;
    assert!(matches!(outcome, Err(LinkError::Deadline(_))), "{outcome:?}");
    cancel_seen(&mut seen).await;
    link.ping(wait()).await.unwrap();
}

#[tokio::test]
async fn a_download_is_bounded_by_its_limit_and_checked_against_the_count() {
    let (link, _seen) = link_to(|_| RequestBehaviour::Content(2 * MIB)).await;
    let mut sink = Vec::new();
    let outcome = link.download("/f", 0, Some(MIB), &mut sink, wait(), |_| {}).await;
    assert!(matches!(outcome, Err(LinkError::Miscounted { told_bytes: MIB, .. })), "{outcome:?}");
    assert!(sink.len() as u64 <= MIB);

    let (link, _seen) = link_to(|_| {
        let lie = ReadFileReply { sent_bytes: 9, size_bytes: 9, mode: 0o644 };
        RequestBehaviour::Send(vec![(Stream::Content, vec![1, 2, 3])], Ok(FromGuest::ReadFile(lie)))
    })
    .await;
    let outcome = link.download("/f", 0, None, Vec::new(), wait(), |_| {}).await;
    assert!(matches!(outcome, Err(LinkError::Miscounted { told_bytes: 9, passed_bytes: 3 })));
}

#[tokio::test]
async fn an_upload_sends_all_of_it_and_then_the_end() {
    let size = 5 * MIB + 3;
    let (link, mut seen) = link_to(move |_| written(size)).await;
    let mut told = 0;
    let source = tokio::io::repeat(0x42).take(size);
    let done = link
        .upload(file(Some(0o600), size), size, source, wait(), |bytes| told = bytes)
        .await
        .unwrap();
    assert_eq!((done.bytes, told), (size, size));
    let (mut received, mut ended) = (0, false);
    while let Ok(event) = seen.try_recv() {
        match event {
            Observation::Data(_, len) => {
                assert!(!ended);
                received += len as u64;
            }
            Observation::End(_) => ended = true,
            Observation::Request(_, ToGuest::WriteFile(write)) => {
                assert_eq!(write.mode, Some(0o600))
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ended);
    assert_eq!(received, size);
}

#[tokio::test]
async fn an_empty_file_can_be_uploaded() {
    let (link, _seen) = link_to(|_| written(0)).await;
    link.upload(file(None, 0), 0, tokio::io::empty(), wait(), |_| {}).await.unwrap();
}

/// Neither may end with an end frame: the guest then keeps the old file.
#[tokio::test]
async fn a_source_of_another_size_is_an_error_and_cancelled() {
    for (announced, real) in [(100_000u64, 99_999), (100_000, 100_001), (0, 1)] {
        let (link, mut seen) = link_to(move |_| written(announced)).await;
        let source = tokio::io::repeat(1).take(real);
        let outcome = link.upload(file(None, announced), announced, source, wait(), |_| {}).await;
        let Err(LinkError::SourceSize { size_bytes, read_bytes }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((size_bytes, read_bytes), (announced, real.min(announced)));
        assert_eq!(link.core().calls.count(), 0, "told before the guest has closed the call");
        loop {
            match seen.recv().await.unwrap() {
                Observation::Cancel(_) => break,
                Observation::End(_) => panic!("the guest was told that the file is complete"),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_failing_source_is_named_and_cancelled() {
    struct Broken;
    impl AsyncRead for Broken {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Poll::Ready(Err(std::io::Error::other("bad sector")))
        }
    }
    let (link, mut seen) = link_to(|_| written(5)).await;
    let outcome = link.upload(file(None, 5), 5, Broken, wait(), |_| {}).await;
    assert!(matches!(outcome, Err(LinkError::Source(_))), "{outcome:?}");
    assert_eq!(link.core().calls.count(), 0, "told before the guest has closed the call");
    cancel_seen(&mut seen).await;
}

#[tokio::test]
async fn a_guest_that_cannot_take_the_file_ends_the_upload_early() {
    let (link, _seen) = link_to(|_| {
        RequestBehaviour::Reply(Err(GuestError::new(GuestCode::PermissionDenied, "/f: read-only")))
    })
    .await;
    let source = tokio::io::repeat(1).take(500 * MIB);
    let outcome = link.upload(file(None, 500 * MIB), 500 * MIB, source, wait(), |_| {}).await;
    assert!(
        matches!(&outcome, Err(LinkError::Guest(e)) if e.code == GuestCode::PermissionDenied),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_stalled_upload_source_holds_up_nobody_and_obeys_the_deadline() {
    let (link, mut seen) = link_to(|request| match request {
        ToGuest::WriteFile(_) => written(10),
        other => obliging(other),
    })
    .await;
    let (source, _never_written) = tokio::io::duplex(16);
    let upload = link.upload(
        file(None, 10),
        10,
        source,
        CallTerms::at_most(Duration::from_millis(100)),
        |_| {},
    );
    let (outcome, pong) = tokio::join!(upload, link.ping(wait()));
    pong.unwrap();
    assert!(matches!(outcome, Err(LinkError::Deadline(_))), "{outcome:?}");
    cancel_seen(&mut seen).await;
}

/// A guest that answers a file operation with these bytes and says how many they are.
async fn with_outcome(sent: Vec<u8>, outcome_bytes: u64) -> Link {
    let link = link_to(move |_| {
        let done = FromGuest::RunFileOperation(FileOperationDone { outcome_bytes });
        RequestBehaviour::Send(vec![(Stream::Content, sent.clone())], Ok(done))
    });
    link.await.0
}

#[tokio::test]
async fn an_outcome_of_a_file_operation_is_bounded_and_counted() {
    // More than the credit, so that the reply comes behind the operation.
    let sent: Vec<u8> = (0..3 * INITIAL_CREDIT_BYTES).map(|n| n as u8).collect();
    let size = sent.len() as u64;
    let run = async |link: &Link, max_bytes| {
        let operation = b"an operation".to_vec();
        let operation_bytes = operation.len() as u64;
        let request = hivekeep_protocol::RunFileOperation { operation_bytes, walks: false };
        link.run_file_operation(request, operation, max_bytes, wait()).await
    };
    let honest = with_outcome(sent.clone(), size).await;
    assert!(run(&honest, size).await.unwrap() == sent);
    let large = with_outcome(sent.clone(), size).await;
    let refused = run(&large, size - 1).await;
    assert!(
        matches!(refused, Err(LinkError::Miscounted { told_bytes, .. }) if told_bytes == size - 1)
    );
    let lying = with_outcome(sent, 7).await;
    let refused = run(&lying, size).await;
    assert!(matches!(refused, Err(LinkError::Miscounted { told_bytes: 7, .. })));
    let old = link_to(|_| {
        let unknown = GuestError::new(GuestCode::Unsupported, "of an older daemon");
        RequestBehaviour::Send(vec![], Err(unknown))
    });
    let refused = run(&old.await.0, size).await;
    assert!(
        matches!(refused, Err(LinkError::Guest(error)) if error.code == GuestCode::Unsupported)
    );
}
