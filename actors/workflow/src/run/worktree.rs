//! Worktrees of a repository in the run's place: added for a branch, and removed, by the guest's git.

use hivekeep_kernel::ToolError;
use hivekeep_plan::resolve::NamedTexts;
use serde_json::{Map, Value};

use super::{RunSaga, failure::failed, node_try::NodeTry, script::quoted};

/// Beginning of both scripts: the repository's root, one at a time for all that share it, its worktrees.
const FOUND: &str = r#"
fail() { printf '%s\n' "$1" >&2; exit 1; }
common=$(git rev-parse --path-format=absolute --git-common-dir 2>/dev/null) || fail "there is no repository here"
if [ -z "$IN_LOCK" ] && command -v flock >/dev/null; then
  export IN_LOCK=1; exec flock "$common/hivekeep.lock" "$0" -c "$TEXT" "$0"
fi
root=$(git rev-parse --show-toplevel 2>/dev/null) || root=$common
primary=$(git worktree list --porcelain | sed -n '1s/^worktree //p')
of_branch() { git worktree list --porcelain | awk -v b="branch refs/heads/$1" '/^worktree /{w=substr($0,10)} $0==b{print w; exit}'; }
branch_at() { git worktree list --porcelain | awk -v p="$1" '/^worktree /{w=substr($0,10)} /^branch / && w==p{print substr($0,19); exit}'; }
is_known() { git worktree list --porcelain | grep -qxF "worktree $1"; }
absolute() { case "$1" in /*) a=$1;; *) a=$root/$1;; esac; realpath -m "$a" 2>/dev/null || readlink -f "$a" || printf '%s' "$a"; }
"#;

/// Adds a worktree, or finds the one of the branch where it is to be.
const ADD: &str = r#"
git check-ref-format --branch "$BRANCH" >/dev/null 2>&1 || fail "$BRANCH is not a name of a branch"
path=$(absolute "${AT:-$root.worktrees/$BRANCH}")
made=false new=false
if [ "$(of_branch "$BRANCH")" = "$path" ]; then
  [ -d "$path" ] || fail "the worktree $path is registered and its folder is gone: remove it first"
else
  if ! git show-ref -q --verify "refs/heads/$BRANCH"; then
    [ "$MAY_CREATE" = true ] || fail "there is no branch $BRANCH: set create_branch to true"
    from=HEAD
    if [ -n "$BASE" ]; then
      from=
      for name in "$BASE" "refs/heads/$BASE" "refs/remotes/origin/$BASE" "refs/tags/$BASE"; do
        case "$name" in refs/*) ;; *[!0-9a-f]*) continue;; esac
        from=$(git rev-parse -q --verify "$name^{commit}") && break
      done
      [ -n "$from" ] || fail "there is no revision $BASE"
    fi
    new=true
  fi
  mkdir -p "$(dirname "$path")" || exit 1
  if [ $new = true ]; then git worktree add -q -b "$BRANCH" "$path" "$from" >&2
  else git worktree add -q "$path" "$BRANCH" >&2; fi || exit 1
  made=true
fi
commit=$(git -C "$path" rev-parse HEAD) || exit 1
printf '%s\n' "path=$path" "branch=$BRANCH" "commit=$commit" "worktree_created=$made" "branch_created=$new"
"#;

/// Removes a worktree, and its branch where that is asked for.
const REMOVE: &str = r#"
path= gone=false deleted=false
[ -z "$AT" ] || path=$(absolute "$AT")
other=; [ -z "$BRANCH" ] || other=$(of_branch "$BRANCH")
if [ -n "$path" ] && [ -n "$BRANCH" ] && { is_known "$path" || [ -n "$other" ]; }; then
  [ "$path" = "$other" ] || fail "$path is not the worktree of $BRANCH"
fi
path=${path:-$other}
there=false
[ -z "$path" ] || ! is_known "$path" || there=true
[ $there = false ] || [ "$path" != "$primary" ] || fail "$path is the repository itself"
if [ $there = true ] && [ -d "$path" ] && [ "$FORCE" != true ]; then
  [ -z "$(git -C "$path" status --porcelain)" ] || fail "$path has changes: set force to true"
fi
if [ "$DELETE" = true ] && git show-ref -q --verify "refs/heads/$BRANCH"; then
  [ -z "$other" ] || [ "$other" = "$path" ] || fail "$BRANCH is checked out in $other"
  [ "$(branch_at "$primary")" != "$BRANCH" ] || fail "$BRANCH is checked out in $primary"
  [ "$FORCE_DELETE" = true ] || git merge-base --is-ancestor "refs/heads/$BRANCH" HEAD ||
    fail "$BRANCH is not merged: set force_delete_branch to true"
  deleted=true
fi
if [ $there = true ]; then
  if [ -d "$path" ]; then git worktree remove --force "$path" >&2 || exit 1; else git worktree prune >&2 || exit 1; fi
  gone=true
fi
[ $deleted = false ] || git branch -q -D "$BRANCH" >&2 || exit 1
printf '%s\n' "path=$path" "branch=$BRANCH" "worktree_removed=$gone" "branch_deleted=$deleted"
"#;

impl RunSaga {
    /// Adds or removes a worktree; the outputs that the action declares.
    ///
    /// # Errors
    /// `step_failed` with what stands against it.
    pub(super) async fn worktree(
        &self,
        of: &NodeTry<'_>,
        action: &str,
        with: &Map<String, Value>,
    ) -> Result<NamedTexts, ToolError> {
        let text = |name: &str| with.get(name).and_then(Value::as_str).unwrap_or_default();
        let is = |name: &str| with.get(name) == Some(&Value::Bool(true));
        let (does, own) = match action {
            "git.worktree.add" => (ADD, format!("dagu/{}/{}", of.state.begun.id, of.key.node.0)),
            "git.worktree.remove" => (REMOVE, String::new()),
            other => return Err(failed(format!("the action `{other:.80}` is unknown"))),
        };
        let is_own = text("branch").is_empty();
        let branch = if is_own { own.as_str() } else { text("branch") };
        if [branch, text("path"), text("base")].iter().any(|it| it.contains(['\n', '\0'])) {
            return Err(failed("a branch or a path has no line breaks".to_owned()));
        }
        let truth = |it: bool| if it { "true" } else { "false" };
        let values = [
            ("BRANCH", branch),
            ("AT", text("path")),
            ("BASE", text("base")),
            ("MAY_CREATE", truth(is_own || is("create_branch"))),
            ("FORCE", truth(is("force"))),
            ("DELETE", truth(is("delete_branch"))),
            ("FORCE_DELETE", truth(is("force_delete_branch"))),
            ("TEXT", &format!("{FOUND}{does}")),
        ];
        let values = values.map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        let script =
            format!("{}unset IN_LOCK\nexec /bin/sh -c \"$TEXT\" /bin/sh\n", values.concat());
        let said = self.helper(of, "git", script).await?;
        let outputs = said.lines().filter_map(|line| line.split_once('='));
        Ok(outputs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
