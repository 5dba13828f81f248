//! Form: several named values that a person fills in at once, as MCP's elicitation has them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Value that a form asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormField {
    /// Name of the value in the reply.
    #[schemars(regex(pattern = "^[A-Za-z][A-Za-z0-9_]{0,63}$"))]
    pub name: String,
    /// Label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub title: Option<String>,
    /// Explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 400))]
    pub description: Option<String>,
    /// True where it may be left out.
    #[serde(default)]
    pub optional: bool,
    /// Kind of value.
    #[serde(default)]
    pub kind: FieldKind,
    /// Values to choose from, of `choice` and `choices`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub options: Vec<FieldOption>,
    /// Value that it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// Kind of a form's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// A text.
    #[default]
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A single one of the options.
    Choice,
    /// Several of the options.
    Choices,
}

/// Option of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldOption {
    /// Value in the reply.
    #[schemars(length(min = 1, max = 200))]
    pub value: String,
    /// Text that is shown for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub title: Option<String>,
}

/// Longest text in a reply, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;

impl FormField {
    /// A text of this name, which has to be filled in.
    pub fn text(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            optional: false,
            kind: FieldKind::Text,
            options: Vec::new(),
            default: None,
        }
    }

    /// Checks that the field can be asked for: options where there have to be some, a default of its kind.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let chooses = matches!(self.kind, FieldKind::Choice | FieldKind::Choices);
        let values: BTreeSet<_> = self.options.iter().map(|option| &option.value).collect();
        match (&self.default, chooses) {
            _ if chooses && self.options.is_empty() => {
                Err(format!("`{name}` is a choice and has no options"))
            }
            _ if !chooses && !self.options.is_empty() => {
                Err(format!("`{name}` has options and is not a choice"))
            }
            _ if values.len() < self.options.len() => Err(format!("`{name}` has an option twice")),
            (Some(default), _) => self.takes(default).map_err(|why| format!("default: {why}")),
            (None, _) => Ok(()),
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Why it is none of this field.
    pub fn takes(&self, value: &Value) -> Result<(), String> {
        let known = |value: &Value| {
            value.as_str().is_some_and(|text| self.options.iter().any(|one| one.value == text))
        };
        let distinct = |list: &[Value]| {
            list.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>().len() == list.len()
        };
        let (fits, what) = match (self.kind, value) {
            (FieldKind::Text, it) => (
                it.as_str().is_some_and(|text| text.len() <= MAX_TEXT_BYTES),
                "a text of at most 64 KiB",
            ),
            (FieldKind::Integer, it) => (it.is_i64() || it.is_u64(), "a whole number"),
            (FieldKind::Number, it) => (it.is_number(), "a number"),
            (FieldKind::Boolean, it) => (it.is_boolean(), "true or false"),
            (FieldKind::Choice, it) => (known(it), "one of its options"),
            (FieldKind::Choices, it) => {
                let fits =
                    it.as_array().is_some_and(|list| list.iter().all(known) && distinct(list));
                (fits, "a list of its options")
            }
        };
        if fits { Ok(()) } else { Err(format!("`{}` is not {what}", self.name)) }
    }

    /// The field in the restricted JSON Schema of MCP's forms.
    fn schema(&self) -> Value {
        let titled = self.options.iter().any(|option| option.title.is_some());
        let values: Vec<_> = self.options.iter().map(|option| option.value.as_str()).collect();
        let pairs = || -> Vec<Value> {
            let pair = |one: &FieldOption| json!({ "const": one.value, "title": one.title.as_ref().unwrap_or(&one.value) });
            self.options.iter().map(pair).collect()
        };
        let mut schema = match (self.kind, titled) {
            (FieldKind::Text, _) => json!({ "type": "string" }),
            (FieldKind::Integer, _) => json!({ "type": "integer" }),
            (FieldKind::Number, _) => json!({ "type": "number" }),
            (FieldKind::Boolean, _) => json!({ "type": "boolean" }),
            (FieldKind::Choice, false) => json!({ "type": "string", "enum": values }),
            (FieldKind::Choice, true) => json!({ "type": "string", "oneOf": pairs() }),
            (FieldKind::Choices, false) => {
                json!({ "type": "array", "items": { "type": "string", "enum": values } })
            }
            (FieldKind::Choices, true) => json!({ "type": "array", "items": { "anyOf": pairs() } }),
        };
        let told = [
            ("title", self.title.clone().map(Value::from)),
            ("description", self.description.clone().map(Value::from)),
            ("default", self.default.clone()),
        ];
        for (key, value) in told {
            if let Some(value) = value {
                schema[key] = value;
            }
        }
        schema
    }
}

