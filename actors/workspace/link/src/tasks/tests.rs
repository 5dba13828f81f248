//! Tests with a guest that lies about tasks.

use std::collections::BTreeMap;

use hivekeep_ports::{TaskOutcome, TaskState};
use hivekeep_protocol::{
    self as wire, Exit, Frame, FrameKind, FromGuest, GuestCode, GuestError, GuestEvent, ToGuest,
    encode, limits,
};
use tokio_util::sync::CancellationToken;

use super::TaskQueueClient;
use crate::{
    Link, LinkOptions, LinkToken,
    fake::{FakeGuest, RequestBehaviour},
};

async fn delivery(
    script: impl Fn(&ToGuest) -> RequestBehaviour + Send + Sync + 'static,
) -> (TaskQueueClient, Link) {
    let (guest, _seen) = FakeGuest::new(script);
    let (token, cancel) = (LinkToken::from_bytes([7; 32]), CancellationToken::new());
    let options = LinkOptions::default();
    let connected = Link::connect_over(&guest.carrier(), &token, &options, &cancel).await;
    let link = connected.expect("the guest lets us in").0;
    (TaskQueueClient::over(link.clone()), link)
}

fn result(number: u64, task_id: &str) -> wire::GuestTaskResult {
    wire::GuestTaskResult {
        number,
        task_id: task_id.into(),
        message_id: format!("m-{task_id}"),
        outcome: wire::GuestTaskOutcome::Ended(Exit::Code(0)),
        workdir: Some("/workspace".into()),
        stdout: wire::TaskStreamOutput::default(),
        stderr: wire::TaskStreamOutput::default(),
        elapsed_ms: 5,
    }
}

fn page(results: Vec<wire::GuestTaskResult>) -> wire::TaskResultsReply {
    wire::TaskResultsReply { results, more: false, queued: 1, running: 2 }
}

fn sent(ids: &[&str]) -> BTreeMap<String, String> {
    ids.iter().map(|id| ((*id).to_owned(), format!("m-{id}"))).collect()
}

async fn tells(page: wire::TaskResultsReply) -> (TaskQueueClient, Link) {
    delivery(move |_| RequestBehaviour::Reply(Ok(FromGuest::TaskResults(page.clone())))).await
}

fn put() -> wire::TaskPut {
    wire::TaskPut {
        message_id: "m-a".into(),
        task_id: "a".into(),
        command: "true".into(),
        workdir: None,
        env: vec![],
        timeout_secs: 300,
    }
}

#[tokio::test]
async fn results_of_tasks_never_sent_are_dropped_and_counted() {
    let mut of_another_message = result(3, "b");
    of_another_message.message_id = "m-x".into();
    let told = vec![
        result(1, "a"),
        result(2, "stranger"),
        of_another_message,
        result(4, "a"),
        result(7, "c"),
    ];
    let (delivery, _link) = tells(page(told)).await;
    let page = delivery.results(0, 20, &sent(&["a", "b", "c"])).await.expect("a page");
    let ids: Vec<_> = page.results.iter().map(|it| it.task_id.as_str()).collect();
    assert_eq!(ids, ["a", "c"]);
    assert_eq!((page.dropped, page.next_after, page.queued, page.running), (3, 7, 1, 2));
    assert_eq!(page.results[0].outcome, TaskOutcome::Exited { exit_code: 0 });
}

#[tokio::test]
async fn paths_that_point_outside_are_refused_and_the_result_is_kept() {
    let mut liar = result(1, "a");
    let out = |path: String| wire::TaskStreamOutput {
        head: b"x".to_vec(),
        total_bytes: 9,
        path: Some(path),
    };
    liar.stdout = out("/etc/shadow".into());
    liar.stderr = out(format!("{}/../../../../etc/shadow", limits::TASKS_DIR));
    liar.workdir = Some("a\nb".into());
    let mut honest = result(2, "b");
    let path = format!("{}/runs/t2/stdout", limits::TASKS_DIR);
    honest.stdout = out(path.clone());
    let (delivery, _link) = tells(page(vec![liar, honest])).await;
    let page = delivery.results(0, 20, &sent(&["a", "b"])).await.expect("a page");
    assert_eq!((page.refused_paths, page.results.len()), (2, 2));
    let [liar, honest] = &page.results[..] else { panic!("two") };
    assert_eq!(
        (&liar.capture.stdout.path, &liar.capture.stderr.path, &liar.capture.workdir),
        (&None, &None, &None)
    );
    assert_eq!(liar.capture.stdout.text, "x\n[output truncated: 1 of 9 bytes shown]");
    assert_eq!(honest.capture.stdout.path, Some(path));
}

#[tokio::test]
async fn too_much_of_a_result_is_cut() {
    let mut much = result(1, "a");
    much.stdout.head = "ü".repeat(100_000).into_bytes();
    much.stdout.total_bytes = 3;
    let reason = "\u{1f600}".repeat(20_000);
    let mut chatty = result(2, "b");
    chatty.outcome = wire::GuestTaskOutcome::NotRun(GuestError::new(GuestCode::NotFound, reason));
    let (delivery, _link) = tells(page(vec![much, chatty])).await;
    let page = delivery.results(0, 20, &sent(&["a", "b"])).await.expect("a page");
    let stdout = &page.results[0].capture.stdout;
    assert!(stdout.truncated && stdout.total_bytes == 200_000);
    assert!(stdout.text.len() <= limits::TASK_SHOWN_BYTES + 100, "{}", stdout.text.len());
    assert!(!stdout.text.contains(char::REPLACEMENT_CHARACTER));
    let TaskOutcome::Invalid { code, reason } = &page.results[1].outcome else { panic!("invalid") };
    assert_eq!(
        (code.as_str(), reason.chars().count()),
        ("not_found", limits::MAX_TASK_REASON_BYTES)
    );
}

