//! Languages of files, by their names.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::Files;

/// Tell the language of a file by its name. The file is not looked at and need not exist.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LangDetect {
    /// Name or path of the file.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) path: String,
}

/// Language of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LangDetected {
    /// As it was asked.
    pub(crate) path: String,
    /// Id of the language; `plaintext` where the name tells none.
    pub(crate) language: &'static str,
}

/// List the languages that lang_detect knows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LangList {}

/// Languages.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LangListed {
    /// By id.
    pub(crate) languages: Vec<LangRow>,
}

/// A language.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LangRow {
    /// Id.
    pub(crate) id: &'static str,
    /// Name for people.
    pub(crate) name: &'static str,
    /// Ends of the names of its files, with the dot, in lower case.
    pub(crate) extensions: Vec<String>,
}

tools! { pub(crate) FAMILY: "lang" for service Files, singleton files;
    lang_detect: LangDetect => LangDetected = Files::lang_detect {
        title: "Tell a file's language", effect: Read,
    };
    lang_list: LangList => LangListed = Files::lang_list { title: "List languages", effect: Read };
}
