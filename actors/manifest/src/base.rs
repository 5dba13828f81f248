//! Defaults of DAGs: a file beside theirs, whose keys they have unless they say otherwise.

use crate::{
    check::{Found, dag_problems, read},
    problems::{ManifestPath, at, problem},
    yaml::{TextPosition, YamlContent, YamlNode},
};

/// Keys that belong to a DAG itself.
const OWN: [&str; 3] = ["name", "schedule", "steps"];
/// Keys whose entries stand before those of the DAG's own.
const LISTS: [&str; 2] = ["env", "secrets"];
/// Keys whose entries are added to those of the DAG's own.
const MAPS: [&str; 3] = ["actions", "handler_on", "harnesses"];

/// Keys that DAGs of one folder have in common.
pub(crate) struct DagBase(Vec<(String, TextPosition, YamlNode)>);

impl DagBase {
    /// Defaults of a text.
    ///
    /// # Errors
    /// Problems with their places in it.
    pub(crate) fn read(text: &str) -> Result<Self, Found> {
        let mut documents = read(text).map_err(|told| vec![(TextPosition::START, told)])?;
        let wrong = |at, path: &ManifestPath, message: &str| {
            vec![(at, problem(at, path, message.to_owned()))]
        };
        if let Some(further) = documents.get(1) {
            return Err(wrong(further.at, &at![], "a file of defaults holds one document"));
        }
        let Some(YamlNode { content: YamlContent::Map(mut entries), at: start }) = documents.pop()
        else {
            return Err(wrong(TextPosition::START, &at![], "a file of defaults is a mapping"));
        };
        if let Some((key, at, _)) = entries.iter().find(|(key, ..)| OWN.contains(&key.as_str())) {
            return Err(wrong(*at, &at![key], "belongs to a DAG, and has no default"));
        }
        // A DAG with these keys alone is valid.
        let step = YamlContent::Scalar("true".into());
        let steps = YamlContent::List(vec![YamlNode { at: start, content: step }]);
        entries.push(("steps".to_owned(), start, YamlNode { at: start, content: steps }));
        let mut whole = YamlNode { at: start, content: YamlContent::Map(entries) };
        let found = dag_problems(&whole);
        if !found.is_empty() {
            return Err(found);
        }
        let YamlContent::Map(entries) = &mut whole.content else { return Ok(Self(Vec::new())) };
        entries.pop();
        Ok(Self(std::mem::take(entries)))
    }

    /// Adds to a document what it does not say itself.
    pub(crate) fn add_to(&self, document: &mut YamlNode) {
        let YamlContent::Map(entries) = &mut document.content else { return };
        for (key, at, value) in &self.0 {
            let Some((_, _, own)) = entries.iter_mut().find(|(name, ..)| name == key) else {
                entries.push((key.clone(), *at, value.clone()));
                continue;
            };
            if LISTS.contains(&key.as_str()) {
                let items = [listed(value), listed(own)].concat();
                own.content = YamlContent::List(items);
            } else if let (true, YamlContent::Map(own)) =
                (MAPS.contains(&key.as_str()), &mut own.content)
            {
                let new = |(name, ..): &&(String, TextPosition, YamlNode)| {
                    !own.iter().any(|(one, ..)| one == name)
                };
                let more: Vec<_> = value.entries().iter().filter(new).cloned().collect();
                own.extend(more);
            }
        }
    }
}

/// Items of a list; a mapping is one.
fn listed(node: &YamlNode) -> Vec<YamlNode> {
    match &node.content {
        YamlContent::List(items) => items.clone(),
        _ => vec![node.clone()],
    }
}

#[cfg(test)]
mod tests {
    use crate::{dag::DagManifest, read_dag_over};

    fn over(base: &str, text: &str) -> Result<DagManifest, String> {
        let read = read_dag_over(Some(base), text, None);
        read.map(|file| file.documents.into_iter().next().expect("a DAG"))
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_dag_has_the_keys_of_its_base_where_it_says_nothing_itself() {
        let base = "timeout_sec: 60\nqueue: all\nenv: { A: base, B: base }\nsecrets: [{ name: S, ref: a }]\n\
            handler_on: { exit: { run: echo base }, failure: { run: echo base } }\n\
            actions: { own.say: { input_schema: { type: object }, template: { run: 'true' } } }\n";
        let text = "queue: own\nenv: [{ B: own }]\nhandler_on: { exit: { run: echo own } }\n\
            steps: [{ action: own.say }]\n";
        let dag = over(base, text).expect("it is valid");
        assert_eq!((dag.timeout_sec, dag.queue.as_deref()), (Some(60), Some("own")));
        let env = dag.env.as_ref().map(|env| env.pairs()).unwrap_or_default();
        let env: Vec<_> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["A=base", "B=base", "B=own"]);
        let handlers = dag.handler_on.expect("they are merged");
        let line = |step: Option<crate::dag::DagStep>| step?.run.map(|run| run.lines());
        assert_eq!(line(handlers.exit), Some(vec!["echo own".to_owned()]));
        assert_eq!(line(handlers.failure), Some(vec!["echo base".to_owned()]));
        assert!(dag.secrets.is_some_and(|all| all.len() == 1));
        for (base, why) in [
            ("steps: [{ run: 'true' }]", "base.yaml: belongs to a DAG"),
            ("timeout_sec: soon", "base.yaml"),
            ("- a", "base.yaml: a file of defaults is a mapping"),
            ("a: 1\n---\nb: 1", "base.yaml: a file of defaults holds one document"),
            ("handler_on: { exit: { runn: x } }", "base.yaml"),
        ] {
            let told = over(base, text).expect_err(base);
            assert!(told.contains(why), "{base}: {told}");
        }
    }
}
