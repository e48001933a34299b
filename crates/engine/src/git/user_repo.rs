//! Reads the user's own repository: which commit to start from, what is not committed, where it is pushed to.
//!
//! Its config is the user's, but reading must still start no hook, monitor, filter or text converter. The only
//! function that writes here is `publish_into`, beside the push.

use std::path::{Path, PathBuf};

use ralph_core::secret::Secret;
use serde::{Deserialize, Serialize};

use super::raw_diff::lossy;
use super::subprocess::{GitCommand, GitOverflow, GitProgram};
use super::validated_names::tree_path;
use super::{Error, ObjectDb, ObjectFormat, Sha};

/// A work tree of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRepo {
    pub(crate) odb: ObjectDb,
    pub(crate) top: PathBuf,
    pub(crate) common: PathBuf,
    pub(crate) format: ObjectFormat,
    pub(crate) shallow: bool,
    config: Vec<(String, String)>,
}

/// The commit a run starts from and the branch its pull request targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseCommit {
    /// `None` if no branch is checked out.
    pub branch: Option<String>,
    pub sha: Sha,
    pub from: BaseSource,
}

/// How the base differs from the branch of the same name at the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDifference {
    /// The branch at the remote, such as `origin/main`.
    pub name: String,
    /// How many commits only the base has, and only the remote; `None` if the remote has no such branch.
    pub commits: Option<(u64, u64)>,
}

impl RemoteDifference {
    /// Says in a sentence what the user should know; `None` if there is no difference.
    pub fn describe(&self, base: &str) -> Option<String> {
        let Self { name, commits } = self;
        let count = |n: u64| if n == 1 { "1 commit".to_owned() } else { format!("{n} commits") };
        match *commits {
            Some((0, 0)) => None,
            None => Some(format!(
                "the base `{base}` is a branch that is not at the remote (no `{name}`): push it before the pull request"
            )),
            Some((ahead, 0)) => Some(format!(
                "the base `{base}` has {} that `{name}` has not: they become part of the pull request unless you push them",
                count(ahead)
            )),
            Some((0, behind)) => Some(format!(
                "the base `{base}` lacks {} of `{name}`, as last fetched: `git pull` first to start from there",
                count(behind)
            )),
            Some((ahead, behind)) => Some(format!(
                "the base `{base}` has {} that `{name}` has not, and lacks {} of it",
                count(ahead),
                count(behind)
            )),
        }
    }
}

/// Where the base commit comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BaseSource {
    /// The default branch of the remote of a clone made by ralph, as last fetched.
    RemoteHead,
    /// The named branch of the remote, as last fetched.
    Remote,
    /// The named branch or commit of the user's repository.
    Local,
    /// The checked-out commit.
    Current,
}

/// The state of the task file in the user's checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskFileStatus {
    Committed,
    Changed,
    Untracked,
    Missing,
}

/// Uncommitted changes in the user's checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutStatus {
    pub task: TaskFileStatus,
    /// Tracked files, other than the task, that differ from the last commit.
    pub dirty: Vec<String>,
    /// Untracked files other than the task; ignored ones do not count.
    pub untracked: u32,
    /// There were more than could be listed.
    pub cut: bool,
}

/// The push destination of the user's repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    pub name: String,
    /// May contain a credential: for git only.
    pub url: Secret,
    /// For display: without user names and passwords.
    pub display_url: String,
}

impl UserRepo {
    /// Finds the repository that a directory belongs to.
    pub async fn find(tool: &GitProgram, folder: &Path) -> Result<Self, Error> {
        let call = tool.command("look for a repository").current_dir(folder).arg("rev-parse");
        let call = call.args(["--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir"]);
        let done = call.args(["--show-object-format", "--is-shallow-repository"]).run().await?;
        let text = done.text();
        let lines: Vec<&str> = text.lines().collect();
        let (0, [top, git_dir, common, format, shallow]) = (done.code, lines.as_slice()) else {
            return Err(Error::NotARepository { path: folder.to_owned() });
        };
        let odb = ObjectDb { tool: tool.clone(), git_dir: PathBuf::from(git_dir) };
        let format = ObjectFormat::parse(format).ok_or(Error::UnexpectedOutput { doing: "name its object format" })?;
        let config = read_config(&odb).await?;
        let (top, common) = (PathBuf::from(top), PathBuf::from(common));
        Ok(Self { odb, top, common, format, shallow: *shallow == "true", config })
    }

    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Reports whether files are checked out; false for a clone made without a checkout.
    pub fn is_checked_out(&self) -> bool {
        self.odb.git_dir.join("index").exists()
    }

