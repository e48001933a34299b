//! Measures what holding the tests of the start commit adds to a check in a project of 5 000 files.

use std::fs;
use std::path::Path;

use ralph_engine::check_trial::CheckTrial;
use ralph_engine::git::GitProgram;
use ralph_sandbox::local::LocalBackend;
use ralph_testkit::repo::TestRepo;

use crate::BenchResult;
use crate::figures::{FigureTable, percentile};

const PACKAGES: usize = 250;
/// Per package: this many source files and this many tests.
const SOURCES: usize = 15;
const TESTS: usize = 5;
const TIMES: usize = 31;
const HELD_MS: f64 = 20.0;

pub(crate) async fn measure(table: &mut FigureTable, search_path: &str) -> BenchResult<()> {
    let repo = TestRepo::new();
    for package in 0..PACKAGES {
        let folder = repo.path().join(format!("pkg{}/mod{package}", package % 10));
        write_files(&folder, "source", SOURCES)?;
        write_files(&folder.join("tests"), "test_part", TESTS)?;
    }
    repo.commit("a project");
    let dir = tempfile::tempdir()?;
    let backend = LocalBackend::with_path(dir.path().join("sandboxes"), search_path.into());
    let scratch = dir.path().join("scratch");
    fs::create_dir_all(&scratch)?;
    let git = GitProgram::find(search_path.as_ref()).await?;
    let trial = CheckTrial::start(&git, &backend, &repo.path(), &scratch, "true").await?;
    let open = trial.open("HEAD", None).await?;
    // Contents are read and compared once; from then on stamps show that they are the same.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let (first, _) = open.time_held_files().await?;
    let mut added = Vec::new();
    for _ in 0..TIMES {
        let (with, without) = open.time_held_files().await?;
        added.push((with.as_secs_f64() - without.as_secs_f64()) * 1e3);
    }
    open.close().await;
    let files = PACKAGES * (SOURCES + TESTS);
    let tests = PACKAGES * TESTS;
    table.add(
        format!("{files} files, {tests} tests held: the first check, which reads them"),
        first.as_secs_f64() * 1e3,
        "ms",
    );
    table.add_with_target(
        format!("{files} files, {tests} tests held: added to a check, p50"),
        percentile(&added, 50),
        HELD_MS,
        "ms",
    );
    Ok(())
}

fn write_files(folder: &Path, name: &str, count: usize) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for n in 0..count {
        fs::write(folder.join(format!("{name}_{n}.py")), format!("def part_{n}():\n    return {n}\n").repeat(20))?;
    }
    Ok(())
}