/// The form of these fields in the restricted JSON Schema of MCP.
pub fn form_schema(fields: &[FormField]) -> Value {
    let properties: Map<_, _> =
        fields.iter().map(|field| (field.name.clone(), field.schema())).collect();
    let required: Vec<_> =
        fields.iter().filter(|field| !field.optional).map(|field| &field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Checks the values of a reply against the fields.
///
/// # Errors
/// The first that is missing, unknown or of another kind.
pub fn form_takes(fields: &[FormField], values: &Map<String, Value>) -> Result<(), String> {
    for field in fields {
        match values.get(&field.name) {
            Some(value) => field.takes(value)?,
            None if field.optional => {}
            None => return Err(format!("`{}` is missing", field.name)),
        }
    }
    match values.keys().find(|name| fields.iter().all(|field| field.name != **name)) {
        Some(unknown) => Err(format!("`{unknown:.80}` is not a field")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: FieldKind, options: &[&str], default: Option<Value>) -> FormField {
        let option = |value: &&str| FieldOption { value: (*value).to_owned(), title: None };
        let options = options.iter().map(option).collect();
        FormField { kind, options, default, ..FormField::text("it") }
    }

    #[test]
    fn a_value_is_of_its_kind_or_refused() {
        use FieldKind::{Boolean, Choice, Choices, Integer, Number, Text};
        for (kind, good, bad) in [
            (Text, json!("x"), json!(1)),
            (Integer, json!(-3), json!(1.5)),
            (Number, json!(1.5), json!("1.5")),
            (Boolean, json!(false), json!("false")),
            (Choice, json!("a"), json!("c")),
            (Choices, json!(["b", "a"]), json!(["a", "a"])),
        ] {
            let options: &[_] = if matches!(kind, Choice | Choices) { &["a", "b"] } else { &[] };
            let one = field(kind, options, Some(good.clone()));
            one.check().expect("it can be asked for");
            let fields = [one];
            let values = |value: Value| Map::from_iter([("it".to_owned(), value)]);
            assert_eq!(form_takes(&fields, &values(good)), Ok(()), "{kind:?}");
            assert!(form_takes(&fields, &values(bad.clone())).is_err(), "{kind:?}");
            assert!(field(kind, options, Some(bad)).check().is_err(), "{kind:?}");
            assert!(form_takes(&fields, &Map::new()).is_err(), "it is missing");
            let extra = Map::from_iter([("other".to_owned(), json!(1))]);
            let optional = [FormField { optional: true, ..fields[0].clone() }];
            assert_eq!(form_takes(&optional, &Map::new()), Ok(()));
            assert!(form_takes(&optional, &extra).is_err(), "it is unknown");
        }
        assert!(field(Choice, &[], None).check().is_err());
        assert!(field(Text, &["a"], None).check().is_err());
        assert!(field(Choice, &["a", "a"], None).check().is_err());
    }

    #[test]
    fn a_text_is_bounded_and_what_is_told_is_in_the_schema() {
        let text = FormField::text("it");
        assert_eq!(text.takes(&"x".repeat(64 * 1024).into()), Ok(()));
        assert!(text.takes(&"x".repeat(64 * 1024 + 1).into()).is_err());
        let (title, description) = (Some("T".to_owned()), Some("D".to_owned()));
        let told = FormField { title, description, optional: true, ..text };
        let expected = json!({ "type": "object", "required": [],
            "properties": { "it": { "type": "string", "title": "T", "description": "D" } } });
        assert_eq!(form_schema(&[told]), expected);
        for (kind, options, schema) in [
            (FieldKind::Integer, &[][..], json!({ "type": "integer" })),
            (FieldKind::Number, &[], json!({ "type": "number" })),
            (FieldKind::Boolean, &[], json!({ "type": "boolean" })),
            (FieldKind::Choice, &["a"], json!({ "type": "string", "enum": ["a"] })),
            (
                FieldKind::Choices,
                &["a"],
                json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } }),
            ),
        ] {
            assert_eq!(field(kind, options, None).schema(), schema);
        }
        let mut one = field(FieldKind::Choice, &["a"], None);
        one.options[0].title = Some("A".to_owned());
        let pairs = json!([{ "const": "a", "title": "A" }]);
        assert_eq!(one.schema(), json!({ "type": "string", "oneOf": pairs }));
        assert!(one.takes(&json!("A")).is_err() && one.takes(&json!("a")).is_ok());
        assert!(field(FieldKind::Integer, &[], None).takes(&json!(u64::MAX)).is_ok());
    }

    #[test]
    fn options_with_titles_are_written_as_pairs() {
        let mut one = field(FieldKind::Choices, &["a", "b"], Some(json!(["a"])));
        one.options[0].title = Some("First".to_owned());
        let expected = json!({ "type": "object", "required": ["it"], "properties": { "it": {
            "type": "array", "default": ["a"],
            "items": { "anyOf": [{ "const": "a", "title": "First" }, { "const": "b", "title": "b" }] } } } });
        assert_eq!(form_schema(&[one]), expected);
    }
}
