//! Table of languages by the names of their files.

/// Language: id, name for people, extensions of its files.
pub(crate) type Language = (&'static str, &'static str, &'static [&'static str]);

/// Languages by id.
pub(crate) const LANGUAGES: [Language; 24] = [
    ("c", "C", &["c", "h"]),
    ("cpp", "C++", &["cpp", "hpp", "cc", "cxx"]),
    ("csharp", "C#", &["cs"]),
    ("css", "CSS", &["css"]),
    ("dockerfile", "Dockerfile", &[]),
    ("go", "Go", &["go"]),
    ("html", "HTML", &["html", "htm"]),
    ("java", "Java", &["java"]),
    ("javascript", "JavaScript", &["js", "jsx"]),
    ("json", "JSON", &["json"]),
    ("kotlin", "Kotlin", &["kt", "kts"]),
    ("markdown", "Markdown", &["md", "markdown"]),
    ("php", "PHP", &["php"]),
    ("plaintext", "Plain text", &["txt"]),
    ("python", "Python", &["py"]),
    ("ruby", "Ruby", &["rb"]),
    ("rust", "Rust", &["rs"]),
    ("scss", "SCSS", &["scss"]),
    ("shell", "Shell", &["sh", "bash"]),
    ("sql", "SQL", &["sql"]),
    ("swift", "Swift", &["swift"]),
    ("typescript", "TypeScript", &["ts", "tsx"]),
    ("xml", "XML", &["xml"]),
    ("yaml", "YAML", &["yaml", "yml"]),
];

/// Language of a file by its name: by the last extension, in any case, or the name `Dockerfile`.
pub(crate) fn detect(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "Dockerfile" {
        return "dockerfile";
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = |(_, _, extensions): &&Language| {
        extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
    };
    LANGUAGES.iter().find(known).map_or("plaintext", |(id, _, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_languages() {
        for (path, language) in [
            ("src/a.rs", "rust"),
            ("a.TSX", "typescript"),
            ("x/Dockerfile", "dockerfile"),
            ("a.tar.yml", "yaml"),
            ("Makefile", "plaintext"),
            ("a.", "plaintext"),
            ("c", "plaintext"),
            ("a.rs/readme", "plaintext"),
            (".bash", "shell"),
        ] {
            assert_eq!(detect(path), language, "{path}");
        }
        assert!(LANGUAGES.is_sorted_by_key(|(id, _, _)| id));
    }
}
