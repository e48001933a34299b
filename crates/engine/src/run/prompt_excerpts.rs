//! Reads the parts of a run's files that a prompt shows: their ends, never the whole. An agent can make a file of any
//! size, and building a prompt must not depend on it.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_core::prompt::{PromptPart, ShownEnd, UnreadBytes};
use ralph_sandbox::{Error as SandboxError, ExecRequest, Sandbox, capture};

use super::iteration_close_checkpoint::TEST_OUTPUT_FILE;
use super::ralph_folder_files::{RalphFiles, ralph_path};
use crate::error::{Error, file_error};
use crate::store::RunFolder;

/// The texts of a prompt that come from files.
#[derive(Debug, Default)]
pub(super) struct PromptExcerpts {
    pub(super) guardrails: String,
    pub(super) progress: String,
    pub(super) notes: String,
    pub(super) errors: String,
    /// The output of the tests when they last ran, and in which iteration that was.
    pub(super) test_output: String,
    pub(super) tested_in: Option<u32>,
    /// How many bytes of each file are not shown.
    pub(super) unread: Vec<UnreadBytes>,
}

/// A part of a file, and how much of the file is missing.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileExcerpt {
    text: String,
    unread: u64,
}

impl PromptExcerpts {
    /// Reads what the prompt of iteration `n` shows: the `.ralph` files as the agent sees them, and the host's own
    /// record of the tests.
    pub(super) async fn read(files: &RalphFiles, sandbox: &dyn Sandbox, n: u32) -> Result<Self, Error> {
        let mut excerpts = Self::default();
        for (part, name) in [
            (PromptPart::Guardrails, "guardrails.md"),
            (PromptPart::Progress, "progress.md"),
            (PromptPart::Notes, "notes.md"),
            (PromptPart::Errors, "errors.log"),
        ] {
            let piece = read_sandbox_excerpt(sandbox, name, part).await?;
            excerpts.set_part(part, piece);
        }
        if let Some((tested_in, path)) = last_test_output(files.folder(), n) {
            excerpts.set_part(
                PromptPart::TestOutput,
                read_host_excerpt(&path, PromptPart::TestOutput).map_err(file_error("read", &path))?,
            );
            excerpts.tested_in = Some(tested_in);
        }
        Ok(excerpts)
    }

    fn set_part(&mut self, part: PromptPart, piece: FileExcerpt) {
        let place = match part {
            PromptPart::Guardrails => &mut self.guardrails,
            PromptPart::Progress => &mut self.progress,
            PromptPart::Notes => &mut self.notes,
            PromptPart::Errors => &mut self.errors,
            _ => &mut self.test_output,
        };
        *place = piece.text;
        if piece.unread > 0 {
            self.unread.push(UnreadBytes { part, bytes: piece.unread });
        }
    }
}

/// Finds the newest iteration before `n` in which the tests ran, and their output. Not every iteration runs the tests:
/// one that only reads files changes nothing, and needs to see what failed before.
pub(super) fn last_test_output(folder: &RunFolder, n: u32) -> Option<(u32, PathBuf)> {
    (0..n).rev().map(|n| (n, folder.iteration(n).join(TEST_OUTPUT_FILE))).find(|(_, path)| path.is_file())
}

fn cap(part: PromptPart) -> u64 {
    u64::try_from(part.cap()).unwrap_or(u64::MAX)
}

/// Reads a `.ralph` file: all of it when it is small, else the end that is shown. What cannot be read as a file
/// counts as empty.
async fn read_sandbox_excerpt(sandbox: &dyn Sandbox, name: &str, part: PromptPart) -> Result<FileExcerpt, Error> {
    let path = ralph_path(name);
    match sandbox.read(&path, cap(part)).await {
        Ok(bytes) => Ok(FileExcerpt { text: String::from_utf8_lossy(&bytes).into_owned(), unread: 0 }),
        Err(SandboxError::TooLarge { .. }) => print_end_in_sandbox(sandbox, &path, part).await,
        Err(error @ (SandboxError::Refused { .. } | SandboxError::File { .. })) => {
            tracing::debug!(%error, name, "a .ralph file could not be read");
            Ok(FileExcerpt::default())
        }
        Err(error) => Err(error.into()),
    }
}

// Links are not followed, and only plain files are opened. Both programs name the path they read from.
const END_SCRIPT: &str = r#"[ -f "$1" ] && [ ! -L "$1" ] || exit 1
wc -c < "$1"
"$2" -c "$3" < "$1""#;

