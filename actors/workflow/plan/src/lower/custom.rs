//! Actions of a file's own: each step that calls one becomes the step that its template makes of what it is given.

use std::collections::BTreeMap;

use hivekeep_manifest::{
    MAX_TEXT_BYTES,
    common::JsonObject,
    dag::{DagCustomAction, DagGroupEntry, DagManifest, DagStep, DagStepEntry, DagSteps},
    read_dag,
};
use serde_json::{Value, json};

use crate::{
    go_template::render_go,
    schema::{add_defaults, fits},
};

/// Most steps of a DAG that call such actions.
const MOST_CALLS: usize = 1_000;
/// Most templates that call one another.
const MOST_LEVELS: usize = 8;
/// Fields that the step of a call gives beside `with`.
const CALL_KEYS: &str = "id name description depends continue_on retry_policy repeat_policy \
    mail_on_error preconditions signal_on_stop env timeout_sec stdout stderr log_output \
    worker_selector output approval";

/// Replaces the steps of a checked DAG that call its own actions. It has no such actions then.
///
/// # Errors
/// In words: a call that does not fit the action, a template that makes no step, or too many of them.
pub fn expand_actions(dag: &mut DagManifest) -> Result<(), String> {
    let Some(actions) = dag.actions.take() else { return Ok(()) };
    let mut calls = ActionCalls { actions: &actions, count: 0, bytes: 0 };
    match &mut dag.steps {
        DagSteps::Map(steps) => {
            steps.values_mut().try_for_each(|step| calls.expand(step))?;
        }
        DagSteps::List(entries) => {
            for entry in entries {
                match entry {
                    DagStepEntry::Command(_) => {}
                    DagStepEntry::Step(step) => calls.expand(step)?,
                    DagStepEntry::Group(group) => {
                        for entry in group {
                            if let DagGroupEntry::Step(step) = entry {
                                calls.expand(step)?;
                            }
                        }
                    }
                }
            }
        }
    }
    let handlers = dag.handler_on.as_mut().map(|handlers| handlers.all_mut());
    handlers.into_iter().flatten().try_for_each(|step| calls.expand(step))
}

struct ActionCalls<'a> {
    actions: &'a BTreeMap<String, DagCustomAction>,
    count: usize,
    bytes: usize,
}

impl ActionCalls<'_> {
    fn expand(&mut self, step: &mut DagStep) -> Result<(), String> {
        for _ in 0..MOST_LEVELS {
            let found = step.action.as_ref().and_then(|name| self.actions.get_key_value(name));
            let Some((name, action)) = found else {
                let body = step.foreach.as_mut().map(|foreach| &mut foreach.steps);
                return body.into_iter().flatten().try_for_each(|step| self.expand(step));
            };
            let made = self.made(name, action, step);
            *step = made.map_err(|why| {
                let at = step.name().unwrap_or("without a name");
                format!("the action `{name:.80}` in the step `{at:.80}`: {why}")
            })?;
        }
        Err(format!("templates of `actions` call one another more than {MOST_LEVELS} times"))
    }

    fn made(
        &mut self,
        name: &str,
        action: &DagCustomAction,
        step: &DagStep,
    ) -> Result<DagStep, String> {
        self.count += 1;
        if self.count > MOST_CALLS {
            return Err(format!("more than {MOST_CALLS} steps call actions of the file"));
        }
        let mut input = step.settings.clone().unwrap_or_default();
        add_defaults(&Value::Object(action.input_schema.clone()), &mut input);
        let input = Value::Object(input);
        fits(&action.input_schema, &input)
            .map_err(|faults| format!("`with` {}", faults.join("; ")))?;
        let data = JsonObject::from_iter([("input".to_owned(), input)]);
        let mut made = JsonObject::new();
        for (key, value) in &action.template {
            made.insert(key.clone(), rendered(value, &data)?);
        }
        let text = json!({ "type": "chain", "steps": [made] }).to_string();
        self.bytes += text.len();
        if self.bytes > MAX_TEXT_BYTES {
            return Err(format!("steps of templates have more than {MAX_TEXT_BYTES} bytes"));
        }
        // A template that is one by its form may make a step that is none.
        if !self.actions.keys().any(|own| made.get("action").is_some_and(|it| it == own)) {
            let problems = read_dag(&text, None).err().unwrap_or_default();
            if let Some(first) = problems.first() {
                return Err(format!("its template makes no valid step: {}", first.message));
            }
        }
        let call = serde_json::to_value(step).map_err(|error| error.to_string())?;
        let given = call.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let given = given.filter(|(key, _)| *key != "with" && *key != "action");
        for (key, value) in given {
            if !CALL_KEYS.split_whitespace().any(|known| known == key) {
                return Err(format!("`{key}` belongs into the template of `{name:.80}`"));
            }
            made.insert(key.clone(), value.clone());
        }
        let mut made: DagStep = serde_json::from_value(Value::Object(made))
            .map_err(|error| format!("its template makes no step: {error}"))?;
        made.output_schema = made.output_schema.or_else(|| action.output_schema.clone());
        made.description = made.description.or_else(|| action.description.clone());
        Ok(made)
    }
}

