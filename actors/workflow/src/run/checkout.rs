//! Checkouts of a repository in the run's place, by the guest's git and with what the step itself gives for its server.

use hivekeep_kernel::ToolError;
use hivekeep_plan::resolve::{NamedTexts, value_text};
use serde_json::{Map, Value};

use super::{RunSaga, failure::failed, node_try::NodeTry, script::quoted};

/// Clones a repository, or brings a checkout of it to a revision.
const CHECKOUT: &str = r#"
fail() { printf '%s\n' "$1" >&2; exit 1; }
export GIT_TERMINAL_PROMPT=0
[ -z "$KEY" ] || export GIT_SSH_COMMAND="ssh -o IdentitiesOnly=yes -o BatchMode=yes -i '$KEY'"
of_server() { git -C "$AT" -c credential.helper= \
  -c 'credential.helper=!f() { printf "username=%s\npassword=%s\n" "$NAME" "$WORD"; }; f' "$@" >&2; }
fetch() { of_server fetch -q ${DEPTH:+"--depth=$DEPTH"} origin "$1" 2>/dev/null; }
cloned=false before=
if [ -e "$AT/.git" ]; then
  is=$(git -C "$AT" remote get-url origin) || fail "$AT is a repository without the remote origin"
  [ "$is" = "$REPOSITORY" ] || fail "$AT is a checkout of another repository"
  [ "$FORCE" = true ] || [ -z "$(git -C "$AT" status --porcelain -uno)" ] || fail "$AT has changes: set force to true"
  before=$(git -C "$AT" rev-parse -q --verify HEAD)
else
  [ ! -e "$AT" ] || [ -z "$(ls -A "$AT")" ] || fail "$AT is there, and no repository"
  git init -q "$AT" >&2 && git -C "$AT" remote add origin "$REPOSITORY" || exit 1
  cloned=true
fi
if fetch "${REF:-HEAD}"; then from=FETCH_HEAD
else
  of_server fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*' || exit 1
  from=${REF#origin/}
  git -C "$AT" rev-parse -q --verify "refs/remotes/origin/$from" >/dev/null && from=refs/remotes/origin/$from
fi
commit=$(git -C "$AT" rev-parse -q --verify "$from^{commit}") || fail "there is no revision $REF"
[ "$FORCE" = true ] && force=--force || force=
git -C "$AT" checkout -q $force --detach "$commit" >&2 || exit 1
[ "$before" = "$commit" ] && changed=false || changed=true
path=$(cd "$AT" && pwd) || exit 1
printf '%s\n' operation=checkout "path=$path" "ref=$REF" "commit=$commit" "cloned=$cloned" "changed=$changed"
"#;

impl RunSaga {
    /// Checks a repository out, for what the action tells of it.
    ///
    /// # Errors
    /// `step_failed` with what stands against it.
    pub(super) async fn checkout(
        &self,
        of: &NodeTry<'_>,
        with: &Map<String, Value>,
    ) -> Result<NamedTexts, ToolError> {
        let text = |name: &str| with.get(name).map(value_text).unwrap_or_default().into_owned();
        if !text("ssh_passphrase").is_empty() {
            let message = "`with.ssh_passphrase` is not here: give a key without one";
            return Err(failed(message.to_owned()));
        }
        let (token, depth) = (text("token"), text("depth"));
        let name = match (token.is_empty(), text("username")) {
            (false, _) => "x-access-token".to_owned(),
            (true, name) if name.is_empty() => "git".to_owned(),
            (true, name) => name,
        };
        let values = [
            ("REPOSITORY", text("repository")),
            ("AT", text("path")),
            ("REF", text("ref")),
            ("DEPTH", if depth == "0" { String::new() } else { depth }),
            ("FORCE", text("force")),
            ("KEY", text("ssh_key_path")),
            ("NAME", name),
            ("WORD", if token.is_empty() { text("password") } else { token }),
        ];
        let is_wrong =
            |(_, it): &&(&str, String)| it.starts_with('-') || it.contains(['\n', '\0', '\'']);
        if let Some((name, _)) = values.iter().take(6).find(is_wrong) {
            let name = name.to_lowercase();
            return Err(failed(format!(
                "`{name}` begins with `-`, or has a quote or a line break"
            )));
        }
        let values = values.map(|(name, value)| format!("export {name}={}\n", quoted(&value)));
        let said = self.helper(of, "git", format!("{}{CHECKOUT}", values.concat())).await?;
        let outputs = said.lines().filter_map(|line| line.split_once('='));
        Ok(outputs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
