//! DAGs of other files that a DAG calls: read when a run begins, so that it goes on with what was there then.

use std::collections::BTreeSet;

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_manifest::{DagFile, dag::DagManifest};

use super::Answer;
use crate::{
    RunPlace, codes,
    dag_file::{checked, path_of},
    run::steps,
    service::WorkflowService,
};

/// Most files of a run beside its own.
const MAX_FILES: usize = 50;

impl WorkflowService {
    /// Adds to a DAG the files that its steps call by a plain name, and those that these call, all with its defaults.
    /// `path` is that of its own file. A file that is not there fails the step that calls it, if it comes to that.
    ///
    /// # Errors
    /// `dag_invalid` for one that is not valid, or for too many.
    pub(super) async fn add_called(
        &self,
        cx: &CallCx,
        file: &mut DagFile,
        (place, base): (&RunPlace, Option<String>),
        path: &str,
    ) -> Answer<()> {
        let mut known: BTreeSet<String> =
            file.documents.iter().filter_map(|dag| dag.name.clone()).collect();
        let mut open: Vec<String> = file.documents.iter().flat_map(called).collect();
        let (mut files, beside) = (0, path.rsplit_once('/').map_or("", |(folder, _)| folder));
        while let Some(name) = open.pop() {
            if !known.insert(name.clone()) {
                continue;
            }
            let Some(text) = self.called_text(cx, place, beside, &name).await? else { continue };
            files += 1;
            if files > MAX_FILES {
                let message = format!("the DAG calls more than {MAX_FILES} other files");
                return Err(ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                    .next("put some of them into one file, as documents between `---`"));
            }
            let read = checked(base.clone(), text, Some(self.callable(cx))).await;
            let mut read = read.map_err(|mut error| {
                error.message = format!("`{name:.80}`, which it calls: {}", error.message);
                error
            })?;
            open.extend(read.documents.iter().flat_map(called));
            if let Some(first) = read.documents.first_mut() {
                first.name = Some(name);
            }
            let more = read.documents.into_iter().enumerate();
            let new = |(at, dag): &(usize, DagManifest)| {
                *at == 0 || dag.name.as_ref().is_some_and(|name| known.insert(name.clone()))
            };
            file.documents.extend(more.filter(new).map(|(_, dag)| dag).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Text of a file that is called by a name: beside the caller's own, else as one that is started by the name.
    async fn called_text(
        &self,
        cx: &CallCx,
        place: &RunPlace,
        beside: &str,
        name: &str,
    ) -> Answer<Option<String>> {
        let in_folder = |path: String| match beside {
            "" => path,
            folder => format!("{folder}/{path}"),
        };
        let with_ending = match name.ends_with(".yaml") || name.ends_with(".yml") {
            true => name.to_owned(),
            false => format!("{name}.yaml"),
        };
        for path in [in_folder(with_ending), path_of(name)] {
            match self.file_text(cx, place, &path).await {
                Ok(text) => return Ok(Some(text)),
                Err(error) if error.is(hivekeep_kernel::codes::NOT_FOUND) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Names by which the steps of a DAG call others, but for those that a run makes up.
fn called(dag: &DagManifest) -> Vec<String> {
    let name = |step: &hivekeep_manifest::dag::DagStep| {
        let with = step.settings.as_ref().and_then(|with| with.get("dag")?.as_str());
        let is_call = matches!(step.action.as_deref(), Some("dag.run" | "dag.enqueue"));
        step.call.clone().or_else(|| with.filter(|_| is_call).map(str::to_owned))
    };
    let named = steps(dag).into_iter().filter_map(name);
    named.filter(|name| !name.contains('$')).collect()
}