    pub fn odb(&self) -> &ObjectDb {
        &self.odb
    }

    pub fn format(&self) -> ObjectFormat {
        self.format
    }

    /// Resolves the base: a name given by the task, else the checked-out branch, as the user has it here: commits that
    /// are not pushed yet may hold the tests that decide about the work. What differs from the remote is reported by
    /// [`Self::remote_difference`].
    ///
    /// A clone made by ralph has no checkout and its own branches are never updated: there the remote's count.
    pub async fn base(&self, wanted: Option<&str>) -> Result<BaseCommit, Error> {
        let remote = self.remote_name().await?;
        let is_own_clone = !self.is_checked_out();
        if let Some(name) = wanted {
            let of_remote = remote.as_ref().map(|remote| (format!("refs/remotes/{remote}/{name}"), BaseSource::Remote));
            let local = (format!("refs/heads/{name}"), BaseSource::Local);
            let mut places: Vec<(String, BaseSource)> = of_remote.into_iter().chain([local]).collect();
            if !is_own_clone {
                places.reverse();
            }
            places.extend([format!("refs/tags/{name}"), name.to_owned()].map(|full| (full, BaseSource::Local)));
            for (full, from) in places {
                if let Some(sha) = self.odb.resolve_commit(&full).await? {
                    return Ok(BaseCommit { branch: Some(name.to_owned()), sha, from });
                }
            }
            return Err(Error::NoCommit { name: name.to_owned() });
        }
        if let Some(remote) = remote.as_ref().filter(|_| is_own_clone) {
            let head = format!("refs/remotes/{remote}/HEAD");
            if let (Some(target), Some(sha)) =
                (self.symbolic_ref_target(&head).await?, self.odb.resolve_commit(&head).await?)
            {
                let branch = target.strip_prefix(&format!("refs/remotes/{remote}/")).map(str::to_owned);
                return Ok(BaseCommit { branch, sha, from: BaseSource::RemoteHead });
            }
        }
        let sha = self.odb.resolve_commit("HEAD").await?.ok_or_else(|| Error::NoCommit { name: "HEAD".to_owned() })?;
        let mut branch = self.current_branch().await?;
        if let (None, Some(remote)) = (&branch, &remote) {
            // No branch is checked out, as in many CI systems: the pull request is for the remote's default branch.
            let target = self.symbolic_ref_target(&format!("refs/remotes/{remote}/HEAD")).await?;
            branch =
                target.and_then(|target| target.strip_prefix(&format!("refs/remotes/{remote}/")).map(str::to_owned));
        }
        Ok(BaseCommit { branch, sha, from: BaseSource::Current })
    }

    /// Compares the base with the branch of the same name at the remote, as last fetched; `None` if there is no remote
    /// or the base was taken from it.
    pub async fn remote_difference(&self, base: &BaseCommit) -> Result<Option<RemoteDifference>, Error> {
        let Some(remote) = self.remote_name().await? else { return Ok(None) };
        let (Some(branch), BaseSource::Local | BaseSource::Current) = (&base.branch, base.from) else {
            return Ok(None);
        };
        let name = format!("{remote}/{branch}");
        let Some(there) = self.odb.resolve_commit(&format!("refs/remotes/{name}")).await? else {
            return Ok(Some(RemoteDifference { name, commits: None }));
        };
        const DOING: &str = "compare the base with the remote";
        let range = format!("{}...{}", base.sha, there);
        let text = self.odb.command(DOING).args(["rev-list", "--left-right", "--count", &range]).text().await?;
        let mut counts = text.split_whitespace().map(str::parse);
        match (counts.next(), counts.next()) {
            (Some(Ok(ahead)), Some(Ok(behind))) => Ok(Some(RemoteDifference { name, commits: Some((ahead, behind)) })),
            _ => Err(Error::UnexpectedOutput { doing: DOING }),
        }
    }

