//! Steps in forks of machines: what is made, kept, gone on from and removed.

use hivekeep_kernel::RunId;
use hivekeep_plan::progress::{RetryFrom, RunOutcome};
use serde_json::Value;

use super::{ALL, Stage};
use crate::run::RunPlace;

/// Steps of which one fails in its fork until it has been there before.
const STEPS: &str = "type: graph
steps:
- { id: a, run: 'true' }
- { id: b, fork: true, depends: a, run: 'echo b >> b; test $(grep -c b b) -ge 2' }
- { id: c, fork: true, depends: b, run: 'true' }
- { id: d, depends: c, run: 'true' }
- { id: e, depends: [b, c], run: 'true' }
";

/// Calls that make, keep or remove a machine, in short.
fn machines(stage: &Stage, id: RunId) -> Vec<String> {
    let run = format!("run-{}-", id.uuid().simple());
    let told = |(tool, args): (String, Value)| {
        let text = |key: &str| args[key].as_str().unwrap_or_default().replace(&run, "");
        match tool.as_str() {
            "snapshot" => format!("{} {}", text("action"), text("name")),
            "fork" => format!("fork {} {}", text("of"), text("name")),
            other => other.to_owned(),
        }
    };
    stage.guest.called().into_iter().map(told).collect()
}

#[tokio::test]
async fn a_failed_machine_is_kept_and_the_retry_goes_on_from_it() {
    let mut stage = Stage::new().await;
    let id = stage.begin_at(RunPlace::Own, None, STEPS, Value::Null).await.expect("begun");
    let state = stage.closed(id).await;
    assert_eq!(state.outcome(), Some(RunOutcome::Failed));
    assert_eq!(state.kept.values().map(|kept| &*kept.snapshot).collect::<Vec<_>>(), ["failed"]);
    let first = ["create step-1.1", "fork step-1.1 1-1", "create failed"];
    assert_eq!(machines(&stage, id), first);
    let month = format!("lifetime {}", 30 * 24 * 60 * 60);
    assert_eq!(stage.guest.of_workspace(), [&*month, "stop", "lifetime 3600", "stop"]);

    stage.rig = stage.rig.crashed().await;
    stage.runs().retry(ALL, id, RetryFrom::Failed).await.expect("again");
    let state = stage.closed(id).await;
    assert_eq!(state.outcome(), Some(RunOutcome::Succeeded));
    assert!(state.kept.is_empty() && state.stale.is_empty());
    let second = ["fork failed 1-2", "create step-2.1", "fork step-2.1 2-1"];
    assert_eq!(machines(&stage, id), [&first[..], &second].concat());

    let again = stage.runs().retry(ALL, id, RetryFrom::Beginning).await;
    again.expect("from the beginning");
    let _over = stage.closed(id).await;
    let third = machines(&stage, id).split_off(first.len() + second.len());
    assert_eq!(third.first().map(String::as_str), Some("create step-1.3"), "{third:?}");
}

#[tokio::test]
async fn what_has_no_forks_is_refused_before_anything_runs() {
    let stage = Stage::new().await;
    let folder = || RunPlace::Folder("here".to_owned());
    for (place, text, why) in [
        (folder(), "steps: [{ run: x, fork: true }]", "its machine has to be the run's own"),
        (
            RunPlace::Workspace("w".to_owned()),
            "steps: [{ run: x, fork: true }]",
            "its machine has to be the run's own",
        ),
        (
            RunPlace::Own,
            "steps: [{ run: x, fork: true, container: { image: i } }]",
            "a container is a sandbox",
        ),
        (RunPlace::Own, "steps: [{ action: noop, fork: true }]", "`noop` works in no machine"),
    ] {
        let id = stage.begin_at(place, None, text, Value::Null).await.expect("begun");
        let state = stage.closed(id).await;
        let refused = state.refused().unwrap_or_else(|| panic!("{text} is run"));
        assert!(refused.message.contains(why), "{text}: {refused}");
    }
    // Volumes are looked for, whatever was made.
    let called = stage.guest.called().into_iter().map(|(tool, _)| tool);
    assert!(called.into_iter().all(|tool| tool == "aegis.volume.delete"));
}