/// Prints the end of a large file by a command inside the sandbox.
async fn print_end_in_sandbox(sandbox: &dyn Sandbox, path: &Path, part: PromptPart) -> Result<FileExcerpt, Error> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    const MORE: usize = 1024;
    let program = match part.shown_end() {
        ShownEnd::Start => "head",
        ShownEnd::End => "tail",
    };
    let (path, count) = (path.display().to_string(), part.cap().to_string());
    let exec = ExecRequest::new(["sh", "-c", END_SCRIPT, "sh", &path, program, &count], TIMEOUT);
    let output = capture(sandbox, &exec, part.cap() + MORE).await?;
    let newline = output.stdout.iter().position(|byte| *byte == b'\n');
    let parts = newline.and_then(|at| output.stdout.split_at_checked(at + 1));
    let size = parts.and_then(|(size, _)| std::str::from_utf8(size).ok()?.trim().parse::<u64>().ok());
    match (parts, size) {
        (Some((_, bytes)), Some(size)) if output.exit.success() && !output.truncated => {
            Ok(FileExcerpt { text: whole_characters(bytes), unread: size.saturating_sub(bytes.len() as u64) })
        }
        _ => {
            tracing::debug!(path, code = output.exit.code(), "the end of a .ralph file could not be read");
            // The length is unknown, except that it is more than what is shown.
            Ok(FileExcerpt { text: String::new(), unread: cap(part) })
        }
    }
}

/// Reads the part of a host file that is shown; a missing file is empty.
fn read_host_excerpt(path: &Path, part: PromptPart) -> io::Result<FileExcerpt> {
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileExcerpt::default()),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    if part.shown_end() == ShownEnd::End {
        file.seek(SeekFrom::Start(size.saturating_sub(cap(part))))?;
    }
    let mut bytes = Vec::new();
    file.take(cap(part)).read_to_end(&mut bytes)?;
    Ok(FileExcerpt { unread: size.saturating_sub(bytes.len() as u64), text: whole_characters(&bytes) })
}

/// Decodes bytes that may begin or end in the middle of a character.
pub(super) fn whole_characters(bytes: &[u8]) -> String {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let start = bytes.iter().take(3).take_while(|byte| continues(byte)).count();
    let bytes = bytes.get(start..).unwrap_or_default();
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default()).into_owned()
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use ralph_core::config::ToolchainSelection;
    use ralph_core::redact::Redactor;
    use ralph_sandbox::local::LocalBackend;
    use ralph_sandbox::{Backend as _, SandboxLimits, SandboxNetwork, SandboxSpec};

    use super::*;

    #[test]
    fn characters_that_were_cut() {
        for (bytes, want) in [
            ("äb".as_bytes().get(1..).unwrap(), "b"),
            ("a…".as_bytes().get(..2).unwrap(), "a"),
            (b"a\xffb", "a\u{fffd}b"),
            (b"", ""),
            (b"\x80\x80\x80\x80", "\u{fffd}"),
        ] {
            assert_eq!(whole_characters(bytes), want, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn ends_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let spec = SandboxSpec {
            layers: Vec::new(),
            name: "one".to_owned(),
            labels: BTreeMap::new(),
            env: BTreeMap::new(),
            image: None,
            resources: SandboxLimits::default(),
            network: SandboxNetwork::None,
            toolchains: ToolchainSelection::default(),
        };
        let sandbox = LocalBackend::new(dir.path().join("sandboxes")).create(&spec).await.unwrap();
        let files = RalphFiles::new(RunFolder::at(dir.path().join("run")), Redactor::new([]));
        let long = format!("{}the end\n", "words and more words\n".repeat(9000));
        for name in ["guardrails.md", "progress.md", "errors.log"] {
            sandbox.write(&ralph_path(name), long.as_bytes(), None).await.unwrap();
        }
        sandbox.write(&ralph_path("real.md"), long.as_bytes(), None).await.unwrap();
        std::os::unix::fs::symlink("real.md", sandbox.workspace().join(ralph_path("notes.md"))).unwrap();
        fs::create_dir_all(files.folder().iteration(3)).unwrap();
        fs::write(files.folder().iteration(3).join("test_output.txt"), &long).unwrap();
        let read = PromptExcerpts::read(&files, &*sandbox, 4).await.unwrap();
        let end = |part: PromptPart| long.get(long.len() - part.cap()..).unwrap();
        assert_eq!(read.guardrails, end(PromptPart::Guardrails));
        assert_eq!(read.errors, end(PromptPart::Errors));
        assert_eq!(read.test_output, end(PromptPart::TestOutput));
        assert_eq!(read.progress, long.get(..PromptPart::Progress.cap()).unwrap());
        assert_eq!(read.notes, "", "a link is not followed");
        let unread = |part: PromptPart| UnreadBytes { part, bytes: (long.len() - part.cap()) as u64 };
        let want =
            [PromptPart::Guardrails, PromptPart::Progress, PromptPart::Errors, PromptPart::TestOutput].map(unread);
        assert_eq!((read.unread, read.tested_in), (want.to_vec(), Some(3)));
        // An iteration that runs no tests leaves the earlier output.
        fs::create_dir_all(files.folder().iteration(4)).unwrap();
        let read = PromptExcerpts::read(&files, &*sandbox, 9).await.unwrap();
        assert_eq!((read.test_output.as_str(), read.tested_in), (end(PromptPart::TestOutput), Some(3)));
        // Small files are read whole, and a missing one is empty.
        sandbox.write(&ralph_path("errors.log"), b"one\n", None).await.unwrap();
        let read = PromptExcerpts::read(&files, &*sandbox, 3).await.unwrap();
        assert_eq!((read.errors.as_str(), read.test_output.as_str(), read.tested_in), ("one\n", "", None));
    }
}