    /// Returns the checked-out branch.
    pub async fn current_branch(&self) -> Result<Option<String>, Error> {
        let target = self.symbolic_ref_target("HEAD").await?;
        Ok(target.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned)))
    }

    async fn symbolic_ref_target(&self, name: &str) -> Result<Option<String>, Error> {
        let done = self.odb.command("read a symbolic ref").args(["symbolic-ref", "--quiet", name]).run().await?;
        Ok((done.code == 0).then(|| done.text()))
    }

    /// Returns the state of the task file and what else is not committed.
    pub async fn checkout(&self, task: &str) -> Result<CheckoutStatus, Error> {
        let task_path = tree_path(task)?;
        let status = self.status().await?;
        let mut checkout =
            CheckoutStatus { task: TaskFileStatus::Committed, dirty: Vec::new(), untracked: 0, cut: status.cut };
        for entry in status.entries {
            match entry.kind {
                StatusEntryKind::Untracked if entry.path == task_path => checkout.task = TaskFileStatus::Untracked,
                StatusEntryKind::Tracked { .. } if entry.path == task_path => checkout.task = TaskFileStatus::Changed,
                StatusEntryKind::Untracked => checkout.untracked = checkout.untracked.saturating_add(1),
                StatusEntryKind::Tracked { .. } => checkout.dirty.push(entry.path),
            }
        }
        if std::fs::symlink_metadata(self.top.join(task_path)).is_err() {
            checkout.task = TaskFileStatus::Missing;
        } else if checkout.task == TaskFileStatus::Committed && !self.is_tracked(task_path).await? {
            // Ignored files are in no listing, but still not committed.
            checkout.task = TaskFileStatus::Untracked;
        }
        Ok(checkout)
    }

    async fn is_tracked(&self, path: &str) -> Result<bool, Error> {
        let call = self.odb.command("look into the index").env("GIT_WORK_TREE", &self.top).current_dir(&self.top);
        Ok(!call.args(["ls-files", "-z", "--", path]).run_checked().await?.stdout.is_empty())
    }

    /// Lists what differs from the last commit, without running the filters that attributes request.
    pub(crate) async fn status(&self) -> Result<GitStatus, Error> {
        const DOING: &str = "list uncommitted files";
        let call = self.without_filters(self.odb.command(DOING)).current_dir(&self.top).env("GIT_WORK_TREE", &self.top);
        let call = call.args(["status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames"]);
        // Submodules would be read by other git processes, which do not inherit these settings.
        let done = call
            .args(["--ignore-submodules=all", "--no-ahead-behind"])
            .cap(8 << 20, GitOverflow::Cut)
            .run_checked()
            .await?;
        let mut bytes = done.stdout;
        if done.cut {
            let end = bytes.iter().rposition(|byte| *byte == 0).unwrap_or(0);
            bytes.truncate(end);
        }
        let entries = status_entries(&bytes).ok_or(Error::UnexpectedOutput { doing: DOING })?;
        Ok(GitStatus { entries, cut: done.cut })
    }

    /// Disables every filter that the config names; git then takes files as they are.
    pub(crate) fn without_filters<'a>(&self, call: GitCommand<'a>) -> GitCommand<'a> {
        let mut drivers: Vec<&str> = self
            .config
            .iter()
            .filter_map(|(key, _)| key.strip_prefix("filter.")?.rsplit_once('.').map(|(driver, _)| driver))
            .collect();
        drivers.sort_unstable();
        drivers.dedup();
        drivers.into_iter().fold(call, |call, driver| {
            ["clean", "smudge", "process"]
                .into_iter()
                .fold(call, |call, part| call.config(format!("filter.{driver}.{part}"), ""))
                .config(format!("filter.{driver}.required"), "false")
        })
    }

    /// Returns the remote of the current branch, else `origin`, else the only one.
    pub async fn remote(&self) -> Result<Option<RemoteUrl>, Error> {
        let Some(name) = self.remote_name().await? else { return Ok(None) };
        let url = self
            .config_value(&format!("remote.{name}.pushurl"))
            .or_else(|| self.config_value(&format!("remote.{name}.url")));
        Ok(url.map(|url| RemoteUrl { display_url: without_credentials(url), url: Secret::new(url), name }))
    }

    async fn remote_name(&self) -> Result<Option<String>, Error> {
        let mut names: Vec<&str> =
            self.config.iter().filter_map(|(key, _)| key.strip_prefix("remote.")?.strip_suffix(".url")).collect();
        names.dedup();
        if let Some(branch) = self.current_branch().await?
            && let Some(name) =
                self.config_value(&format!("branch.{branch}.remote")).filter(|name| names.contains(name))
        {
            return Ok(Some(name.to_owned()));
        }
        Ok(match names.as_slice() {
            names if names.contains(&"origin") => Some("origin".to_owned()),
            [only] => Some((*only).to_owned()),
            _ => None,
        })
    }

    fn config_value(&self, key: &str) -> Option<&str> {
        self.config.iter().rfind(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// The output of `status`.
#[derive(Debug)]
pub(crate) struct GitStatus {
    pub(crate) entries: Vec<StatusEntry>,
    pub(crate) cut: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StatusEntry {
    pub(crate) kind: StatusEntryKind,
    pub(crate) path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusEntryKind {
    Tracked { submodule: bool, conflict: bool },
    Untracked,
}

fn status_entries(bytes: &[u8]) -> Option<Vec<StatusEntry>> {
    let records = bytes.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    records
        .filter(|record| !record.starts_with(b"# ") && !record.starts_with(b"! "))
        .map(|record| {
            // Fields before the path: `1 XY sub mH mI mW hH hI` and `u XY sub m1 m2 m3 mW h1 h2 h3`.
            let (fields, conflict) = match record.first()? {
                b'?' => return Some(StatusEntry { kind: StatusEntryKind::Untracked, path: lossy(record.get(2..)?) }),
                b'1' => (8, false),
                b'u' => (10, true),
                _ => return None,
            };
            let mut parts = record.splitn(fields + 1, |byte| *byte == b' ');
            let submodule = parts.nth(2)?.starts_with(b"S");
            let path = lossy(parts.nth(fields - 3)?);
            Some(StatusEntry { kind: StatusEntryKind::Tracked { submodule, conflict }, path })
        })
        .collect()
}

async fn read_config(odb: &ObjectDb) -> Result<Vec<(String, String)>, Error> {
    let done = odb.command("read its config").args(["config", "--list", "-z"]).run_checked().await?;
    let records = done.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    Ok(records
        .map(|record| {
            let text = lossy(record);
            match text.split_once('\n') {
                Some((key, value)) => (key.to_owned(), value.to_owned()),
                None => (text, String::new()),
            }
        })
        .collect())
}

/// Removes user name and password from a URL for display.
pub(crate) fn without_credentials(url: &str) -> String {
    let url = ralph_core::text::strip_control(url);
    let Some((scheme, rest)) = url.split_once("://") else { return url };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{host}{path}"),
        None => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        for (url, want) in [
            ("https://me:ghp_x@github.com/o/r.git", "https://github.com/o/r.git"),
            ("https://ghp_x@github.com/o/r", "https://github.com/o/r"),
            ("https://a:b@c@host/x@y", "https://host/x@y"),
            ("ssh://git@github.com:22/o/r", "ssh://github.com:22/o/r"),
            ("git@github.com:o/r.git", "git@github.com:o/r.git"),
            ("/srv/r.git", "/srv/r.git"),
        ] {
            assert_eq!(without_credentials(url), want);
        }
    }

    #[test]
    fn status_lines() {
        let text = "# branch.oid x\x001 .M N... 100644 100644 100644 a b a file\0? new one\0! ign\0\
                    1 .M SC.. 160000 160000 160000 a b sub\0u UU N... 1 2 3 4 a b c both\0";
        let entry = |kind, path: &str| StatusEntry { kind, path: path.to_owned() };
        let tracked = |submodule, conflict| StatusEntryKind::Tracked { submodule, conflict };
        let want = vec![
            entry(tracked(false, false), "a file"),
            entry(StatusEntryKind::Untracked, "new one"),
            entry(tracked(true, false), "sub"),
            entry(tracked(false, true), "both"),
        ];
        assert_eq!(status_entries(text.as_bytes()), Some(want));
        assert_eq!(status_entries(b"1 .M N...\0"), None);
        assert_eq!(status_entries(b"9 x\0"), None);
    }
}
