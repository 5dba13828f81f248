use hivekeep_protocol::limits::{DATA_CHUNK_BYTES, INITIAL_CREDIT_BYTES};
use hivekeep_protocol::{
    Exit, Frame, FrameKind, FromGuest, GuestEvent, GuestTaskOutcome, GuestTaskResult, JobSummary,
    Pong, Stream, TaskResultsPush, TaskResultsReply, TaskStreamOutput, encode,
};
use proptest::prelude::*;

use super::*;
use crate::fake::obliging;
use crate::{LinkDown, Violation};

fn frame(kind: FrameKind, id: u32, payload: Vec<u8>) -> Vec<u8> {
    Frame { kind, id, payload }.to_bytes()
}

fn pong(payload: &[u8]) -> FromGuest {
    FromGuest::Ping(Pong { payload: payload.to_vec() })
}

/// Reason with which a link ends whose guest answers an exec with these bytes.
async fn ended_by(bytes: impl Fn(u32) -> Vec<u8> + Clone + Send + Sync + 'static) -> LinkDown {
    let (link, _seen) = link_to(move |_| RequestBehaviour::raw(bytes.clone())).await;
    let outcome = link.exec(shell("x", 10), wait(), |_, _| {}).await;
    assert!(matches!(outcome, Err(LinkError::Down(_))), "{outcome:?}");
    link.closed().await
}

