//! Whose a task is, when its machine's memory becomes another machine.

use std::collections::BTreeMap;

use hivekeep_link::tasks::TaskQueueClient;
use hivekeep_ports::{TaskOutcome, TaskState};
use hivekeep_protocol::TaskPut;

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
