//! Programs that may run in place of an agent's turns: what each needs is data, a file each in `programs/`, or the
//! manifest's own `command`.

mod place;

use std::collections::BTreeMap;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::agent::{AgentCommand, AgentRuntime, ProgramProtocol};
use hivekeep_ports::{ModelApi, ModelSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::place::ProgramPlace;
use crate::codes;

/// Port of the machine's loopback that the gateway of a program listens on.
pub(crate) const GATEWAY_PORT: u16 = 8790;
/// Program of the guest's daemon in a machine; a virtual machine's has no other name than its first process.
const GUEST: &str = "/run/hivekeep/guest";
/// Stands in place of a key: the provider's own stays with the daemon.
const PLACEHOLDER: &str = "placeholder";
/// Longest text of one argument or variable: the kernel takes no more than 128 KiB.
const MAX_WORD_BYTES: usize = 120 * 1024;
/// MCP server of a program that speaks the Agent Client Protocol, which is told of it in its session.
const MCP_COMMAND: &str = "{mcp} mcp {port}";

const SHIPPED: [(&str, &str); 9] = [
    ("claude", include_str!("../programs/claude.toml")),
    ("codex", include_str!("../programs/codex.toml")),
    ("gemini", include_str!("../programs/gemini.toml")),
    ("gemini-acp", include_str!("../programs/gemini-acp.toml")),
    ("opencode", include_str!("../programs/opencode.toml")),
    ("opencode-acp", include_str!("../programs/opencode-acp.toml")),
    ("pi", include_str!("../programs/pi.toml")),
    ("qwen", include_str!("../programs/qwen.toml")),
    ("qwen-acp", include_str!("../programs/qwen-acp.toml")),
];

/// Program as its file describes it. In its texts stand `{url}` of the gateway, its `{port}`, `{key}`, `{model}` and
/// `{prompt}`; `{tools}` for the text that leads it to an MCP server; and `{mcp}` for the program that is one, with the
/// arguments `mcp` and the port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramFile {
    /// API that it speaks to its model.
    api: ModelApi,
    /// True for one that ends when an answer is cut, and so is given none before it is whole.
    #[serde(default)]
    whole: bool,
    argv: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Files of its home. One without a text is not written.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Text for `{tools}`, where the agent has tools.
    #[serde(default)]
    tools: String,
    #[serde(default)]
    output: ProgramOutput,
    /// Memory of its machine in MiB, where the agent asks for none and the machine would have less.
    memory_mb: Option<u64>,
    /// True if it speaks the Agent Client Protocol over its input and output; it is prompted by that.
    #[serde(default)]
    acp: bool,
}

/// Where the result stands in what a program writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramOutput {
    /// Place of the text in a line of JSON, the last that has one; without it the result is the output itself.
    text: Option<String>,
    /// Texts that such a line has at other places.
    #[serde(default)]
    only: BTreeMap<String, String>,
}

/// Program of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgramPlan {
    pub(crate) name: String,
    pub(crate) api: ModelApi,
    #[serde(default)]
    pub(crate) whole: bool,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    #[serde(default)]
    tools: String,
    output: ProgramOutput,
    #[serde(default)]
    pub(crate) memory_mb: Option<u64>,
    #[serde(default)]
    pub(crate) acp: bool,
    /// Provider that is asked, and the name that it has for the model. Chosen once, for the bytes of a request name it.
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Machine of others that it works in, in place of one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<ProgramPlace>,
}

impl ProgramPlan {
    /// Program that a manifest names; `None` for an agent of turns.
    ///
    /// # Errors
    /// `program_unknown`.
    pub(crate) fn of(runtime: &AgentRuntime) -> Result<Option<Self>, ToolError> {
        let (name, file) = match (&runtime.program, &runtime.command) {
            (Some(name), _) => (name.clone(), shipped(name)?),
            (None, Some(command)) => ("command".to_owned(), ProgramFile::of(command)),
            (None, None) => return Ok(None),
        };
        let ProgramFile { api, whole, argv, env, files, tools, output, memory_mb, acp } = file;
        let tools = if acp { MCP_COMMAND.to_owned() } else { tools };
        let (provider, model) = Default::default();
        Ok(Some(Self {
            name,
            api,
            whole,
            argv,
            env,
            files,
            tools,
            output,
            memory_mb,
            acp,
            provider,
            model,
            place: None,
        }))
    }

    /// Port of the machine's loopback that its gateway listens on.
    pub(crate) fn port(&self) -> u16 {
        self.place.as_ref().map_or(GATEWAY_PORT, |place| place.port)
    }

    /// Whether it can be told of an MCP server.
    pub(crate) fn takes_tools(&self) -> bool {
        let mut texts = self.argv.iter().chain(self.env.values()).chain([&self.tools]);
        texts.any(|text| text.contains("{mcp}"))
    }

