//! Checks of files of DAGs, without a daemon.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use hivekeep_door_server::plain;
use hivekeep_manifest::{BASE_FILE, MAX_TEXT_BYTES, dag::NoticeClass, read_dag_over};
use serde_json::json;

use crate::cli::{CommandFailure, output};

/// Check files, and the YAML files of folders; no daemon is needed.
///
/// Exit code 1 when one of them has a problem.
#[derive(Debug, clap::Args)]
pub(super) struct ValidateArgs {
    /// Files and folders; `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Tell references, too, that the caller or the run gives values.
    #[arg(long)]
    show_unresolved: bool,
    /// Print a line of JSON for each file.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ValidateArgs) -> Result<(), CommandFailure> {
    let (mut files, mut valid, mut seen) = (Vec::new(), 0, 0);
    for given in &args.files {
        collect(given, &mut files, true)?;
    }
    for file in files {
        seen += 1;
        let (problems, notices) = match text_of(&file) {
            Ok(text) => match read_dag_over(base_beside(&file)?.as_deref(), &text, None) {
                Ok(dag) => {
                    let told = |class| args.show_unresolved || class == NoticeClass::Defect;
                    let notices = dag.notices.iter().filter(|notice| told(notice.class));
                    (Vec::new(), notices.map(|notice| notice.told.to_string()).collect())
                }
                Err(problems) => (problems.iter().map(ToString::to_string).collect(), Vec::new()),
            },
            Err(error) => (vec![error.to_string()], Vec::new()),
        };
        valid += usize::from(problems.is_empty());
        report(args, &file, &problems, &notices)?;
    }
    if !args.json && seen != 1 {
        output::text(&format!("{valid} of {seen} valid\n"))?;
    }
    if valid == seen { Ok(()) } else { Err(CommandFailure::Reported) }
}

fn report(
    args: &ValidateArgs,
    file: &Path,
    problems: &[String],
    notices: &[String],
) -> io::Result<()> {
    let shown = file.display().to_string();
    if args.json {
        let valid = problems.is_empty();
        let told =
            json!({ "file": shown, "valid": valid, "problems": problems, "notices": notices });
        return output::json_line(&told);
    }
    let mut text = String::new();
    for (what, told) in [("error", problems), ("notice", notices)] {
        for one in told {
            text.push_str(&format!("{}: {what}: {}\n", plain::line(&shown), plain::line(one)));
        }
    }
    if problems.is_empty()
        && args.files.len() == 1
        && args.files.first().is_some_and(|it| it == file)
    {
        text.push_str(&format!("{}: valid\n", plain::line(&shown)));
    }
    output::text(&text)
}

/// Files that are meant: one that is named, and below a folder those that end as YAML.
fn collect(path: &Path, files: &mut Vec<PathBuf>, is_named: bool) -> io::Result<()> {
    if path == Path::new("-") || !path.is_dir() {
        let is_yaml = path.extension().is_some_and(|it| it == "yaml" || it == "yml");
        let is_base = path.file_name().is_some_and(|name| name == BASE_FILE);
        if is_named || is_yaml && !is_base {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // A link may lead round in a circle.
        if !entry.file_type()?.is_symlink() {
            collect(&entry.path(), files, false)?;
        }
    }
    Ok(())
}

/// Text of the defaults beside a file; of standard input there are none.
///
/// # Errors
/// Those of reading it; for a file that is neither the owner's of the DAG nor root's.
pub(super) fn base_beside(file: &Path) -> io::Result<Option<String>> {
    let base = file.with_file_name(BASE_FILE);
    if file == Path::new("-") || !base.exists() {
        return Ok(None);
    }
    let owner = fs::metadata(&base)?.uid();
    if owner != 0 && owner != fs::metadata(file)?.uid() {
        let message = format!("{} belongs to another user: remove it", base.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    text_of(&base).map(Some)
}

fn text_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let most = MAX_TEXT_BYTES as u64 + 1;
    match file == Path::new("-") {
        true => io::stdin().take(most).read_to_string(&mut text)?,
        false => fs::File::open(file)?.take(most).read_to_string(&mut text)?,
    };
    Ok(text)
}
