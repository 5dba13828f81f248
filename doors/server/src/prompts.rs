//! Templates of prompts: the common jobs, as texts with places for arguments. Each names the tools that it
//! needs.

use hivekeep_ports::{FormField, UserQuestion};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rmcp::{
    ErrorData,
    model::{JsonObject, Prompt, PromptArgument},
};
use serde_json::Value;

/// Longest argument.
const MOST_BYTES: usize = 64 * 1024;

/// Bytes that a parameter has escaped in a URI.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// A prompt.
#[derive(Debug)]
pub struct PromptTemplate {
    /// Name by which clients ask for it.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Description of the prompt's purpose.
    pub description: &'static str,
    /// Arguments that a person fills in.
    pub parameters: &'static [PromptParameter],
    /// Tools that the text names.
    pub tools: &'static [&'static str],
    /// Documents that go before the text.
    pub attachments: &'static [PromptAttachment],
    /// The text, with `{{NAME}}` where a parameter goes.
    pub text: &'static str,
}

/// Document that is part of a prompt: read in the client's session, by its rules.
#[derive(Debug)]
pub struct PromptAttachment {
    /// Beginning of the document's URI, or the whole of it.
    pub before: &'static str,
    /// Parameter that the URI ends with, escaped; one that is left out attaches nothing. Behind an empty
    /// beginning it is the whole URI.
    pub parameter: Option<&'static str>,
}

/// An argument of a prompt.
#[derive(Debug)]
pub struct PromptParameter {
    /// Name, in the request as in the text's placeholder.
    pub name: &'static str,
    /// Description of the argument.
    pub description: &'static str,
    /// Kind of [`Names`](hivekeep_runtime::names::Names) that completes it.
    pub kind: Option<&'static str>,
    /// Text in its place when it is left out; without one it is required.
    pub otherwise: Option<&'static str>,
}

const fn required(
    name: &'static str,
    description: &'static str,
    kind: Option<&'static str>,
) -> PromptParameter {
    PromptParameter { name, description, kind, otherwise: None }
}

const fn optional(
    name: &'static str,
    description: &'static str,
    kind: Option<&'static str>,
    otherwise: &'static str,
) -> PromptParameter {
    PromptParameter { name, description, kind, otherwise: Some(otherwise) }
}

const CHECK: PromptParameter = optional(
    "check",
    "Command that tells whether the result is good, such as `cargo test`",
    None,
    "by the tests of the repository; find out how they are run",
);

/// All prompts.
pub const PROMPTS: &[PromptTemplate] = &[
    PromptTemplate {
        name: "run_swarm",
        title: "Run a swarm over tasks",
        description: "Run independent tasks side by side in forks of one machine and merge their commits",
        parameters: &[
            required("tasks", "The tasks, one a line", None),
            required("repository", "URL of the repository that they change", None),
            CHECK,
            optional("note", "Note of the vault that all tasks should know", Some("note"), "none"),
        ],
        tools: &["workspace_prepare", "swarm_run", "swarm_status", "exec", "git_diff"],
        attachments: &[PromptAttachment { before: "vault:///", parameter: Some("note") }],
        text: include_str!("prompts/run_swarm.md"),
    },
    PromptTemplate {
        name: "review_merge",
        title: "Review and merge forks",
        description: "Judge the commits of several workspaces and merge those that you choose",
        parameters: &[
            required("target", "Workspace that gets the commits", Some("workspace")),
            optional("sources", "Workspaces with the work", Some("workspace"), "all its forks"),
            CHECK,
        ],
        tools: &[
            "workspace_list",
            "git_status",
            "git_diff",
            "git_commit",
            "file_read",
            "snapshot",
            "workspace_merge",
            "exec",
        ],
        attachments: &[],
        text: include_str!("prompts/review_merge.md"),
    },
    PromptTemplate {
        name: "prepare_workspace",
        title: "Prepare a workspace for a repository",
        description: "Make a machine in which a repository builds and its tests run, ready to be forked",
        parameters: &[
            required("repository", "URL of the repository", None),
            required("name", "Name of the workspace: a-z, 0-9 and -", None),
            optional("purpose", "What it is for", None, "to work on the repository"),
        ],
        tools: &[
            "workspace_list",
            "workspace_info",
            "workspace_create",
            "git_clone",
            "file_read",
            "exec",
            "exec_background",
            "snapshot",
        ],
        attachments: &[],
        text: include_str!("prompts/prepare_workspace.md"),
    },
    PromptTemplate {
        name: "look_into_job",
        title: "Look into a failed job",
        description: "Find out why a command or a background job of a workspace failed",
        parameters: &[
            required("workspace", "Workspace that it ran in", Some("workspace")),
            optional("job", "Its job id, or the command", None, "the last one that failed"),
        ],
        tools: &[
            "exec_background",
            "exec",
            "workspace_info",
            "workspace_logs",
            "file_read",
            "snapshot",
        ],
        attachments: &[],
        text: include_str!("prompts/look_into_job.md"),
    },
    PromptTemplate {
        name: "lead_team",
        title: "Hand work to a team",
        description: "Split work among the members of a team, follow it, and merge what they did",
        parameters: &[
            required("team", "The team", Some("team")),
            required("work", "What is to be done", None),
        ],
        tools: &["team", "workspace_merge"],
        attachments: &[],
        text: include_str!("prompts/lead_team.md"),
    },
];

