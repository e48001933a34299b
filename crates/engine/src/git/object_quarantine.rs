//! Holds the objects of an import apart from the repository until they are checked, and reads them from there: one
//! after the other, whatever their number, so that a hostile import costs time and no memory.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};

use super::raw_diff;
use super::subprocess::{GitCommand, GitInput, GitOutput, GitOutputReader, GitOverflow, quoted_alternate};
use super::{BareRepo, Error, Sha};

/// Takes objects one after the other, in the order in which they were asked for.
pub(super) trait ObjectVisitor: Send {
    /// Decides by its size what happens to an object.
    fn choose(&mut self, index: usize, size: u64) -> ObjectStep;

    /// Takes the content of an object that was chosen.
    fn visit(&mut self, index: usize, content: &[u8]);
}

/// What happens to the next object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectStep {
    Read,
    /// Its content is not needed.
    Skip,
    /// Neither it nor any after it is needed.
    End,
}

/// An object that is not there, as git named it.
#[derive(Debug)]
pub(super) struct MissingObject(pub(super) String);

impl MissingObject {
    fn at(line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line);
        Self(ralph_core::text::strip_control(ralph_core::text::first_line(&line, 120)))
    }
}

/// A folder that holds objects until they are checked; removed on drop.
#[derive(Debug)]
pub(super) struct ObjectQuarantine<'a> {
    bare: &'a BareRepo,
    folder: tempfile::TempDir,
    /// The timeout of each git process.
    timeout: Duration,
}

impl<'a> ObjectQuarantine<'a> {
    pub(super) fn new(bare: &'a BareRepo, timeout: Duration) -> Result<Self, Error> {
        let objects = bare.path().join("objects");
        let io = |doing| {
            let path = objects.clone();
            move |source| Error::Io { doing, path, source }
        };
        // On the same file system as the repository, so that moving the pack in is a rename.
        let folder =
            tempfile::Builder::new().prefix("incoming-").tempdir_in(&objects).map_err(io("make a folder in"))?;
        std::fs::create_dir(folder.path().join("pack")).map_err(io("make a folder in"))?;
        Ok(Self { bare, folder, timeout })
    }

    fn command(&self, doing: &'static str) -> GitCommand<'a> {
        let objects = self.bare.path().join("objects");
        let call = self.bare.command(doing).env("GIT_OBJECT_DIRECTORY", self.folder.path()).timeout(self.timeout);
        // A single allocation above this is a bomb, not a source file.
        call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted_alternate(&objects)).env("GIT_ALLOC_LIMIT", "512m")
    }

    /// Lets git check every object of a pack strictly.
    pub(super) async fn index_pack(&self, pack: std::fs::File, cap: u64) -> Result<GitOutput, Error> {
        let call = self.command("check the imported objects").args(["index-pack", "--stdin", "--fix-thin", "--strict"]);
        let call = call.args(["--threads=1", "--no-rev-index"]).arg(format!("--max-input-size={cap}"));
        call.input(GitInput::File(pack)).cap(1 << 20, GitOverflow::Fail).run().await
    }

    /// Lists the changes of every commit that `base` does not reach, newest first, as `raw_diff` reads them.
    pub(super) async fn log(&self, sha: &Sha, base: &Sha, max: u64, cap: usize) -> Result<GitOutput, Error> {
        let call = self.command(WALKING);
        let call = call.args(["log", "-z", "--raw", "-m", "-r", "--root", "--no-renames", "--no-abbrev"]);
        let call =
            call.args(["--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature", raw_diff::LOG_FORMAT]);
        let call = call.arg(format!("--max-count={max}"));
        let call = call.args([sha.as_str().to_owned(), format!("^{base}"), "--".to_owned()]);
        call.cap(cap, GitOverflow::Cut).run().await
    }

    /// Reads the sizes of objects without reading them.
    pub(super) async fn sizes(&self, names: &[&Sha]) -> Result<Result<HashMap<Sha, u64>, MissingObject>, Error> {
        let names = raw_diff::terminated_list(names.iter().map(|name| name.as_str()), '\n');
        let call = self.command("measure the imported files").args(["cat-file", "--buffer"]);
        let call = call.arg("--batch-check=%(objectname) %(objectsize)").bytes(names);
        let mut sizes = HashMap::new();
        for line in call.run_checked().await?.text().lines() {
            let parsed = line.split_once(' ').and_then(|(sha, size)| Some((Sha::parse(sha).ok()?, size.parse().ok()?)));
            let Some((sha, size)) = parsed else { return Ok(Err(MissingObject::at(line.as_bytes()))) };
            sizes.insert(sha, size);
        }
        Ok(Ok(sizes))
    }

    /// Shows objects to a visitor. Between two of them other tasks run, and the caller may drop this.
    pub(super) async fn visit_objects(
        &self,
        names: &[&Sha],
        visitor: &mut dyn ObjectVisitor,
    ) -> Result<Result<(), MissingObject>, Error> {
        if names.is_empty() {
            return Ok(Ok(()));
        }
        let list = raw_diff::terminated_list(names.iter().map(|name| name.as_str()), '\n');
        let call = self.command("read the imported files").args(["cat-file", "--batch", "--buffer"]).bytes(list);
        call.run_streamed(async |output: &mut GitOutputReader| {
            let mut content = Vec::new();
            for index in 0..names.len() {
                let line = read_header(output).await?;
                let Some(size) = parse_size(&line) else { return Ok(Err(MissingObject::at(&line))) };
                match visitor.choose(index, size) {
                    ObjectStep::End => break,
                    ObjectStep::Skip => {
                        tokio::io::copy(&mut output.take(size), &mut tokio::io::sink()).await?;
                    }
                    ObjectStep::Read => {
                        content.clear();
                        let read = output.take(size).read_to_end(&mut content).await?;
                        if read as u64 != size {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        visitor.visit(index, &content);
                        tokio::task::yield_now().await;
                    }
                }
                output.read_u8().await?;
            }
            Ok(Ok(()))
        })
        .await
    }

    /// Moves the pack into the repository, its index last: for git a pack without an index does not exist.
    pub(super) fn release(self) -> Result<(), Error> {
        let from = self.folder.path().join("pack");
        let to = self.bare.path().join("objects/pack");
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| Error::Io { doing, path, source }
        };
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(&from).map_err(io("read", &from))? {
            files.push(entry.map_err(io("read", &from))?.path());
        }
        files.retain(|file| file.extension().is_some_and(|end| end != "keep"));
        files.sort_by_key(|file| file.extension().is_some_and(|end| end == "idx"));
        for file in &files {
            let Some(name) = file.file_name() else { continue };
            std::fs::rename(file, to.join(name)).map_err(io("move", file))?;
        }
        // The branch may point there only once the names are on disk.
        let folder = std::fs::File::open(&to).map_err(io("open", &to))?;
        folder.sync_all().map_err(io("sync", &to))
    }
}

/// Reads the line before an object; what follows a line that is no such header is not read any more.
async fn read_header(output: &mut GitOutputReader) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    output.take(LONGEST_HEADER).read_until(b'\n', &mut line).await?;
    match line.pop() {
        Some(_) => Ok(line),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Parses the size in `<sha> <type> <size>`.
fn parse_size(line: &[u8]) -> Option<u64> {
    let mut parts = std::str::from_utf8(line).ok()?.split(' ');
    Sha::parse(parts.next()?).ok()?;
    parts.nth(1)?.parse().ok()
}

pub(super) const WALKING: &str = "walk the imported commits";

/// A name of 64 digits, a type and a size are shorter.
const LONGEST_HEADER: u64 = 256;
