//! Fields of a DAG that a run does not obey yet: it is refused, so that none is passed over in silence.

use hivekeep_manifest::dag::{
    DagGroupEntry, DagManifest, DagStep, DagStepEntry, DagSteps, DagStream,
};

/// The first field that would be passed over, as it is named to people.
pub(super) fn not_obeyed(dag: &DagManifest) -> Option<String> {
    let root = [
        ("container", dag.container.is_some()),
        ("secrets", dag.secrets.is_some()),
        ("tools", dag.tools.is_some()),
        ("resources", dag.resources.is_some()),
        ("mail_on", dag.mail_on.is_some()),
        ("artifacts", dag.artifacts.is_some()),
        ("actions", dag.actions.is_some()),
        ("step_types", dag.step_types.is_some()),
        ("worker_selector", dag.worker_selector.as_ref().is_some_and(|it| it != "local")),
    ];
    let of_root = root.into_iter().find(|(_, there)| *there);
    if let Some((field, _)) = of_root {
        return Some(format!("`{field}`"));
    }
    steps(dag).into_iter().find_map(|step| {
        let field = of_step(step)?;
        Some(format!("`{field}` of the step `{}`", step.name().unwrap_or("without a name")))
    })
}

fn of_step(step: &DagStep) -> Option<&'static str> {
    let artifact = |stream: &Option<DagStream>| matches!(stream, Some(DagStream::Detail(detail)) if detail.artifact.is_some());
    let fields = [
        ("approval", step.approval.is_some()),
        ("container", step.container.is_some()),
        ("dependencies", step.dependencies.is_some()),
        ("inputs", step.inputs.is_some()),
        ("mail_on_error", step.mail_on_error == Some(true)),
        ("output_schema", step.output_schema.is_some()),
        ("shell_packages", step.shell_packages.is_some()),
        ("signal_on_stop", step.signal_on_stop.is_some()),
        ("stdout.artifact", artifact(&step.stdout)),
        ("stderr.artifact", artifact(&step.stderr)),
        ("worker_selector", step.worker_selector.as_ref().is_some_and(|it| it != "local")),
    ];
    let with = step.settings.as_ref().or(step.config.as_ref());
    let packages = with.is_some_and(|with| with.contains_key("shell_packages"));
    let found = fields.into_iter().find(|(_, there)| *there).map(|(field, _)| field);
    found.or_else(|| packages.then_some("with.shell_packages"))
}

/// All steps of a DAG, with those of loops and handlers.
pub(crate) fn steps(dag: &DagManifest) -> Vec<&DagStep> {
    let mut open: Vec<&DagStep> = match &dag.steps {
        DagSteps::Map(steps) => steps.values().collect(),
        DagSteps::List(entries) => entries.iter().flat_map(of_entry).collect(),
    };
    open.extend(dag.handler_on.iter().flat_map(|handlers| handlers.all()).map(|(_, step)| step));
    let mut found = Vec::new();
    while let Some(step) = open.pop() {
        open.extend(step.foreach.iter().flat_map(|foreach| &foreach.steps));
        found.push(step);
    }
    found
}

fn of_entry(entry: &DagStepEntry) -> Vec<&DagStep> {
    match entry {
        DagStepEntry::Command(_) => Vec::new(),
        DagStepEntry::Step(step) => vec![step],
        DagStepEntry::Group(group) => {
            let steps = group.iter().filter_map(|entry| match entry {
                DagGroupEntry::Command(_) => None,
                DagGroupEntry::Step(step) => Some(&**step),
            });
            steps.collect()
        }
    }
}