    /// The same for an agent that has no tools.
    #[must_use]
    pub(crate) fn without_tools(self) -> Self {
        Self { tools: String::new(), ..self }
    }

    /// Words of the command that is an MCP server, for a program that speaks the Agent Client Protocol and has tools.
    pub(crate) fn mcp_command(&self) -> Option<Vec<String>> {
        let port = self.port().to_string();
        let command = filled(&self.tools, &[("{mcp}", GUEST), ("{port}", &port)]);
        let words = || command.split(' ').map(str::to_owned).collect();
        (self.acp && !command.is_empty()).then(words)
    }

    /// Chooses the first of a model's sources whose provider speaks the program's API.
    ///
    /// # Errors
    /// `program_model_unfit`.
    pub(crate) fn choose(
        &mut self,
        sources: &[ModelSource],
        speaks: impl Fn(&str, ModelApi) -> bool,
    ) -> Result<(), ToolError> {
        let fits = |source: &&ModelSource| speaks(&source.provider, self.api);
        let Some(source) = sources.iter().find(fits) else {
            let names: Vec<_> = sources.iter().map(ToString::to_string).collect();
            let message = format!(
                "`{}` speaks the API `{}`, and the provider of {} does not",
                self.name,
                self.api.word(),
                names.join(", "),
            );
            return Err(ToolError::new(Layer::Actor, codes::PROGRAM_MODEL_UNFIT, message)
                .next("name a model in `spec.runtime.model` whose provider is of that kind"));
        };
        (self.provider, self.model) = (source.provider.clone(), source.model.clone());
        Ok(())
    }

    /// Script for `/bin/sh` that writes the program's files and becomes the program, and its variables.
    ///
    /// # Errors
    /// `agent_prompt_invalid` for a prompt that no program takes.
    pub(crate) fn script(
        &self,
        prompt: &str,
    ) -> Result<(String, BTreeMap<String, String>), ToolError> {
        if prompt.len() > MAX_WORD_BYTES || prompt.contains('\0') {
            let message = format!(
                "the prompt of a program has at most {MAX_WORD_BYTES} bytes and no NUL: it has {}",
                prompt.len()
            );
            return Err(ToolError::new(Layer::Actor, codes::AGENT_PROMPT_INVALID, message)
                .next("write what is long into a file, and name that in the instruction"));
        }
        // No program takes it for an option.
        let prompt = if prompt.starts_with('-') { format!(" {prompt}") } else { prompt.to_owned() };
        let port = self.port().to_string();
        let url = format!("http://127.0.0.1:{port}");
        let values = [
            ("{url}", url.as_str()),
            ("{port}", port.as_str()),
            ("{mcp}", GUEST),
            ("{key}", PLACEHOLDER),
            ("{model}", &self.model),
            ("{prompt}", &prompt),
        ];
        let tools = filled(&self.tools, &values);
        let values = values.into_iter().chain([("{tools}", tools.as_str())]).collect::<Vec<_>>();
        let mut script = "export HOME=\"${HOME:-/root}\"\n".to_owned();
        if let Some(ProgramPlace { folder, .. }) = &self.place {
            let folder = quoted(folder);
            script += &format!("mkdir -p \"$HOME\" {folder} && cd {folder} || exit\n");
        }
        if self.takes_tools() {
            script += &format!("[ -e {GUEST} ] || ln -s /proc/1/exe {GUEST}\n");
        }
        for (path, text) in &self.files {
            let text = filled(text, &values);
            if text.is_empty() {
                continue;
            }
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let (folder, path, text) = (quoted(folder), quoted(path), quoted(&text));
            script += &format!(
                "mkdir -p \"$HOME/\"{folder} && printf %s {text} > \"$HOME/\"{path} || exit\n"
            );
        }
        script += "exec";
        for word in &self.argv {
            script += " ";
            script += &quoted(&filled(word, &values));
        }
        for word in self.place.iter().flat_map(|place| &place.arguments) {
            script += " ";
            script += &quoted(word);
        }
        let own = self.env.iter().map(|(name, value)| (name.clone(), filled(value, &values)));
        let given = self.place.iter().flat_map(|place| place.env.clone());
        Ok((script, given.chain(own).collect()))
    }

    /// Result in what the program wrote.
    pub(crate) fn result(&self, output: &str) -> String {
        let ProgramOutput { text: Some(place), only } = &self.output else {
            return output.trim().to_owned();
        };
        let text = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            let at = |place: &str| line.pointer(place).and_then(Value::as_str);
            let fits = only.iter().all(|(place, word)| at(place) == Some(word));
            fits.then(|| at(place).map(str::to_owned)).flatten()
        };
        let found = output.lines().rev().find_map(text);
        found.unwrap_or_else(|| output.trim().to_owned())
    }
}

