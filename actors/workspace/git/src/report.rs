//! Parser of `git push --porcelain`.

use crate::api::PushedRef;

/// Parses the refs of a push, in git's order.
pub(super) fn read(stdout: &str) -> Vec<PushedRef> {
    stdout.lines().filter_map(line).collect()
}

/// Parses one line: `flag TAB from:to TAB summary (reason)`.
fn line(line: &str) -> Option<PushedRef> {
    let mut fields = line.splitn(3, '\t');
    let (flag, refs, summary) = (fields.next()?, fields.next()?, fields.next()?);
    let status = match flag {
        " " => "fast_forward",
        "+" => "forced",
        "-" => "deleted",
        "*" => "new",
        "=" => "up_to_date",
        "!" => "rejected",
        _ => return None,
    };
    let to = refs.rsplit_once(':').map_or(refs, |(_, to)| to);
    let reason = match flag {
        "!" => {
            Some(summary.rsplit_once(" (").map_or(summary, |(_, why)| why.trim_end_matches(')')))
        }
        _ => None,
    };
    Some(PushedRef {
        to: to.to_owned(),
        status: status.to_owned(),
        summary: summary.to_owned(),
        reason: reason.map(str::to_owned),
    })
}

/// True if git itself refused the ref because history would be lost.
pub(super) fn is_behind(pushed: &PushedRef) -> bool {
    let why = pushed.reason.as_deref().unwrap_or_default();
    pushed.summary.starts_with("[rejected]")
        && matches!(why, "non-fast-forward" | "fetch first" | "needs force" | "stale info")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_read() {
        let text = "To https://example.org/r\n \trefs/heads/a:refs/heads/a\t1..2\n\
                    +\trefs/heads/b:refs/heads/b\t1...2 (forced update)\n\
                    *\trefs/heads/c:refs/heads/c\t[new branch]\n\
                    =\trefs/heads/d:refs/heads/d\t[up to date]\n\
                    !\trefs/heads/e:refs/heads/e\t[rejected] (non-fast-forward)\n\
                    !\trefs/heads/f:refs/heads/f\t[rejected] (fetch first)\n\
                    !\trefs/heads/g:refs/heads/g\t[remote rejected] (pre-receive hook declined)\nDone\n";
        let refs = read(text);
        let seen: Vec<_> =
            refs.iter().map(|it| (it.to.as_str(), it.status.as_str(), is_behind(it))).collect();
        assert_eq!(
            seen,
            [
                ("refs/heads/a", "fast_forward", false),
                ("refs/heads/b", "forced", false),
                ("refs/heads/c", "new", false),
                ("refs/heads/d", "up_to_date", false),
                ("refs/heads/e", "rejected", true),
                ("refs/heads/f", "rejected", true),
                ("refs/heads/g", "rejected", false),
            ]
        );
        assert_eq!(refs[6].reason.as_deref(), Some("pre-receive hook declined"));
        // A hook that prints git's words is still a hook.
        let hook = read("!\ta:b\t[remote rejected] (non-fast-forward)\n");
        assert!(!is_behind(&hook[0]));
        assert!(read("").is_empty() && read("?\ta\tb\nx\n").is_empty());
    }
}
