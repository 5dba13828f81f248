//! Merging of layers that deleted snapshots left in a chain, while the workspace is stopped.
//!
//! Only the deletion that caused a merge waits for it. The two layers stay as they are until the
//! record [`Record::Merged`]; before that only the intent names the merged file, and a start takes
//! the old chain and ends the merge.

use std::time::Duration;

use hivekeep_kernel::{ToolError, fault_point};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    activity::Activity,
    handle::WorkspaceHandle,
    messages::{MergeMsg, MergeOutcome, NotMerged, WorkMsg},
    phase::{Phase, Want},
    records::Record,
    snapshots::{Artifact, Merge, Merger, files},
    state::Workspace,
};

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn handle(state: &mut Workspace, ask: MergeMsg) {
    match ask {
        MergeMsg::Begin(reply) => drop(reply.send(begin_merging(state))),
        MergeMsg::Next(reply) => drop(reply.send(mergeable(state).ok())),
        MergeMsg::May(reply) => {
            let may = may_record_merge(state);
            if may {
                state.status.activity = Activity::MergingLayers;
            }
            let _work_gone = reply.send(may);
        }
        MergeMsg::Ended => state.merger = None,
    }
}

/// Begins to merge the layers that can be merged.
pub(crate) fn begin_merging(state: &mut Workspace) -> Result<MergeOutcome, NotMerged> {
    let first = match (mergeable(state), &state.merger) {
        (Err(NotMerged::Nothing), _) => return Err(NotMerged::Nothing),
        (_, Some(_)) => return Err(NotMerged::UnderWay),
        (first, None) => first?,
    };
    let (wanted, ended) = (CancellationToken::new(), CancellationToken::new());
    state.merger = Some(Merger { wanted: wanted.clone(), ended: ended.clone() });
    let (reply, answer) = oneshot::channel();
    let workspace = state.handle.clone();
    let _detached = state.ops.spawn(async move {
        let _ended = ended.drop_guard();
        let merged = merge_all(&workspace, first, &wanted).await;
        if let Err(error) = &merged {
            tracing::warn!(workspace = %workspace.id, %error, "layers were not merged");
        }
        let _actor_gone = workspace.actor.send(MergeMsg::Ended.into());
        let _nobody_asked = reply.send(merged);
    });
    Ok(answer)
}

fn mergeable(state: &Workspace) -> Result<Merge, NotMerged> {
    let (disk, tree) = (&state.ledger.disk, &state.ledger.snapshots);
    if Merge::find(disk, tree, |_| true).is_none() {
        return Err(NotMerged::Nothing);
    }
    let holds = &state.handle.shared.ref_counts;
    let alone = |layer| holds.count(Artifact::Layer(layer)) <= 1;
    let merge = Merge::find(disk, tree, alone).ok_or(NotMerged::Needed)?;
    match state.status.phase {
        Phase::Running | Phase::Paused | Phase::HostDiskFull => Err(NotMerged::Runs),
        _ if state.on(Want::MergeLayers).is_ok() && state.ledger.merge.is_none() => Ok(merge),
        _ => Err(NotMerged::Busy),
    }
}

/// Whether no other workspace has the two layers in its chain: a fork made meanwhile needs them
/// apart.
fn may_record_merge(state: &Workspace) -> bool {
    let Some(merge) = state.ledger.merge else { return false };
    let holds = &state.handle.shared.ref_counts;
    let alone = |layer| holds.count(Artifact::Layer(layer)) <= 1;
    state.on(Want::MergeLayers).is_ok() && alone(merge.lower) && alone(merge.upper)
}

/// Merges layers two by two until none is left or the merge is cancelled; returns the number of merges.
async fn merge_all(
    workspace: &WorkspaceHandle,
    first: Merge,
    wanted: &CancellationToken,
) -> Result<usize, ToolError> {
    let (mut count, mut next) = (0, Some(first));
    while let Some(merge) = next {
        // Merges run one at a time on this host: each reads and writes as much as the disks are large.
        let turn = workspace.shared.merges.acquire();
        let Some(Ok(_turn)) = wanted.run_until_cancelled(turn).await else { break };
        if !merge_two(workspace, merge, wanted).await? {
            break;
        }
        count += 1;
        next = workspace.actor.ask(PATIENCE, |reply| MergeMsg::Next(reply).into()).await?;
    }
    Ok(count)
}

/// Merges two layers; false when the merge was given up.
async fn merge_two(
    workspace: &WorkspaceHandle,
    merge: Merge,
    wanted: &CancellationToken,
) -> Result<bool, ToolError> {
    workspace.note(Record::MergeWanted(merge)).await?;
    fault_point!("merge.after_intent");
    let made = files::merge(&workspace.shared.folders, merge, wanted).await;
    fault_point!("merge.after_merge");
    let may = match &made {
        Ok(()) => workspace.actor.ask(PATIENCE, |reply| MergeMsg::May(reply).into()).await?,
        Err(_) => false,
    };
    if !may {
        workspace.note(Record::MergeFailed).await?;
        return if wanted.is_cancelled() { Ok(false) } else { made.map(|()| false) };
    }
    let event = ("layers.merged", json!({ "into": merge.into }));
    let recorded = workspace.commit(vec![Record::Merged], Some(event)).await;
    let _actor_gone = workspace.actor.send(WorkMsg::Finished(Activity::MergingLayers).into());
    recorded?;
    fault_point!("merge.after_merged");
    Ok(true)
}