impl ProgramFile {
    fn of(command: &AgentCommand) -> Self {
        let AgentCommand { argv, env, wire, protocol } = command.clone();
        let env = env.unwrap_or_default();
        let (whole, files, tools, output, memory_mb) = Default::default();
        let acp = protocol == Some(ProgramProtocol::Acp);
        Self { api: wire.api(), whole, argv, env, files, tools, output, memory_mb, acp }
    }
}

fn shipped(name: &str) -> Result<ProgramFile, ToolError> {
    let Some((_, text)) = SHIPPED.iter().find(|(is, _)| *is == name) else {
        let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let message = format!("no program `{name:.80}` is known");
        return Err(ToolError::new(Layer::Actor, codes::PROGRAM_UNKNOWN, message)
            .next(format!("name one of {}, or give `spec.runtime.command`", names.join(", "))));
    };
    toml::from_str(text).map_err(|error| ToolError::internal(format!("program `{name}`: {error}")))
}

/// Text with its values, each put in once: what stands in a value is never looked at.
fn filled(text: &str, values: &[(&str, &str)]) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('{') {
        out += &rest[..at];
        rest = &rest[at..];
        match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                out += value;
                rest = &rest[name.len()..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

/// A word of a shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> ProgramPlan {
        let runtime: AgentRuntime =
            serde_json::from_value(serde_json::json!({ "program": name })).expect("a runtime");
        let mut plan = ProgramPlan::of(&runtime).expect(name).expect("a program");
        plan.model = "some-model".to_owned();
        plan
    }

    #[test]
    fn every_shipped_program_is_told_of_the_gateway_the_model_and_the_prompt() {
        for (name, _) in SHIPPED.iter().filter(|(name, _)| plan(name).acp) {
            let command = plan(name).mcp_command().expect(name);
            assert_eq!(command, ["/run/hivekeep/guest", "mcp", "8790"], "{name}");
            assert_eq!(plan(name).without_tools().mcp_command(), None, "{name}");
            assert!(plan(name).whole, "{name}");
        }
        for (name, _) in SHIPPED.iter().filter(|(name, _)| !plan(name).acp) {
            let prompt = "it's {model} \"$(rm -rf /)\"\n";
            let (script, env) = plan(name).script(prompt).expect(name);
            let all = format!("{script}{env:?}");
            assert!(all.contains("http://127.0.0.1:8790"), "{name}");
            assert!(all.contains("some-model"), "{name}");
            assert!(script.contains("'it'\\''s {model} \"$(rm -rf /)\"\n'"), "{name}: {script}");
            assert!(!script.contains("{url}") && !all.contains("{key}"), "{name}");
            assert!(!all.contains("{tools}") && !all.contains("{mcp}"), "{name}");
            let told = all.contains("/run/hivekeep/guest") && all.contains("8790");
            assert_eq!(told && plan(name).takes_tools(), *name != "pi", "{name}");
            let (script, env) = plan(name).without_tools().script(prompt).expect(name);
            assert!(!format!("{script}{env:?}").contains("hivekeep/guest"), "{name}");
        }
        let unknown = serde_json::json!({ "program": "emacs" });
        let unknown: AgentRuntime = serde_json::from_value(unknown).expect("a runtime");
        assert_eq!(ProgramPlan::of(&unknown).expect_err("unknown").code, "program_unknown");
    }

    /// A shell makes of a script what was written.
    #[test]
    fn a_shell_runs_the_words_as_they_are_and_finds_the_files() {
        let home = tempfile::tempdir().expect("a folder");
        let prompt = "a 'b' \"c\" $HOME `d` {url} \\ \n!";
        let mut plan = plan("gemini");
        plan.argv = [
            "sh",
            "-c",
            "cat $HOME/.gemini/settings.json; printf '|%s' \"$@\"",
            "sh",
            "{prompt}",
            "",
        ]
        .map(str::to_owned)
        .to_vec();
        let (script, env) = plan.script(prompt).expect("a script");
        let ran = std::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .envs(env)
            .env("HOME", home.path())
            .output()
            .expect("runs");
        let wrote = String::from_utf8_lossy(&ran.stdout);
        assert!(wrote.starts_with("{\"security\""), "{wrote}");
        assert!(wrote.ends_with(&format!("|{prompt}|")), "{wrote}");
        assert!(plan.script("--help").expect("a script").0.contains("' --help'"));
        assert!(plan.script(&"x".repeat(MAX_WORD_BYTES + 1)).is_err());
    }

    #[test]
    fn the_result_is_the_last_that_the_program_says() {
        let lines = "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"no\"}}\n\
            {\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"yes\"}}\n\
            {\"type\":\"item.completed\",\"item\":{\"type\":\"reasoning\",\"text\":\"hm\"}}\nbye";
        assert_eq!(plan("codex").result(lines), "yes");
        assert_eq!(plan("codex").result(" killed\n"), "killed");
        assert_eq!(plan("qwen").result(" killed\n"), "killed");
    }
}