/// Reason for one frame, of a call `away` from the one that is open.
async fn violation(kind: FrameKind, away: u32, payload: Vec<u8>) -> Violation {
    let bytes = move |id: u32| frame(kind, id.wrapping_add(away), payload.clone());
    match ended_by(bytes).await {
        LinkDown::Violation(violation) => violation,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_breach_of_the_protocol_ends_the_link_with_its_reason() {
    let reply = encode(&Ok::<_, hivekeep_protocol::GuestError>(pong(b"x"))).unwrap();
    assert!(matches!(ended_by(|_| vec![0x55; 100]).await, LinkDown::Frame(_)));
    let seen = violation(FrameKind::Reply, 0, vec![0xff; 9]).await;
    assert_eq!(seen, Violation::Undecodable(FrameKind::Reply));
    assert_eq!(violation(FrameKind::Reply, 0, reply.clone()).await, Violation::WrongReply);
    let seen = violation(FrameKind::Reply, 9, reply).await;
    assert!(matches!(seen, Violation::UnknownCall(FrameKind::Reply, _)));
    let seen = violation(FrameKind::Data, 9, vec![1, 1]).await;
    assert!(matches!(seen, Violation::UnknownCall(FrameKind::Data, _)));
    assert_eq!(violation(FrameKind::Data, 0, vec![]).await, Violation::DataSize(0));
    let seen = violation(FrameKind::Data, 0, vec![0, 1]).await;
    assert!(matches!(seen, Violation::WrongStream(_)));
    let seen = violation(FrameKind::Data, 0, vec![1; DATA_CHUNK_BYTES + 2]).await;
    assert_eq!(seen, Violation::DataSize(DATA_CHUNK_BYTES + 2));
    let seen = violation(FrameKind::Credit, 0, vec![1]).await;
    assert_eq!(seen, Violation::Undecodable(FrameKind::Credit));
    let big_event = ended_by(|_| frame(FrameKind::Event, 0, vec![0; 20_000])).await;
    assert_eq!(big_event, LinkDown::Violation(Violation::EventSize(20_000)));
    for kind in [
        FrameKind::Hello,
        FrameKind::Welcome,
        FrameKind::Request,
        FrameKind::End,
        FrameKind::Cancel,
    ] {
        assert_eq!(violation(kind, 0, vec![]).await, Violation::UnexpectedKind(kind));
    }
}

#[tokio::test]
async fn frames_of_an_older_link_are_dropped_where_the_stream_may_hold_some() {
    let (guest, _seen) = FakeGuest::new(|request| match request {
        ToGuest::JobList(_) => RequestBehaviour::raw(|id| {
            let old = id.wrapping_sub(9);
            let mut bytes = frame(FrameKind::Data, old, vec![1; 5000]);
            bytes.extend(frame(FrameKind::Reply, old, vec![0xff; 9]));
            bytes
        }),
        other => obliging(other),
    });
    let (link, _) = connect(&guest.carrier().without_connections()).await.unwrap();
    let brief = CallTerms::at_most(Duration::from_millis(10));
    let _ = link.ask(hivekeep_protocol::JobList, brief).await;
    link.ping(wait()).await.unwrap();
}

/// One chunk more than can have been granted, whatever the caller has consumed.
#[tokio::test]
async fn a_guest_that_ignores_credit_is_cut_off() {
    let (link, _seen) = link_to(|_| {
        RequestBehaviour::raw(|id| {
            let chunk = frame(FrameKind::Data, id, vec![0; DATA_CHUNK_BYTES + 1]);
            chunk.repeat(crate::transfer::WINDOW as usize / DATA_CHUNK_BYTES + 1)
        })
    })
    .await;
    let (sink, _never_read) = tokio::io::duplex(16);
    let outcome = link.download("/f", 0, None, sink, wait(), |_| {}).await;
    assert!(
        matches!(&outcome, Err(LinkError::Down(LinkDown::Violation(Violation::CreditOverrun(_))))),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn late_data_of_a_cancelled_call_is_dropped() {
    let (link, mut seen) = link_to(|request| match request {
        ToGuest::JobList(_) => RequestBehaviour::raw(|id| {
            frame(FrameKind::Data, id.wrapping_sub(1), vec![Stream::Stdout as u8, 5])
        }),
        ToGuest::RunCommand(_) => RequestBehaviour::Ignore,
        other => obliging(other),
    })
    .await;
    let outcome =
        link.exec(shell("x", 10), CallTerms::at_most(Duration::from_millis(10)), |_, _| {}).await;
    assert!(matches!(outcome, Err(LinkError::Deadline(_))), "{outcome:?}");
    cancel_seen(&mut seen).await;
    // The guest now sends data for the previous call.
    let _ =
        link.ask(hivekeep_protocol::JobList, CallTerms::at_most(Duration::from_millis(10))).await;
    link.ping(wait()).await.unwrap();
}

#[tokio::test]
async fn a_pong_of_another_ping_ends_the_link() {
    let (link, _seen) = link_to(|_| RequestBehaviour::Reply(Ok(pong(b"forged")))).await;
    assert!(matches!(link.ping(wait()).await, Err(LinkError::Down(_))));
    assert_eq!(link.closed().await, LinkDown::Violation(Violation::WrongReply));
}

#[tokio::test]
async fn events_come_in_order_and_a_flood_drops_the_oldest_and_counts() {
    fn ended(n: u64) -> GuestEvent {
        GuestEvent::JobEnded(JobSummary {
            job_id: format!("j{n}"),
            exit: None,
            interrupted: false,
            started_unix_ms: n,
            finished_unix_ms: None,
        })
    }
    let (link, _seen) = link_to(|request| match request {
        ToGuest::RunCommand(_) => {
            // One of a kind that this host does not know, then many.
            let mut bytes = frame(FrameKind::Event, 0, vec![200, 1, 2, 3]);
            for n in 0..1000 {
                bytes.extend(frame(FrameKind::Event, 0, encode(&ended(n)).unwrap()));
            }
            RequestBehaviour::raw(move |_| bytes.clone())
        }
        other => obliging(other),
    })
    .await;
    let mut events = link.events();
    let _ =
        link.exec(shell("x", 1), CallTerms::at_most(Duration::from_millis(50)), |_, _| {}).await;
    link.ping(wait()).await.unwrap();
    let first = events.recv().await.unwrap();
    assert_eq!((first, events.dropped()), (ended(1000 - 256), 1000 - 256));
    for n in 1000 - 255..1000 {
        assert_eq!(events.recv().await, Some(ended(n)));
    }
    drop(link);
    assert_eq!(events.recv().await, None);
}

#[tokio::test]
async fn results_that_are_told_in_numbers_are_kept_as_a_hint() {
    fn told(results: usize) -> GuestEvent {
        let result = GuestTaskResult {
            number: 1,
            task_id: String::new(),
            message_id: String::new(),
            outcome: GuestTaskOutcome::Ended(Exit::Code(0)),
            workdir: None,
            stdout: TaskStreamOutput::default(),
            stderr: TaskStreamOutput::default(),
            elapsed_ms: 0,
        };
        let page =
            TaskResultsReply { results: vec![result; results], more: false, queued: 0, running: 0 };
        GuestEvent::TaskEnded(TaskResultsPush { after: 0, page })
    }
    let (link, _seen) = link_to(|request| match request {
        ToGuest::RunCommand(_) => {
            let bytes =
                [1000, 0, 2, 1].map(|n| frame(FrameKind::Event, 0, encode(&told(n)).unwrap()));
            let bytes = bytes.concat();
            RequestBehaviour::raw(move |_| bytes.clone())
        }
        other => obliging(other),
    })
    .await;
    let mut events = link.events();
    let _ =
        link.exec(shell("x", 1), CallTerms::at_most(Duration::from_millis(50)), |_, _| {}).await;
    for _ in 0..3 {
        assert!(events.recv().await == Some(GuestEvent::TasksChanged), "it is not a hint");
    }
    assert_eq!(events.recv().await, Some(told(1)));
}

/// Bytes that a hostile guest sends when the last of three calls comes in: garbage, or well-formed
/// frames for ids that are open or nearly.
#[derive(Debug, Clone)]
enum Attack {
    Rubbish(Vec<u8>),
    Frames(Vec<(FrameKind, u32, Vec<u8>)>),
}

impl Attack {
    fn bytes(&self, id: u32) -> Vec<u8> {
        match self {
            Self::Rubbish(bytes) => bytes.clone(),
            Self::Frames(frames) => frames
                .iter()
                .flat_map(|(kind, back, payload)| {
                    let id = if *kind == FrameKind::Event { 0 } else { id.wrapping_sub(*back) };
                    frame(*kind, id, payload.clone())
                })
                .collect(),
        }
    }
}

fn attack() -> impl Strategy<Value = Attack> {
    let kind = prop_oneof![
        6 => Just(FrameKind::Data),
        2 => Just(FrameKind::Credit),
        2 => Just(FrameKind::Event),
        1 => Just(FrameKind::Reply),
    ];
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        (0u8..3, 0usize..65_536).prop_map(|(stream, len)| [vec![stream], vec![7; len]].concat()),
    ];
    let frames = proptest::collection::vec((kind, 0u32..4, payload), 0..60);
    prop_oneof![
        3 => frames.prop_map(Attack::Frames),
        1 => proptest::collection::vec(any::<u8>(), 0..5000).prop_map(Attack::Rubbish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the guest sends: no panic, every call ends, and what the link
    /// holds for a call stays within its credit.
    #[test]
    fn a_hostile_guest_never_panics_the_host(
        attack in attack(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (link, _seen) = link_to(move |request| match request {
                ToGuest::JobList(_) => {
                    let attack = attack.clone();
                    RequestBehaviour::raw(move |id| attack.bytes(id))
                }
                _ => RequestBehaviour::Ignore,
            }).await;
            let brief = || CallTerms::at_most(Duration::from_millis(30));
            let mut kept = 0;
            let (exec, _file, _jobs) = tokio::join!(
                link.exec(shell("x", 1000), brief(), |_, bytes| kept += bytes.len()),
                link.download("/f", 0, Some(1000), Vec::new(), brief(), |_| {}),
                link.ask(hivekeep_protocol::JobList, brief()),
            );
            assert!(kept <= 2000);
            if let Ok(output) = exec {
                assert!(output.stdout.bytes.len() <= 1000 && output.stderr.bytes.len() <= 1000);
            }
            for held in link.core().calls.held_bytes() {
                assert!(held <= INITIAL_CREDIT_BYTES as usize, "{held} bytes held for one call");
            }
        });
    }
}