/// Value of a template: texts are rendered, and `{ $input: PATH }` is the value that is given there.
fn rendered(value: &Value, data: &JsonObject) -> Result<Value, String> {
    match value {
        Value::String(text) if text.contains("{{") => render_go(text, data).map(Value::String),
        Value::Array(items) => items.iter().map(|item| rendered(item, data)).collect(),
        Value::Object(members) => {
            if let (1, Some(Value::String(path))) = (members.len(), members.get("$input")) {
                let path = format!("/input/{}", path.replace('.', "/"));
                let found = Value::Object(data.clone()).pointer(&path).cloned();
                return found.ok_or_else(|| format!("its template names no input: `{path:.80}`"));
            }
            let member = |(key, value): (&String, &Value)| {
                Ok::<_, String>((key.clone(), rendered(value, data)?))
            };
            members.iter().map(member).collect::<Result<JsonObject, _>>().map(Value::Object)
        }
        other => Ok(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<DagManifest, String> {
        let file = read_dag(text, None).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
        let mut dag = file.documents.into_iter().next().expect("a DAG");
        expand_actions(&mut dag).map(|()| dag)
    }

    const ACTIONS: &str = r#"
actions:
  say:
    description: Says it
    input_schema: { type: object, additionalProperties: false, required: [text], properties: { text: { type: string }, times: { type: integer, default: 2 } } }
    output_schema: { type: object }
    template: { action: exec, with: { command: echo, args: [{ $input: text }, "{{ .input.times }}", "${params.x}"] } }
  twice:
    input_schema: { type: object }
    template: { action: say, with: { text: 'a {{ json .input.who }}' } }
  loop:
    input_schema: { type: object }
    template: { action: loop }
  wrong:
    input_schema: { type: object }
    template: { action: log.write, with: { massage: x } }
"#;

    #[test]
    fn a_step_that_calls_an_action_of_the_file_is_the_one_that_its_template_makes() {
        let steps = "steps:\n- { id: a, action: say, with: { text: \"it's ${env.X}\" }, timeout_sec: 3 }\n\
            - { foreach: { items: [1], steps: [{ action: twice, with: { who: me } }] } }\n";
        let dag = expanded(&format!("{ACTIONS}{steps}")).expect("they are made");
        let value = serde_json::to_value(&dag).expect("serialises");
        let step = &value["steps"][0];
        assert_eq!(step["action"], "exec");
        assert_eq!(step["with"]["args"], json!(["it's ${env.X}", "2", "${params.x}"]));
        let kept = ["id", "timeout_sec", "description"].map(|key| step[key].clone());
        assert_eq!(kept, [json!("a"), json!(3), json!("Says it")]);
        assert_eq!(step["output_schema"], json!({ "type": "object" }));
        let inner = &value["steps"][1]["foreach"]["steps"][0];
        assert_eq!(inner["with"]["args"][0], "a \"me\"");
        for (step, why) in [
            ("{ action: say }", "required"),
            ("{ action: say, with: { text: 3 } }", "/text"),
            ("{ action: say, with: { text: a, more: 3 } }", "more"),
            ("{ action: twice }", "who"),
            ("{ action: loop }", "more than 8 times"),
            ("{ action: wrong }", "`message` is missing"),
            ("{ action: say, with: { text: a }, working_dir: /x }", "working_dir"),
        ] {
            let told = expanded(&format!("{ACTIONS}steps: [{step}]")).expect_err(step);
            assert!(told.contains(why), "{step}: {told}");
        }
    }
}
