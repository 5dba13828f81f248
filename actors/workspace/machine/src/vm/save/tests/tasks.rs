//! Whose a task is, when its machine's memory becomes another machine.

use std::collections::BTreeMap;

use hivekeep_link::{GuestStream, tasks::TaskQueueClient};
use hivekeep_ports::{TaskOutcome, TaskState};
use hivekeep_protocol::TaskPut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn task(id: &str, command: &str) -> TaskPut {
    TaskPut {
        message_id: format!("m-{id}"),
        task_id: id.into(),
        command: command.into(),
        workdir: None,
        env: vec![],
        timeout_secs: 600,
    }
}

/// Waits until so many tasks have a result, and answers them.
async fn outcomes(link: &Link, sent: &[&str]) -> BTreeMap<String, TaskOutcome> {
    let delivery = TaskQueueClient::over(link.clone());
    let sent: BTreeMap<_, _> =
        sent.iter().map(|id| ((*id).to_owned(), format!("m-{id}"))).collect();
    let begun = Instant::now();
    loop {
        let page = delivery.results(0, 20, &sent).await.unwrap();
        assert_eq!((page.dropped, page.refused_paths), (0, 0), "{page:?}");
        if page.results.len() == sent.len() {
            return page.results.into_iter().map(|it| (it.task_id, it.outcome)).collect();
        }
        assert!(begun.elapsed() < SLOW, "{page:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_neither_runs_nor_tells_of_the_tasks_of_its_source() {
    let bench = bench_or_skip!();
    let delivery = TaskQueueClient::over(bench.link.clone());
    let ids = ["0", "1", "2", "3", "4", "5"];
    for id in ids {
        let line = format!(
            "echo {id} >> /root/began; until [ -e /root/go ]; do sleep 0.2; done; \
             echo {id} >> /root/ended; seq 1 9000"
        );
        let taken = delivery.put(task(id, &line)).await.unwrap();
        assert!(!taken.repeat && taken.state != TaskState::Done, "{taken:?}");
    }
    run(&bench.link, "until [ \"$(wc -l < /root/began)\" = 4 ] 2>/dev/null; do sleep 0.1; done")
        .await;
    let (snapshot, _) = bench.save(&bench.handle, &bench.plan, "one").await;
    let frozen = bench.plan.disk().top;
    let fork = bench.fork(1, vec![frozen], &snapshot, &bench.token).await;

    let forks = TaskQueueClient::over(fork.link.clone());
    let board = forks.board().await.unwrap();
    assert_eq!((board.queued.len(), board.running.len(), board.results), (0, 0, 0), "{board:?}");
    run(&fork.link, "touch /root/go").await;
    let taken = forks.put(task("0", "echo mine")).await.unwrap();
    assert!(!taken.repeat, "it has no task of that name");
    let exited = TaskOutcome::Exited { exit_code: 0 };
    assert_eq!(outcomes(&fork.link, &["0"]).await["0"], exited);
    let seen = "wc -l < /root/began; ls /root/ended 2>/dev/null | wc -l; ls -d /var/lib/hivekeep/tasks-of-* | wc -l";
    assert_eq!(
        run(&fork.link, seen).await,
        "4\n0\n1",
        "what ran was killed, what waited never ran"
    );

    // The source's go on where they were.
    run(&bench.link, "touch /root/go").await;
    let all = outcomes(&bench.link, &ids).await;
    assert!(all.values().all(|outcome| *outcome == exited), "{all:?}");
    let ended = run(&bench.link, "sort /root/ended | uniq -c | grep -c ' 1 '").await;
    assert_eq!(ended, "6", "each once");
    bench.end(&fork.plan, &fork.handle).await;
    bench.driver.discard_snapshot(&snapshot).await.unwrap();
    bench.end(&bench.plan, &bench.handle).await;
    bench.driver.host_env.cgroups.leave();
}

/// Port of the guest's loopback that the host answers.
const PORT: u16 = 8790;
/// Asks the host until it has an answer, and says that.
const ASKS: &str = "while :; do exec 3<>/dev/tcp/127.0.0.1/8790 && echo ask >&3 && \
     read -r answer <&3 && break; echo broken >> /root/broken; sleep 0.2; done; \
     echo \"$answer\" > /root/answered";

/// Connection of the program, which has asked.
async fn asked(link: &Link) -> GuestStream {
    let mut stream = link.accept_stream(PORT, CallTerms::at_most(SLOW)).await.unwrap();
    let mut asked = [0; 4];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"ask\n");
    stream
}

/// Gives the program its answer, and waits until it has it.
async fn answer(mut stream: GuestStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
}

/// A task that waits for an answer of the host asks again in a fork that keeps it, and hears that one's.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_for_the_host_goes_on_in_a_fork_that_keeps_it() {
    let bench = bench_or_skip!();
    let delivery = TaskQueueClient::over(bench.link.clone());
    // The port is there before it asks.
    let link = bench.link.clone();
    let first = tokio::spawn(async move { asked(&link).await });
    delivery.put(task("asks", &format!("exec bash -c '{ASKS}'"))).await.unwrap();
    let held = first.await.unwrap();
    let (snapshot, _) = bench.save(&bench.handle, &bench.plan, "one").await;
    let frozen = bench.plan.disk().top;
    let mut ends = Vec::new();
    for number in 1..=2 {
        let layers = vec![frozen.clone()];
        let fork = bench.fork_of(number, layers, &snapshot, &bench.token, true).await;
        let board = TaskQueueClient::over(fork.link.clone()).board().await.unwrap();
        assert_eq!(board.running, ["asks"], "it runs on");
        let said = format!("answer {number}\n");
        answer(asked(&fork.link).await, &said).await;
        ends.push((fork, said));
    }
    answer(held, "answer 0\n").await;
    let exited = TaskOutcome::Exited { exit_code: 0 };
    for (fork, said) in &ends {
        assert_eq!(outcomes(&fork.link, &["asks"]).await["asks"], exited);
        let seen = run(&fork.link, "cat /root/answered; wc -l < /root/broken").await;
        assert!(seen.starts_with(said.as_str()), "its connection was broken: {seen}");
        bench.end(&fork.plan, &fork.handle).await;
    }
    assert_eq!(outcomes(&bench.link, &["asks"]).await["asks"], exited);
    let seen = run(&bench.link, "cat /root/answered; ls /root/broken 2>/dev/null || :").await;
    assert_eq!(seen, "answer 0", "the source's was not");
    bench.driver.discard_snapshot(&snapshot).await.unwrap();
    bench.end(&bench.plan, &bench.handle).await;
    bench.driver.host_env.cgroups.leave();
}