#[tokio::test]
async fn a_page_that_is_none_is_refused_and_the_link_goes_on() {
    let ids = ["a", "b", "c"];
    let many = wire::TaskResultsReply { more: true, ..page(vec![]) };
    let lies = [
        page(vec![result(5, "a"), result(5, "b")]),
        page(vec![result(9, "a"), result(8, "b")]),
        page(vec![result(3, "a")]),
        page(vec![result(4, "a"), result(5, "b"), result(6, "c")]),
        many,
    ];
    for lie in lies {
        let (delivery, link) = tells(lie.clone()).await;
        let refused = delivery.results(3, 2, &sent(&ids)).await.expect_err("refused");
        assert_eq!(refused.code, "guest_misbehaves", "{lie:?}");
        assert!(link.is_up());
    }
}

#[tokio::test]
async fn the_answer_to_a_put_is_of_that_task_and_makes_sense() {
    let taken = |state, result: Option<wire::GuestTaskResult>| wire::TaskPutReply {
        state,
        repeat: true,
        differs: false,
        result: result.map(Box::new),
    };
    let mut bad_message = result(1, "a");
    bad_message.message_id = "\0".into();
    for lie in [
        taken(wire::GuestTaskState::Done, Some(result(1, "b"))),
        taken(wire::GuestTaskState::Done, Some(bad_message)),
        taken(wire::GuestTaskState::Done, None),
        taken(wire::GuestTaskState::Queued, Some(result(1, "a"))),
    ] {
        let told = lie.clone();
        let (delivery, _link) =
            delivery(move |_| RequestBehaviour::Reply(Ok(FromGuest::TaskPut(told.clone())))).await;
        let refused = delivery.put(put()).await.expect_err("refused");
        assert_eq!(refused.code, "guest_misbehaves", "{lie:?}");
    }
    let honest = taken(wire::GuestTaskState::Acknowledged, Some(result(1, "a")));
    let (delivery, _link) =
        delivery(move |_| RequestBehaviour::Reply(Ok(FromGuest::TaskPut(honest.clone())))).await;
    let taken = delivery.put(put()).await.expect("taken");
    assert_eq!((taken.state, taken.repeat), (TaskState::Acknowledged, true));
    assert_eq!(taken.result.expect("its result").number, 1);
}

#[tokio::test]
async fn a_list_is_bounded() {
    let lists = [
        (vec!["x".to_owned(); limits::MAX_TASKS + 1], 0),
        (vec!["a\u{7}b".to_owned()], 0),
        (vec!["x".repeat(limits::MAX_TASK_ID_BYTES + 1)], 0),
        (vec![], u32::MAX),
    ];
    for (queued, results) in lists {
        let (delivery, _link) = delivery(move |_| {
            let tasks = wire::TaskListReply { queued: queued.clone(), running: vec![], results };
            RequestBehaviour::Reply(Ok(FromGuest::TaskList(tasks)))
        })
        .await;
        assert_eq!(delivery.board().await.expect_err("refused").code, "guest_misbehaves");
    }
}

#[tokio::test]
async fn more_acknowledgements_than_asked_for_are_not_believed() {
    let (delivery, _link) = delivery(|_| {
        RequestBehaviour::Reply(Ok(FromGuest::TaskAck(wire::TaskAcked { acknowledged: u32::MAX })))
    })
    .await;
    let ids: Vec<_> = (0..limits::MAX_TASKS + 5).map(|n| n.to_string()).collect();
    assert_eq!(delivery.acknowledge(ids.clone()).await.expect("asked"), ids.len() as u32);
}

#[tokio::test]
async fn frames_too_large_or_malformed_end_the_link_and_the_call() {
    let raw: [fn(u32) -> Vec<u8>; 3] = [
        |id| Frame { kind: FrameKind::Reply, id, payload: vec![0xff; 40] }.to_bytes(),
        |id| {
            let mut bytes = Frame { kind: FrameKind::Reply, id, payload: vec![0; 8] }.to_bytes();
            bytes[..4].copy_from_slice(&u32::MAX.to_be_bytes());
            bytes
        },
        |_| Frame { kind: FrameKind::Event, id: 0, payload: vec![9; 100_000] }.to_bytes(),
    ];
    for bytes in raw {
        let (delivery, link) = delivery(move |_| RequestBehaviour::raw(bytes)).await;
        let lost = delivery.results(0, 20, &sent(&[])).await.expect_err("no answer");
        assert_eq!(lost.code, "link_lost");
        assert!(!link.is_up());
    }
}

#[tokio::test]
async fn a_flood_of_hints_keeps_nobody_from_an_answer() {
    let (delivery, link) = delivery(|_| {
        RequestBehaviour::raw(|id| {
            let hint = encode(&GuestEvent::TasksChanged).expect("small");
            let mut bytes = Vec::new();
            for _ in 0..20_000 {
                bytes.extend(
                    Frame { kind: FrameKind::Event, id: 0, payload: hint.clone() }.to_bytes(),
                );
            }
            let page = Ok::<_, GuestError>(FromGuest::TaskResults(page(vec![result(1, "a")])));
            let payload = encode(&page).expect("small");
            bytes.extend(Frame { kind: FrameKind::Reply, id, payload }.to_bytes());
            bytes
        })
    })
    .await;
    let page = delivery.results(0, 20, &sent(&["a"])).await.expect("a page");
    assert_eq!(page.results.len(), 1);
    assert!(link.is_up());
}
