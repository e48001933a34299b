//! Starts a run: reads everything that matters on the host once and pins it.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use ralph_core::budget::Budget;
use ralph_core::config::ToolchainSelection;
use ralph_core::event::{
    CarriedUsage, CommitIdentity, Event, EventLogLevel, FORMAT, PinnedAgent, PinnedBox, PinnedPullRequest,
    PinnedResources, RunProfiles, RunStart, RunTestSchedule,
};
use ralph_core::gutter::LadderRung;
use ralph_core::hash::sha256;
use ralph_core::identifiers::{RunId, TaskBranch};
use ralph_core::policy::Policy;
use ralph_core::task::Task;

use super::SelectedAgent;
use super::interrupts::StopSignals;
use super::runner::Runner;
use super::work_sandbox::KeepSandbox;
use crate::baseline::BaselineReport;
use crate::error::{Error, file_error};
use crate::git::{self, BareRepo, BaseCommit, UserRepo};
use crate::host_environment::HostContext;
use crate::store::{EventObserver, RunFolder, ScratchFolder, write_atomic};

/// What a run is started with, as [`crate::setup`] works it out.
#[derive(Debug)]
pub struct RunSpec {
    pub repo: PathBuf,
    /// The task file's text as it stands on the host.
    pub source: String,
    pub task: Task,
    /// Where the task file goes inside the repository.
    pub task_path: String,
    pub base_branch: Option<String>,
    pub backend: String,
    pub image: Option<String>,
    pub resources: PinnedResources,
    pub toolchains: ToolchainSelection,
    /// Secrets granted to the sandbox, each as `NAME=HOST`.
    pub secret_grants: Vec<String>,
    /// The agent that works in the sandbox instead of ralph's own engine.
    pub agent: Option<PinnedAgent>,
    pub profiles: RunProfiles,
    pub budget: Budget,
    pub policy: Policy,
    pub identity: CommitIdentity,
    pub ladder: Vec<LadderRung>,
    pub check_timeout_s: u64,
    /// The longest time that one command of a model may take.
    pub command_timeout_s: u64,
    /// How many bytes may be sent out before an alarm is raised.
    pub alarm_after: Option<u64>,
    pub baseline: bool,
    pub include_dirty: bool,
}

/// A run that is ready to be driven.
#[derive(Debug)]
pub struct PreparedRun {
    pub runner: Runner,
    /// What the user should know before the run goes on.
    pub remarks: Vec<String>,
}

/// Makes the run folder, takes the base commit's objects and appends the first event.
pub async fn begin(
    host: &HostContext,
    spec: RunSpec,
    announce: Box<dyn EventObserver>,
    stops: StopSignals,
    keep: KeepSandbox,
) -> Result<PreparedRun, Error> {
    let (repo, base) = check_start(host, &spec).await?;
    remove_unstarted_runs(host)?;
    let run = new_run_id()?;
    let folder = host.home.run_folder(&run);
    // The folder holds the model's answers unmasked, so only the user may read it.
    let mut dirs = fs::DirBuilder::new();
    dirs.recursive(true).mode(0o700);
    dirs.create(host.home.runs_dir()).map_err(file_error("make the folder", &host.home.runs_dir()))?;
    // `create_dir` fails when the folder exists, so two runs can never share one.
    fs::create_dir(folder.path()).map_err(file_error("make the run folder", folder.path()))?;
    let mut remarks = Vec::new();
    let started = match prepare_repository(host, &spec, &repo, &base, &run, &folder, &mut remarks).await {
        Ok(started) => started,
        Err(error) => {
            // Nothing has started: remove the useless folder.
            let _ = fs::remove_dir_all(folder.path());
            return Err(error);
        }
    };
    let mut runner = Runner::open(host.clone(), folder, announce, stops, keep).await?;
    runner.run.append(Event::RunStarted(Box::new(started)))?;
    for remark in &remarks {
        runner.run.log(EventLogLevel::Warn, remark.clone())?;
    }
    Ok(PreparedRun { runner, remarks })
}

/// Checks whether a run could begin, without making anything. Returns its repository and base.
pub async fn check_start(host: &HostContext, spec: &RunSpec) -> Result<(UserRepo, BaseCommit), Error> {
    check_priced(spec)?;
    let repo = UserRepo::find(&host.git, &spec.repo).await?;
    let base = repo.base(spec.base_branch.as_deref()).await?;
    free_branch(host, &repo, &spec.task).await?;
    check_agent(host, spec)?;
    Ok((repo, base))
}

