//! Publishes a checked commit: pushes it to the user's remote, or writes it into the user's repository if there is no
//! remote.
//!
//! Only `refs/heads/ralph/…`, only from the run's own repository, only an exact commit, never by force.

use std::path::PathBuf;
use std::time::Duration;

use ralph_core::identifiers::TaskBranch;
use ralph_core::secret::Secret;
use serde::{Deserialize, Serialize};

use super::subprocess::{GitCommand, UserGitConfig};
use super::user_repo::without_credentials;
use super::{BareRepo, Error, Sha, UserRepo};

/// The destination of a push: one transport, known before git starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRemote {
    /// Held as a secret because it may contain one.
    address: Secret,
    protocol: &'static str,
}

impl GitRemote {
    /// Accepts https, ssh, file and plain http to this machine; nothing that names a program.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let refuse = |why| Error::RemoteUrl { url: without_credentials(url), why };
        if url.is_empty() || url.starts_with('-') || url.chars().any(char::is_control) {
            return Err(refuse("it is not an address"));
        }
        let made = |protocol| Ok(Self { address: Secret::new(url), protocol });
        if let Some((scheme, rest)) = url.split_once("://") {
            let authority = rest.split('/').next().unwrap_or_default();
            let host = authority.rsplit('@').next().unwrap_or_default();
            if authority.starts_with('-') || host.starts_with('-') {
                return Err(refuse("its host looks like an option"));
            }
            let bare_host = host.rsplit_once(':').map_or(host, |(host, _)| host);
            return match scheme {
                "https" => made("https"),
                "ssh" => made("ssh"),
                "file" => made("file"),
                "http" if matches!(bare_host, "localhost" | "127.0.0.1" | "[::1]") => made("http"),
                "http" => Err(refuse("plain http is not private")),
                _ => Err(refuse("its scheme is not allowed")),
            };
        }
        // `transport::address` starts a program named after the transport.
        if url.contains("::") {
            return Err(refuse("it names a transport program"));
        }
        if url.starts_with('/') {
            return made("file");
        }
        let scp =
            url.split_once(':').is_some_and(|(host, path)| !host.is_empty() && !host.contains('/') && !path.is_empty());
        if scp { made("ssh") } else { Err(refuse("a path must be absolute")) }
    }

    /// Returns the address as git takes it; it may contain a password.
    pub(crate) fn address(&self) -> &str {
        self.address.expose()
    }

    /// Allows a call only the protocol of this remote.
    pub(crate) fn allow_protocol<'a>(&self, call: GitCommand<'a>) -> GitCommand<'a> {
        call.config(format!("protocol.{}.allow", self.protocol), "always")
    }

    /// Returns the address for display: no user name, no password.
    pub fn display_url(&self) -> String {
        without_credentials(self.address.expose())
    }
}

/// The credentials of a push.
#[derive(Debug, Clone)]
pub enum GitAuth {
    /// Nothing: a path, or an open server.
    None,
    /// A token for https, sent as basic authorisation with user `x-access-token`.
    Token(Secret),
    /// The user's own ssh agent and credential helpers.
    User { home: PathBuf, ssh_agent: Option<PathBuf> },
}

/// The outcome of a push or publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PushOutcome {
    New,
    Forward,
    AlreadyThere,
}

impl BareRepo {
    /// Pushes exactly this commit as the run's branch; repeating it has no further effect.
    pub async fn push(
        &self,
        remote: &GitRemote,
        branch: &TaskBranch,
        sha: &Sha,
        auth: &GitAuth,
    ) -> Result<PushOutcome, Error> {
        self.push_replacing(remote, branch, sha, None, auth).await
    }

