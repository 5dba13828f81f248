//! Question of a try as people see it, and what their reply says.

use hivekeep_manifest::dag::DagApproval;
use hivekeep_plan::{
    progress::NodeKey,
    resolve::{FormValues, TaskForm, value_text},
};
use hivekeep_ports::{
    FieldKind, FieldOption, FormField, StandingQuestion, UserQuestion, UserReply,
};
use serde_json::{Value, json};

use super::{
    RunFold,
    people::{StepAnswer, StepForm},
};

/// Name of what asks, as people see it.
pub(super) const QUESTIONER: &str = "dag_start";
/// Characters of a prompt that people are shown.
const SHOWN: usize = 4_000;
/// Words of an approval's decision, the first of them without a choice.
const DECISIONS: [&str; 3] = ["approve", "reject", "push back"];

/// Question of a try; none of one that asks nobody. The note says what was wrong with the answer before.
pub(super) fn question(
    state: &RunFold,
    key: NodeKey,
    note: Option<&str>,
) -> Option<StandingQuestion> {
    let node = state.work()?.progress.plan().node(key.node)?;
    let form = StepForm::of(&node.action)?;
    let begun = &state.begun;
    let prompt = &state.left.get(&key.node)?.waits.as_ref()?.prompt;
    let shown: String = prompt.chars().take(SHOWN).collect();
    let about = format!("Step `{:.80}` of the run {} of `{:.80}`", node.name, begun.id, begun.name);
    let parts =
        [note.map(|note| format!("The answer did not fit: {note}")), Some(shown), Some(about)];
    let parts: Vec<_> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let fields = match &form {
        StepForm::Task(form) => fields(form),
        StepForm::Approval(approval) => approval_fields(approval),
    };
    let options = if fields.is_empty() { vec!["done".to_owned()] } else { Vec::new() };
    let question = parts.join("\n\n");
    let question = UserQuestion { question, options, fields, ..UserQuestion::default() };
    let name = format!("{}/{}.{}", begun.id, key.node.0, key.tries);
    let (session, user) = (state.session?, begun.user);
    Some(StandingQuestion { session, user, tool: QUESTIONER, name, question })
}

fn fields(form: &TaskForm) -> Vec<FormField> {
    let field = |(name, schema): (&String, &Value)| {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).map(str::to_owned);
        let options = options(schema);
        let kind = match schema.get("type").and_then(Value::as_str) {
            _ if !options.is_empty() => FieldKind::Choice,
            Some("integer") => FieldKind::Integer,
            Some("number") => FieldKind::Number,
            Some("boolean") => FieldKind::Boolean,
            _ => FieldKind::Text,
        };
        let default = schema.get("default").map(|default| match kind {
            FieldKind::Choice => value_text(default).into_owned().into(),
            _ => default.clone(),
        });
        let (title, description) = (text("title"), text("description"));
        let optional = !form.needs(name);
        FormField { name: name.clone(), title, description, optional, kind, options, default }
    };
    form.fields().map(field).collect()
}

/// Values that a field allows.
fn options(schema: &Value) -> Vec<FieldOption> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let plain = list("enum").map(|value| (value, None));
    let titled = list("oneOf").filter_map(|option| {
        let title = option.get("title").and_then(Value::as_str).map(str::to_owned);
        Some((option.get("const")?, title))
    });
    let option = |(value, title)| FieldOption { value: value_text(value).into_owned(), title };
    plain.chain(titled).map(option).collect()
}

fn approval_fields(approval: &DagApproval) -> Vec<FormField> {
    let [decision, reason] = own_names(approval);
    let option = |value: &str| FieldOption { value: value.to_owned(), title: None };
    let required = |name| approval.required.iter().flatten().any(|it| it == name);
    let decision = FormField {
        kind: FieldKind::Choice,
        optional: true,
        options: DECISIONS.iter().map(|it| option(it)).collect(),
        default: Some(json!(DECISIONS[0])),
        ..FormField::text(decision)
    };
    let reason = FormField {
        description: Some("Why it is rejected or pushed back".to_owned()),
        optional: true,
        ..FormField::text(reason)
    };
    let input = approval.input.iter().flatten().map(|name| FormField {
        description: required(name).then(|| "Needed to approve".to_owned()),
        optional: true,
        ..FormField::text(name)
    });
    [decision, reason].into_iter().chain(input).collect()
}

/// Names of the fields for the decision and for its reason, which no input has.
fn own_names(approval: &DagApproval) -> [String; 2] {
    ["decision", "reason"].map(|name| {
        let mut name = name.to_owned();
        while approval.input.iter().flatten().any(|it| *it == name) {
            name.push('_');
        }
        name
    })
}

/// Answer of a reply; none for a try that asks nobody. An empty reply is a plain yes.
pub(super) fn replied(state: &RunFold, key: NodeKey, reply: &UserReply) -> Option<StepAnswer> {
    let node = state.work()?.progress.plan().node(key.node)?;
    let form = StepForm::of(&node.action)?;
    let texts = reply.values.iter().map(|(name, it)| (name.clone(), value_text(it).into_owned()));
    // A field that was left blank was not given.
    let mut texts: std::collections::BTreeMap<_, _> =
        texts.filter(|(_, text)| !text.is_empty()).collect();
    let StepForm::Approval(approval) = form else {
        return Some(StepAnswer::Approve { values: FormValues::Texts(texts) });
    };
    let [decision, reason] = own_names(approval).map(|name| texts.remove(&name));
    let place = decision.and_then(|word| DECISIONS.iter().position(|it| **it == word));
    Some(match place.unwrap_or_default() {
        0 => StepAnswer::Approve { values: FormValues::Texts(texts) },
        1 => StepAnswer::Reject { reason },
        _ => StepAnswer::PushBack { values: FormValues::Texts(texts), reason },
    })
}