/// Error for a request of a prompt that is wrong.
pub fn invalid(text: String) -> ErrorData {
    ErrorData::invalid_params(text, None)
}

impl PromptTemplate {
    /// The prompt as it is listed.
    pub fn listed(&self) -> Prompt {
        let argument = |parameter: &PromptParameter| {
            PromptArgument::new(parameter.name)
                .with_description(parameter.description)
                .with_required(parameter.otherwise.is_none())
        };
        let arguments = self.parameters.iter().map(argument).collect();
        Prompt::new(self.name, Some(self.description), Some(arguments)).with_title(self.title)
    }

    /// Parameter of a name.
    pub fn parameter(&self, name: &str) -> Result<&PromptParameter, ErrorData> {
        let found = self.parameters.iter().find(|parameter| parameter.name == name);
        found.ok_or_else(|| invalid(format!("`{}` has no argument `{name:.80}`", self.name)))
    }

    /// The text with its arguments.
    pub fn filled(&self, arguments: &JsonObject) -> Result<String, ErrorData> {
        for name in arguments.keys() {
            self.parameter(name)?;
        }
        let mut text = String::new();
        let mut rest = self.text;
        // In one pass, so that an argument that looks like a place stays what it is.
        while let Some((before, name, behind)) = next_place(rest) {
            text.push_str(before);
            text.push_str(self.value(name, arguments)?);
            rest = behind;
        }
        text.push_str(rest);
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// A question for the arguments that are required and not given; none if none is.
    pub fn missing(&self, arguments: &JsonObject) -> Option<UserQuestion> {
        let given = |name: &str| {
            arguments.get(name).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
        };
        let missing =
            self.parameters.iter().filter(|one| one.otherwise.is_none() && !given(one.name));
        let field = |one: &PromptParameter| FormField {
            description: Some(one.description.to_owned()),
            ..FormField::text(one.name)
        };
        let fields: Vec<_> = missing.map(field).collect();
        let question = format!("What “{}” needs", self.title);
        (!fields.is_empty()).then(|| UserQuestion { question, fields, ..UserQuestion::default() })
    }

    fn value<'a>(&self, name: &str, arguments: &'a JsonObject) -> Result<&'a str, ErrorData> {
        let parameter = self.parameter(name)?;
        match arguments.get(name) {
            Some(Value::String(given)) if given.len() > MOST_BYTES => {
                Err(invalid(format!("`{name}` has more than {MOST_BYTES} bytes")))
            }
            Some(Value::String(given)) if !given.trim().is_empty() => Ok(given.trim_end()),
            Some(Value::String(_) | Value::Null) | None => parameter
                .otherwise
                .ok_or_else(|| invalid(format!("`{}` needs the argument `{name}`", self.name))),
            Some(_) => Err(invalid(format!("the argument `{name}` is not a text"))),
        }
    }
}

impl PromptAttachment {
    /// URI of the document; none where its parameter is left out.
    pub fn uri(&self, arguments: &JsonObject) -> Option<String> {
        let Self { before, parameter } = self;
        let Some(parameter) = parameter else { return Some((*before).to_owned()) };
        let value = arguments.get(*parameter)?.as_str()?.trim();
        match (value.is_empty(), before.is_empty()) {
            (true, _) => None,
            (false, true) => Some(value.to_owned()),
            (false, false) => Some(format!("{before}{}", utf8_percent_encode(value, ESCAPED))),
        }
    }
}

