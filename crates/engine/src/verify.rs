//! Re-executes a receipt: the same commands on the same commit in a fresh sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::event::Identity;
use ralph_core::receipt::{Again, Check, Receipt, compare, flaw};
use ralph_sandbox::{Backend, Label, Sandbox, Spec};
use serde::Serialize;

use crate::check;
use crate::error::{Error, file};
use crate::git::inside::KeepState;
use crate::git::{self, Bare, Repo, Sha};
use crate::host::Host;
use crate::receipt::{self, Key};
use crate::run::discard;

/// What re-execution says of a receipt.
#[derive(Debug, Serialize)]
pub struct Report {
    pub format: u32,
    pub receipt: Receipt,
    pub signed_by: Signer,
    pub backend: String,
    pub lines: Vec<Line>,
    /// Why it proves nothing, when that is so.
    pub flaw: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signer {
    ThisInstallation,
    Another,
}

#[derive(Debug, Serialize)]
pub struct Line {
    pub command: String,
    pub proves: Vec<String>,
    pub then: i32,
    pub now: Option<i32>,
    pub verdict: Again,
}

/// Finds the receipt a person means: a file, a run, a branch, or a commit with a note.
pub async fn find(host: &Host, wanted: &str, repo: &Path) -> Result<Receipt, Error> {
    let path = Path::new(wanted);
    if path.is_file() {
        let text = std::fs::read_to_string(path).map_err(file("read", path))?;
        return receipt::read(&text);
    }
    let found = match host.home.find(wanted) {
        Err(error @ Error::Ambiguous { .. }) => return Err(error),
        Err(error @ Error::NoRun { .. }) if wanted == "@" => return Err(error),
        found => found.ok(),
    };
    if let Some(folder) = found {
        let path = folder.receipt_path();
        if let Some(bytes) = folder.read(&path)? {
            return receipt::read(&String::from_utf8_lossy(&bytes));
        }
        let why = format!("only a run that succeeded has one, and `{}` has not", folder.id());
        return Err(Error::NoReceipt { why, hint: format!("ralph show {}", folder.id()) });
    }
    if wanted.starts_with("https://") || wanted.starts_with("http://") {
        let why = "this version cannot read pull requests of a forge".to_owned();
        return Err(Error::NoReceipt { why, hint: "fetch the branch, then name it instead of the address".to_owned() });
    }
    let repo = Repo::find(&host.tool, repo).await?;
    let noted = match repo.odb().commit(wanted).await? {
        Some(sha) => repo.odb().note_of(&sha).await?,
        None => None,
    };
    let bytes = noted.ok_or_else(|| Error::NoReceipt {
        why: format!("`{wanted}` is no receipt file, no run and no commit that carries one"),
        hint: "`ralph ls` lists the runs".to_owned(),
    })?;
    receipt::read(&String::from_utf8_lossy(&bytes))
}

/// Runs every command of the receipt again.
pub async fn verify(host: &Host, receipt: Receipt, backend: &str, repo: &Path) -> Result<Report, Error> {
    let own = Key::load_or_make(&host.home.key_path())?.public();
    let signed_by = if own == receipt.key { Signer::ThisInstallation } else { Signer::Another };
    let scratch = tempfile::tempdir().map_err(file("make a folder in", Path::new("the temporary folder")))?;
    let bare = repository(host, &receipt, repo, scratch.path()).await?;
    let chosen = host.backend(backend)?;
    let lines = again(host, &*chosen, &bare, scratch.path(), &receipt).await?;
    let verdicts: Vec<Again> = lines.iter().map(|line| line.verdict).collect();
    let flaw = flaw(&receipt.body.checks, &verdicts);
    Ok(Report { format: 1, receipt, signed_by, backend: backend.to_owned(), lines, flaw })
}

/// Finds the commit: in the repository the person stands in, or in the run's own.
async fn repository(host: &Host, receipt: &Receipt, repo: &Path, scratch: &Path) -> Result<Bare, Error> {
    let sha = Sha::parse(&receipt.body.commit)?;
    if let Ok(found) = Repo::find(&host.tool, repo).await
        && found.odb().commit(sha.as_str()).await?.is_some()
    {
        let bare = Bare::create(&host.tool, &scratch.join("repo.git"), found.format()).await?;
        bare.seed_from(&found, &sha).await?;
        return Ok(bare);
    }
    let own = host.home.folder(&receipt.body.run).bare_path();
    if let Ok(kept) = Bare::open(&host.tool, &own).await
        && kept.odb().commit(sha.as_str()).await?.is_some()
    {
        return Ok(kept);
    }
    Err(Error::MissingCommit { sha: sha.to_string(), branch: receipt.body.branch.clone() })
}

/// Makes the sandbox of a re-execution, under a name of its own.
async fn place(backend: &dyn Backend, receipt: &Receipt) -> Result<Arc<dyn Sandbox>, Error> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|_| Error::Random)?;
    let name = format!("ralph-verify-{}", ralph_core::hash::hex(&random));
    let labels = BTreeMap::from([
        (Label::RUN.to_owned(), receipt.body.run.clone()),
        (Label::ROLE.to_owned(), "verify".to_owned()),
    ]);
    Ok(backend.create(&Spec { name, labels, env: BTreeMap::new(), image: None, ..Spec::default() }).await?)
}

async fn again(
    host: &Host,
    backend: &dyn Backend,
    bare: &Bare,
    scratch: &Path,
    receipt: &Receipt,
) -> Result<Vec<Line>, Error> {
    let nobody = Identity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() };
    let redactor = host.redactor();
    let timeout = Duration::from_secs(receipt.body.timeout_s.clamp(1, 24 * 3600));
    let mut lines = Vec::new();
    for then in &receipt.body.checks {
        // A sandbox for each, as when it was proved.
        let sandbox = place(backend, receipt).await?;
        let body = &receipt.body;
        let put = git::put_in(&*sandbox, bare, scratch, &body.branch, &body.commit, &nobody, KeepState::Out).await;
        let ran = match put {
            Ok(()) => check::run(&*sandbox, &then.command, ".", timeout, &redactor).await,
            Err(error) => Err(error.into()),
        };
        discard(&*sandbox).await;
        let ran = ran.ok();
        let now = ran.map(|ran| Check {
            code: ran.code,
            timed_out: ran.timed_out,
            duration_ms: ran.duration_ms,
            output_sha256: ran.output_sha256,
            ..then.clone()
        });
        lines.push(Line {
            command: then.command.clone(),
            proves: then.proves.clone(),
            then: then.code,
            now: now.as_ref().map(|now| now.code),
            verdict: compare(then, now.as_ref()),
        });
    }
    Ok(lines)
}