/// Refuses a profile whose calls no cap would limit, wherever it is configured: any of them may be used.
pub(super) fn check_priced(spec: &RunSpec) -> Result<(), Error> {
    let profiles = [Some(&spec.profiles.default), spec.profiles.fallback.as_ref(), spec.profiles.doctor.as_ref()];
    match profiles.into_iter().flatten().find(|profile| !spec.budget.can_enforce(profile.price.as_ref())) {
        Some(profile) => Err(Error::Unpriced { profile: profile.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses an agent that cannot talk to its models, before anything is created.
fn check_agent(host: &HostContext, spec: &RunSpec) -> Result<(), Error> {
    let Some(pinned) = &spec.agent else { return Ok(()) };
    let chosen = SelectedAgent::of(pinned)?;
    for profile in std::iter::once(&spec.profiles.default).chain(&spec.profiles.fallback) {
        let endpoint = host.endpoint(profile)?;
        if super::shared_protocol(chosen.get(), endpoint.wire, super::provider(&profile.model)).is_none() {
            let why = super::protocol_mismatch(chosen.get(), endpoint.wire);
            return Err(Error::Profile { profile: profile.name.clone(), why });
        }
        host.credential(profile, &endpoint)?;
    }
    host.agent(pinned, &spec.backend).map(drop)
}

async fn prepare_repository(
    host: &HostContext,
    spec: &RunSpec,
    repo: &UserRepo,
    base: &BaseCommit,
    run: &str,
    folder: &RunFolder,
    remarks: &mut Vec<String>,
) -> Result<RunStart, Error> {
    let bare = BareRepo::create(&host.git, &folder.bare_path(), repo.format()).await?;
    bare.seed_from(repo, &base.sha).await?;
    let stamp = git::stamp(&spec.identity);
    let trailers = git::trailers(run, 0);
    let mut start = base.sha.clone();
    if let Some(different) = repo.remote_difference(base).await? {
        remarks.extend(different.describe(base.branch.as_deref().unwrap_or("HEAD")));
    }
    if !repo.is_checked_out() {
        // A clone made by ralph: it has no checkout with changes to include.
    } else if spec.include_dirty {
        let taken = bare.include_dirty(repo, &start, &spec.task_path, &stamp, &trailers).await?;
        remarks.push(format!("{} changed files of your checkout were taken along", taken.included.len()));
        remarks.extend(taken.skipped.iter().map(|left| format!("`{}` was left out: {}", left.path, left.why)));
        start = taken.sha;
    } else {
        let checkout = repo.checkout(&spec.task_path).await?;
        if !checkout.dirty.is_empty() || checkout.untracked > 0 {
            remarks.push(format!(
            "{} changed and {} untracked files of your checkout are not in the run; `--include-dirty` takes the changed ones",
            checkout.dirty.len(),
            checkout.untracked
        ));
        }
    }
    let start = bare.commit_task_file(&start, &spec.task_path, spec.source.as_bytes(), &stamp, &trailers).await?;
    let branch = free_branch(host, repo, &spec.task).await?;
    bare.set_branch(&branch, &start).await?;
    write_atomic(&folder.task_path(), spec.source.as_bytes())?;
    let base_branch = base.branch.clone().unwrap_or_else(|| "HEAD".to_owned());
    let places = RunRefs {
        repo: repo.top().display().to_string(),
        run,
        base: &base.sha,
        base_branch: &base_branch,
        start: &start,
        branch: &branch,
    };
    started_event(spec, &bare, places).await
}

/// The repository, commits and branches of a run.
#[derive(Debug)]
pub(super) struct RunRefs<'a> {
    pub(super) repo: String,
    pub(super) run: &'a str,
    pub(super) base: &'a git::Sha,
    pub(super) base_branch: &'a str,
    pub(super) start: &'a git::Sha,
    pub(super) branch: &'a TaskBranch,
}

/// Builds the first event of a run.
pub(super) async fn started_event(spec: &RunSpec, bare: &BareRepo, places: RunRefs<'_>) -> Result<RunStart, Error> {
    let front = &spec.task.front;
    let boxes = PinnedBox::from_task(&spec.task);
    let judges = super::proof_files::find_proof_files(bare, places.start, &spec.task).await?;
    Ok(RunStart {
        format: FORMAT,
        run: places.run.to_owned(),
        ralph: env!("CARGO_PKG_VERSION").to_owned(),
        task_id: front.task_id.clone(),
        title: spec.task.title.clone(),
        repo: places.repo,
        task_path: spec.task_path.clone(),
        task_sha256: sha256(spec.source.as_bytes()),
        base_branch: places.base_branch.to_owned(),
        base_commit: places.base.into(),
        start_commit: places.start.into(),
        branch: places.branch.clone(),
        engine: if spec.agent.is_some() { "agent" } else { "actions" }.to_owned(),
        agent: spec.agent.clone(),
        backend: spec.backend.clone(),
        image: spec.image.clone(),
        resources: spec.resources,
        toolchains: spec.toolchains.clone(),
        lent: spec.secret_grants.clone(),
        profiles: spec.profiles.clone(),
        budget: spec.budget.clone(),
        to_be_written: judges.to_be_written,
        gates: front.verify_commands.clone(),
        test_command: front.test_command.clone().unwrap_or_default(),
        test_every: match front.test_every {
            ralph_core::task::TaskTestFrequency::Iteration => RunTestSchedule::Iteration,
            ralph_core::task::TaskTestFrequency::Claim => RunTestSchedule::Claim,
        },
        check_timeout_s: spec.check_timeout_s,
        command_timeout_s: Some(spec.command_timeout_s),
        alarm_after: spec.alarm_after,
        boxes,
        protected_paths: front.protected_paths.iter().filter(|path| !path.starts_with('!')).cloned().collect(),
        may_change: front.freed_paths(),
        proof_files: judges.files,
        pinned_parts: judges.parts,
        policy: spec.policy.clone(),
        commit_state: front.commit_state,
        min_changed_lines: u64::from(front.min_changed_lines),
        ladder: spec.ladder.clone(),
        diagnose: front.diagnose.clone(),
        identity: spec.identity.clone(),
        pr: PinnedPullRequest {
            draft: front.pr.draft,
            labels: front.pr.labels.clone(),
            title_template: front.pr.title_template.clone(),
            body_template: front.pr.body_template.clone(),
        },
        baseline: spec.baseline,
        recovered: false,
        carried: CarriedUsage::default(),
    })
}

/// Returns the branch of the task, with `-v2`, `-v3`… when earlier runs have used it.
async fn free_branch(host: &HostContext, repo: &UserRepo, task: &Task) -> Result<TaskBranch, Error> {
    let wanted = TaskBranch::parse(&task.branch()).map_err(|error| Error::Refused(error.to_string()))?;
    let mut taken = repo.odb().branches().await?;
    taken.extend(
        host.home
            .list_runs()?
            .runs
            .into_iter()
            .filter_map(|found| found.listing.ok())
            .map(|listing| listing.branch.into()),
    );
    for version in 1..10_000 {
        let branch = if version == 1 { wanted.clone() } else { wanted.with_version(version) };
        if !taken.iter().any(|name| name == branch.as_str()) {
            return Ok(branch);
        }
    }
    Err(Error::Refused(format!(
        "`{}` has been used ten thousand times; choose another `target_branch_slug`",
        wanted.as_str()
    )))
}

pub(super) fn new_run_id() -> Result<String, Error> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|_| Error::Random)?;
    let ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    Ok(RunId::new(ms, random).as_str().to_owned())
}

/// Removes folders of runs that died before their first event.
fn remove_unstarted_runs(host: &HostContext) -> Result<(), Error> {
    let dir = host.home.runs_dir();
    let Ok(entries) = fs::read_dir(&dir) else { return Ok(()) };
    for entry in entries.flatten() {
        let folder = RunFolder::at(entry.path());
        let old = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age.as_secs() > 600));
        if old && RunId::parse(&folder.id()).is_ok() && !folder.begun() && !folder.is_held() {
            fs::remove_dir_all(folder.path()).map_err(file_error("remove", folder.path()))?;
        }
    }
    Ok(())
}

/// Runs every proof of a task on its base commit, without starting a run.
pub async fn run_baseline(host: &HostContext, spec: &RunSpec) -> Result<BaselineReport, Error> {
    let scratch = ScratchFolder::create(&host.home)?;
    let repo = UserRepo::find(&host.git, &spec.repo).await?;
    let base = repo.base(spec.base_branch.as_deref()).await?;
    let folder = RunFolder::at(scratch.path().to_owned());
    let started = prepare_repository(host, spec, &repo, &base, &new_run_id()?, &folder, &mut Vec::new()).await?;
    let bare = BareRepo::open(&host.git, &folder.bare_path()).await?;
    crate::baseline::check(host, &bare, scratch.path(), &started, &started.start_commit).await
}
