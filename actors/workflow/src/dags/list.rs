//! DAGs of watched folders as they are listed.

use std::collections::BTreeMap;

use hivekeep_runtime::{runs::RunCaller, schedule::ScheduleState};

use super::{
    show::row,
    types::{DagEvent, DagListed, DagRunsAsked, DagRunsShown},
};
use crate::{
    folders::{PlacedFile, WatchedDag},
    schedule::ScheduledDag,
    service::WorkflowService,
};

impl WorkflowService {
    /// Lists the DAGs of files that are the caller's own; for an operator all.
    pub(super) fn listed(&self, caller: RunCaller, asked: &DagRunsAsked) -> DagRunsShown {
        let kept: BTreeMap<_, _> = self
            .schedules
            .all()
            .into_iter()
            .map(|(id, state)| (state.agent.file.clone(), (id, state)))
            .collect();
        let files = self.folders.files();
        let is_meant = |dag: &WatchedDag| {
            let seen = caller.operator || dag.owner == caller.user;
            seen && asked.name.as_ref().is_none_or(|name| dag.name == *name)
        };
        let all = files.iter().filter(|(_, dag)| is_meant(dag));
        let page = all.clone().skip(asked.offset).take(asked.limit);
        let rows = page.map(|(file, dag)| {
            let schedule = kept.get(file).map(|(_, state)| state);
            let events =
                kept.get(file).map(|(id, _)| self.schedules.events(caller, &id.to_string()));
            let last = events.and_then(|events| {
                events.into_iter().rfind(|event| event.event.event_type != "schedule_set")
            });
            let last = last.map(|it| DagEvent {
                sequence: it.sequence,
                event_type: it.event.event_type,
                payload: it.event.payload,
                recorded_at: it.recorded_at,
            });
            self.dag_row(file, dag, schedule, last)
        });
        let dags = Some(rows.collect());
        DagRunsShown { dags, total: Some(all.count()), ..DagRunsShown::default() }
    }

    fn dag_row(
        &self,
        PlacedFile { place, file }: &PlacedFile,
        dag: &WatchedDag,
        schedule: Option<&ScheduleState<ScheduledDag>>,
        last_time: Option<DagEvent>,
    ) -> DagListed {
        let own = RunCaller { user: dag.owner, operator: false };
        let (last, _) = self.runs.0.list(own, Some(&dag.name), 1);
        let times = dag.schedule.as_ref().ok().and_then(Option::as_ref);
        DagListed {
            name: dag.name.clone(),
            place: place.clone(),
            file: file.clone(),
            owner: dag.owner,
            problem: dag.schedule.as_ref().err().cloned(),
            schedule: times.map(|dag| serde_json::json!(dag.schedule)),
            next_run_at: schedule.and_then(|state| state.next),
            last_time,
            last_run: last.first().map(|(_, view)| row(view)),
        }
    }
}