/// The text before the first place, the parameter that goes there, and the text behind it.
fn next_place(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (name, behind) = rest.split_once("}}")?;
    Some((before, name, behind))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn places(text: &str) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        let mut rest = text;
        while let Some((_, name, behind)) = next_place(rest) {
            names.insert(name);
            rest = behind;
        }
        names
    }

    /// Words of a text that stand as code.
    fn code(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    #[test]
    fn every_tool_that_a_prompt_names_exists_and_takes_what_it_names() {
        let catalogue = hivekeep_config::families::catalogue();
        for prompt in PROMPTS {
            let named: BTreeSet<_> =
                code(prompt.text).filter(|word| catalogue.find(word).is_some()).collect();
            assert_eq!(named, prompt.tools.iter().copied().collect(), "{}", prompt.name);
            let schemas: Vec<_> = prompt
                .tools
                .iter()
                .map(|tool| catalogue.find(tool).expect(tool))
                .map(|entry| {
                    (
                        entry.input_schema.to_string(),
                        entry.output_schema.as_ref().expect("an own tool").to_string(),
                    )
                })
                .collect();
            for word in code(prompt.text).filter(|word| !named.contains(word)) {
                let inside = |c: char| c.is_alphanumeric() || c == '_';
                let has = |schema: &String| schema.split(|c| !inside(c)).any(|part| part == word);
                let known = schemas.iter().any(|(input, output)| has(input) || has(output));
                let free = word.starts_with("{{") || ["golden", "ready"].contains(&word);
                assert!(known || free, "{}: no tool of it knows `{word}`", prompt.name);
            }
        }
    }

    #[test]
    fn every_parameter_has_a_place_and_every_place_a_parameter() {
        for prompt in PROMPTS {
            let named = prompt.parameters.iter().map(|parameter| parameter.name).collect();
            assert_eq!(places(prompt.text), named, "{}", prompt.name);
            assert!(prompt.text.len() < 2_048, "{} is long", prompt.name);
            assert!(!prompt.text.contains("{{ "), "{}", prompt.name);
        }
    }

    #[test]
    fn arguments_are_filled_in_once_and_judged() {
        let prompt = &PROMPTS[3];
        let filled = |arguments: Value| {
            let arguments = arguments.as_object().expect("an object").clone();
            prompt.filled(&arguments)
        };
        let text = filled(json!({ "workspace": "dev {{job}}", "job": "job_1\n" })).expect("filled");
        assert!(
            text.contains("workspace `dev {{job}}` failed") && text.contains("The job: job_1\n")
        );
        let text = filled(json!({ "workspace": "dev", "job": " " })).expect("filled");
        assert!(text.contains("The job: the last one that failed\n"), "{text}");
        for bad in [
            json!({}),
            json!({ "workspace": "" }),
            json!({ "workspace": 1 }),
            json!({ "workspace": "dev", "other": "x" }),
            json!({ "workspace": "x".repeat(MOST_BYTES + 1) }),
        ] {
            let refused = filled(bad.clone()).expect_err("refused");
            assert_eq!(refused.code, rmcp::model::ErrorCode::INVALID_PARAMS, "{bad}");
        }
    }

    #[test]
    fn an_attachment_is_named_by_its_parameter_or_left_out() {
        let note = PromptAttachment { before: "vault:///", parameter: Some("note") };
        let uri = |arguments: Value| note.uri(arguments.as_object().expect("an object"));
        assert_eq!(
            uri(json!({ "note": "a b/ü#.md" })),
            Some("vault:///a%20b/%C3%BC%23.md".to_owned())
        );
        assert_eq!(uri(json!({ "note": " " })), None);
        assert_eq!(uri(json!({})), None);
        let whole = PromptAttachment { before: "", parameter: Some("uri") };
        let arguments = JsonObject::from_iter([("uri".to_owned(), json!("a://b?c#d"))]);
        assert_eq!(whole.uri(&arguments), Some("a://b?c#d".to_owned()));
        let fixed = PromptAttachment { before: "a://b", parameter: None };
        assert_eq!(fixed.uri(&JsonObject::new()), Some("a://b".to_owned()));
    }
}