    /// Pushes, and may replace the commit that this run pushed last; commits of anyone else are never lost.
    pub async fn push_replacing(
        &self,
        remote: &GitRemote,
        branch: &TaskBranch,
        sha: &Sha,
        last: Option<&Sha>,
        auth: &GitAuth,
    ) -> Result<PushOutcome, Error> {
        const DOING: &str = "push";
        let call = self.command(DOING).args(["push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed"]);
        let force = match last {
            Some(last) => format!("--force-with-lease={}:{last}", branch.ref_name()),
            None => "--no-force".to_owned(),
        };
        let call = call.arg(force).args(["--recurse-submodules=no", "--"]);
        let call = call.arg(remote.address.expose()).arg(format!("{sha}:{}", branch.ref_name()));
        let done = with_auth(remote.allow_protocol(call), auth).timeout(Duration::from_mins(10)).run().await?;
        let full = branch.ref_name();
        for line in done.text().lines() {
            let mut fields = line.split('\t');
            let (Some(flag), Some(names), Some(summary)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            if !names.ends_with(&format!(":{full}")) {
                continue;
            }
            let branch = branch.to_string();
            return match flag {
                "*" => Ok(PushOutcome::New),
                " " | "+" => Ok(PushOutcome::Forward),
                "=" => Ok(PushOutcome::AlreadyThere),
                // A push of a killed ralph process may have arrived in between.
                _ if self.remote_has(remote, &full, sha, auth).await => Ok(PushOutcome::AlreadyThere),
                _ if summary.starts_with("[rejected]") => Err(Error::NotFastForward { branch }),
                _ => Err(Error::RemoteRefused { branch, reason: ralph_core::text::strip_control(summary) }),
            };
        }
        Err(Error::Failed {
            doing: DOING,
            code: done.code,
            said: without_secrets(&done.stderr_tail(), remote.address.expose()),
        })
    }

    /// Reports whether the remote's ref points to a commit; false if the remote does not answer.
    async fn remote_has(&self, remote: &GitRemote, full: &str, sha: &Sha, auth: &GitAuth) -> bool {
        let call = self.command("ask the remote").args(["ls-remote", "--quiet", "--refs", "--"]);
        let call = call.arg(remote.address.expose()).arg(full);
        let call = call.config(format!("protocol.{}.allow", remote.protocol), "always");
        let listing = with_auth(call, auth).timeout(Duration::from_mins(1)).text().await.unwrap_or_default();
        listing.split_once('\t').is_some_and(|(found, name)| found == sha.as_str() && name == full)
    }

    /// Makes the run's branch a branch of the user's repository, by a fetch there that touches nothing else.
    pub async fn publish_into(&self, user: &UserRepo, branch: &TaskBranch, sha: &Sha) -> Result<PushOutcome, Error> {
        self.publish_replacing(user, branch, sha, None).await
    }

    /// Publishes, and may replace the commit that this run published last.
    pub async fn publish_replacing(
        &self,
        user: &UserRepo,
        branch: &TaskBranch,
        sha: &Sha,
        last: Option<&Sha>,
    ) -> Result<PushOutcome, Error> {
        const DOING: &str = "publish the branch";
        let full = branch.ref_name();
        let before = user.odb.ref_at(&full).await?;
        match &before {
            Some(old) if old == sha => return Ok(PushOutcome::AlreadyThere),
            Some(old) if Some(old) != last && !self.odb.is_ancestor(old, sha).await? => {
                return Err(Error::NotFastForward { branch: branch.to_string() });
            }
            Some(_) | None => (),
        }
        if user.current_branch().await?.as_deref() == Some(branch.as_str()) {
            return Err(Error::CheckedOut { branch: branch.to_string() });
        }
        let call =
            user.odb.command(DOING).args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-prune"]);
        let call = call.args(["--no-auto-maintenance", "--no-recurse-submodules", "--refmap="]);
        let call = call.args(["--no-show-forced-updates", "--"]);
        // The previous commit is the run's own or an ancestor: both were checked just now.
        let call = call.arg(self.path()).arg(format!("+{sha}:{full}"));
        // The longest rewrite rule wins, and this one is as long as the path: none of the user's rules can redirect
        // it.
        let path = self.path().display();
        let call = call.config(format!("url.{path}.insteadOf"), path.to_string());
        let done = call.config("protocol.file.allow", "always").timeout(Duration::from_mins(10)).run().await?;
        // Only the branch counts: a killed ralph process may have set it during this attempt.
        if user.odb.ref_at(&full).await?.as_ref() != Some(sha) {
            return Err(match done.code {
                0 => Error::UnexpectedOutput { doing: DOING },
                code => Error::Failed { doing: DOING, code, said: done.stderr_tail() },
            });
        }
        Ok(if before.is_some() { PushOutcome::Forward } else { PushOutcome::New })
    }
}

pub(crate) fn with_auth<'a>(call: GitCommand<'a>, auth: &GitAuth) -> GitCommand<'a> {
    match auth {
        GitAuth::None => call,
        // Through the environment: an argument would show in every process listing.
        GitAuth::Token(token) => {
            let pair = format!("x-access-token:{}", token.expose());
            call.config("http.extraHeader", format!("Authorization: Basic {}", base64(pair.as_bytes())))
        }
        GitAuth::User { home, ssh_agent } => {
            let call = call.user_config(UserGitConfig::Read).env("HOME", home);
            ssh_agent.iter().fold(call, |call, socket| call.env("SSH_AUTH_SOCK", socket))
        }
    }
}

fn without_secrets(stderr: &str, address: &str) -> String {
    stderr.replace(address, &without_credentials(address))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let part = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = part(0) << 16 | part(1) << 8 | part(2);
        for n in 0..4_usize {
            let digit = (bits >> (18 - 6 * n)) & 63;
            let digit = usize::try_from(digit).ok().and_then(|digit| DIGITS.get(digit)).copied().unwrap_or(b'=');
            text.push(if n <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes() {
        for (url, want) in [
            ("https://github.com/o/r", Some("https")),
            ("ssh://git@github.com/o/r", Some("ssh")),
            ("git@github.com:o/r.git", Some("ssh")),
            ("file:///srv/r", Some("file")),
            ("/srv/r.git", Some("file")),
            ("http://127.0.0.1:8080/o/r", Some("http")),
            ("http://github.com/o/r", None),
            ("ext::sh -c touch% /tmp/x", None),
            ("fd::3", None),
            ("--upload-pack=x", None),
            ("ssh://-oProxyCommand=x/r", None),
            ("ssh://a@-oProxyCommand=x/r", None),
            ("git://host/r", None),
            ("relative/path", None),
            ("../r", None),
            ("", None),
            ("https://x/\ny", None),
        ] {
            assert_eq!(GitRemote::parse(url).ok().map(|remote| remote.protocol), want, "{url}");
        }
    }

    #[test]
    fn tokens_are_encoded() {
        for (text, want) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("x-access:~?", "eC1hY2Nlc3M6fj8=")]
        {
            assert_eq!(base64(text.as_bytes()), want);
        }
    }
}
