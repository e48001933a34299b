//! Writes and checks the `.ralph` files in the sandbox and their mirror on the host.
//!
//! The agent may read and extend them; append-only files may only grow. Restores and resumes use the mirror. It
//! contains no secret. Where an append-only file contains one, the file itself is masked too: only as long as both
//! have the same bytes can a file be compared with its mirror.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use ralph_core::prompt::templates;
use ralph_core::redact::Redactor;
use ralph_sandbox::{Error as SandboxError, Sandbox};

use crate::error::Error;
use crate::store::{RunFolder, write_atomic, write_unflushed};

/// The version of the layout below `.ralph`.
const FORMAT: &str = "1\n";

/// Files that only ever grow.
pub(super) const APPEND_ONLY: [&str; 4] = ["guardrails.md", "diagnostics.md", "errors.log", "activity.log"];

/// Files that the agent may write freely.
pub(super) const AGENT_OWNED: [&str; 2] = ["progress.md", "notes.md"];

/// The largest allowed `.ralph` file; a larger one is restored from the mirror.
const FILE_CAP: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct RalphFiles {
    folder: RunFolder,
    redactor: Redactor,
}

/// Returns the path of a `.ralph` file in the workspace.
pub(super) fn ralph_path(name: &str) -> PathBuf {
    Path::new(".ralph").join(name)
}

impl RalphFiles {
    pub(super) fn new(folder: RunFolder, redactor: Redactor) -> Self {
        Self { folder, redactor }
    }

    pub(super) fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Writes the initial templates, or the mirror's content when a sandbox is recreated.
    pub(super) async fn write_initial(&self, sandbox: &dyn Sandbox) -> Result<(), Error> {
        sandbox.write(&ralph_path("format"), FORMAT.as_bytes(), None).await?;
        for name in APPEND_ONLY.into_iter().chain(AGENT_OWNED) {
            let mirror = self.folder.mirror(name);
            let content = match self.folder.read(&mirror)? {
                Some(content) => content,
                None => {
                    let template = templates::initial_text(name).into_bytes();
                    write_atomic(&mirror, &template)?;
                    template
                }
            };
            sandbox.write(&ralph_path(name), &content, None).await?;
        }
        Ok(())
    }

    /// Fills the mirror from an adopted sandbox, the only remaining copy.
    pub(super) async fn recover(&self, sandbox: &dyn Sandbox) -> Result<(), Error> {
        for name in APPEND_ONLY.into_iter().chain(AGENT_OWNED) {
            let content = sandbox
                .read(&ralph_path(name), FILE_CAP)
                .await
                .unwrap_or_else(|_| templates::initial_text(name).into_bytes());
            write_atomic(&self.folder.mirror(name), &self.mask(&content))?;
        }
        Ok(())
    }

    /// Appends to a file as the agent might do, and updates the mirror.
    pub(super) async fn append(&self, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        let text = &*self.redactor.redact(text);
        let appended = match sandbox.append(&ralph_path(name), text.as_bytes()).await {
            Ok(()) => true,
            // If something is in the way there, closing the iteration finds it and restores the file from the mirror.
            Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let followed = if AGENT_OWNED.contains(&name) {
            self.sync_agent_owned(sandbox, name).await?;
            appended
        } else {
            self.sync_append_only(sandbox, name).await? && appended
        };
        if followed {
            return Ok(());
        }
        write_atomic(&self.folder.mirror(name), &[&self.read_mirror(name)?, text.as_bytes()].concat())
    }

    /// Appends the lines of one step to a log that was `at` bytes long before the step; repeating it changes nothing.
    pub(super) async fn append_at(&self, sandbox: &dyn Sandbox, name: &str, at: u64, text: &str) -> Result<(), Error> {
        let text = &*self.redactor.redact(text);
        let mirror = self.read_mirror(name)?;
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(mirror.len());
        let again = at < mirror.len();
        let written = if again {
            let whole = [mirror.get(..at).unwrap_or_default(), text.as_bytes()].concat();
            write_atomic(&self.folder.mirror(name), &whole)?;
            sandbox.write(&ralph_path(name), &whole, None).await
        } else {
            self.append_to_mirror(name, text)?;
            sandbox.append(&ralph_path(name), text.as_bytes()).await
        };
        match written {
            Err(SandboxError::Refused { .. } | SandboxError::File { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for a step that always appends the same lines: they may be the last ones already.
    pub(super) async fn append_last(&self, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        let text = &*self.redactor.redact(text);
        let mirror = self.read_mirror(name)?;
        let said = if mirror.ends_with(text.as_bytes()) { text.len() } else { 0 };
        self.append_at(sandbox, name, mirror.len().saturating_sub(said) as u64, text).await
    }

    /// Appends a text that is unique in the file, unless the file contains it already.
    pub(super) async fn append_once(&self, sandbox: &dyn Sandbox, name: &str, text: &str) -> Result<(), Error> {
        let masked = self.redactor.redact(text);
        let there = sandbox.read(&ralph_path(name), FILE_CAP).await.unwrap_or_default();
        if String::from_utf8_lossy(&there).contains(&*masked) {
            // The process that wrote it may have died before it updated the mirror.
            self.sync_append_only(sandbox, name).await?;
            return Ok(());
        }
        self.append(sandbox, name, text).await
    }

    /// Appends to the mirror alone, unless it ends with this text already; a recreated sandbox is filled from it.
    pub(super) fn append_to_mirror(&self, name: &str, text: &str) -> Result<(), Error> {
        let text = &*self.redactor.redact(text);
        let mirror = self.read_mirror(name)?;
        if mirror.ends_with(text.as_bytes()) {
            return Ok(());
        }
        write_atomic(&self.folder.mirror(name), &[&mirror, text.as_bytes()].concat())
    }

    /// Returns the length of a file's mirror.
    pub(super) fn mirror_length(&self, name: &str) -> Result<u64, Error> {
        Ok(self.read_mirror(name)?.len() as u64)
    }

    fn read_mirror(&self, name: &str) -> Result<Vec<u8>, Error> {
        Ok(self.folder.read(&self.folder.mirror(name))?.unwrap_or_default())
    }

    /// Masks secrets for the host; bytes that are not text stay as they are unless they contain a secret.
    fn mask<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        let text = String::from_utf8_lossy(bytes);
        match self.redactor.redact_and_report("a file below `.ralph`", &text) {
            Cow::Borrowed(_) => Cow::Borrowed(bytes),
            Cow::Owned(masked) => Cow::Owned(masked.into_bytes()),
        }
    }

    /// Appends to the mirror what an append-only file has gained; false when the file no longer begins like its mirror.
    async fn sync_append_only(&self, sandbox: &dyn Sandbox, name: &str) -> Result<bool, Error> {
        let mirror = self.read_mirror(name)?;
        let content = match sandbox.read(&ralph_path(name), FILE_CAP).await {
            Ok(content) => content,
            Err(SandboxError::Refused { .. } | SandboxError::File { .. } | SandboxError::TooLarge { .. }) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let masked = self.mask(&content);
        // After a crash between the two writes below, the file begins like its mirror only once it is masked.
        if !content.starts_with(&mirror) && !masked.starts_with(&mirror) {
            return Ok(false);
        }
        if *masked != *mirror {
            write_atomic(&self.folder.mirror(name), &masked)?;
        }
        if *masked != *content {
            match sandbox.write(&ralph_path(name), &masked, None).await {
                // If it cannot be written, it is masked the next time.
                Ok(()) | Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Copies a file that the agent may write freely to the mirror.
    async fn sync_agent_owned(&self, sandbox: &dyn Sandbox, name: &str) -> Result<(), Error> {
        // If it cannot be read, only the agent loses by it.
        let Ok(content) = sandbox.read(&ralph_path(name), FILE_CAP).await else { return Ok(()) };
        let masked = self.mask(&content);
        if *masked == *self.read_mirror(name)? { Ok(()) } else { write_atomic(&self.folder.mirror(name), &masked) }
    }

    /// Updates the mirror and returns the append-only files that were cut or overwritten.
    pub(super) async fn sync_and_find_overwritten(&self, sandbox: &dyn Sandbox) -> Result<Vec<&'static str>, Error> {
        let mut astray = Vec::new();
        for name in APPEND_ONLY {
            if !self.sync_append_only(sandbox, name).await? {
                astray.push(name);
            }
        }
        for name in AGENT_OWNED {
            self.sync_agent_owned(sandbox, name).await?;
        }
        Ok(astray)
    }

    /// Restores a file from its mirror.
    pub(super) async fn restore_file(&self, sandbox: &dyn Sandbox, name: &str) -> Result<(), Error> {
        clear_path(sandbox, &ralph_path(name)).await?;
        Ok(sandbox.write(&ralph_path(name), &self.read_mirror(name)?, None).await?)
    }

    /// Writes an artefact of an iteration on the host and in the sandbox. No decision depends on it, so it is not
    /// flushed to disk.
    pub(super) async fn write_artefact(
        &self,
        sandbox: &dyn Sandbox,
        n: u32,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        write_unflushed(&self.folder.iteration(n).join(name), bytes)?;
        self.write_artefact_inside(sandbox, n, name, bytes).await
    }

    /// Writes an artefact in the sandbox alone: the host has it already.
    pub(super) async fn write_artefact_inside(
        &self,
        sandbox: &dyn Sandbox,
        n: u32,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let path = ralph_path("iterations").join(n.to_string()).join(name);
        match sandbox.write(&path, bytes, None).await {
            Err(SandboxError::Refused { .. } | SandboxError::File { .. }) => {
                clear_path(sandbox, &ralph_path("iterations")).await?;
                Ok(sandbox.write(&path, bytes, None).await?)
            }
            other => Ok(other?),
        }
    }
}

/// Removes a link, pipe or folder that the agent put where one of ralph's files belongs. `rm` runs inside the
/// sandbox, so it can reach nothing that other commands there cannot reach.
async fn clear_path(sandbox: &dyn Sandbox, path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut lines = String::from(
        "for p in \"$@\"; do if [ -L \"$p\" ] || { [ -e \"$p\" ] && [ ! -d \"$p\" ]; }; then rm -f -- \"$p\"; fi; done;",
    );
    lines.push_str(" last=; for p in \"$@\"; do last=$p; done; if [ -d \"$last\" ] && [ ! -L \"$last\" ]; then chmod -R u+rwX -- \"$last\"; fi");
    if path.extension().is_some() {
        lines.push_str("; rm -rf -- \"$last\"");
    }
    let argv = [
        "sh".to_owned(),
        "-c".to_owned(),
        lines,
        "sh".to_owned(),
        parent.display().to_string(),
        path.display().to_string(),
    ];
    let exec = ralph_sandbox::ExecRequest::new(argv, std::time::Duration::from_secs(30));
    ralph_sandbox::capture(sandbox, &exec, 4096).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;

    use ralph_core::config::ToolchainSelection;
    use ralph_core::secret::Secret;
    use ralph_sandbox::local::LocalBackend;
    use ralph_sandbox::{Backend as _, SandboxLimits, SandboxNetwork, SandboxSpec};

    use super::*;

    struct RalphFilesFixture {
        dir: tempfile::TempDir,
        sandbox: Arc<dyn Sandbox>,
        files: RalphFiles,
    }

    impl RalphFilesFixture {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let spec = SandboxSpec {
                name: "one".to_owned(),
                labels: BTreeMap::new(),
                env: BTreeMap::new(),
                image: None,
                resources: SandboxLimits::default(),
                network: SandboxNetwork::None,
                toolchains: ToolchainSelection::default(),
                layers: Vec::new(),
            };
            let sandbox = LocalBackend::new(dir.path().join("sandboxes")).create(&spec).await.unwrap();
            let files = Self::files_with_secrets(&dir, &["planted-value"]);
            fs::create_dir_all(dir.path().join("run/state")).unwrap();
            for name in APPEND_ONLY.into_iter().chain(AGENT_OWNED) {
                fs::write(files.folder.mirror(name), "begin\n").unwrap();
            }
            files.write_initial(&*sandbox).await.unwrap();
            Self { dir, sandbox, files }
        }

        fn files_with_secrets(dir: &tempfile::TempDir, secrets: &[&str]) -> RalphFiles {
            let named = secrets.iter().map(|value| ("KEY".to_owned(), Secret::new(*value)));
            RalphFiles::new(RunFolder::at(dir.path().join("run")), Redactor::new(named))
        }

        async fn put(&self, name: &str, text: &[u8]) {
            self.sandbox.write(&ralph_path(name), text, None).await.unwrap();
        }

        /// The file and its mirror.
        async fn file_and_mirror(&self, name: &str) -> (String, String) {
            let mirror = String::from_utf8_lossy(&self.files.read_mirror(name).unwrap()).into_owned();
            let inside = self.sandbox.read(&ralph_path(name), FILE_CAP).await.unwrap_or_default();
            (String::from_utf8_lossy(&inside).into_owned(), mirror)
        }
    }

    #[tokio::test]
    async fn append_only_files() {
        for (case, mirror, content, want) in [
            ("nothing new", "a\n", "a\n", Some("a\n")),
            ("more", "a\n", "a\nb\n", Some("a\nb\n")),
            ("cut", "a\nb\n", "a\n", None),
            ("overwritten", "a\n", "b\n", None),
            ("more that holds a secret", "a\n", "a\nplanted-value b\n", Some("a\n[redacted:KEY] b\n")),
            ("a secret in two steps", "a\nplanted-", "a\nplanted-value\n", Some("a\n[redacted:KEY]\n")),
            (
                "one that was masked before",
                "a\n[redacted:KEY]\n",
                "a\n[redacted:KEY]\nb\n",
                Some("a\n[redacted:KEY]\nb\n"),
            ),
            ("masked on the host alone", "a [redacted:KEY]\n", "a planted-value\n", Some("a [redacted:KEY]\n")),
            ("that, and more", "a [redacted:KEY]\n", "a planted-value\nb\n", Some("a [redacted:KEY]\nb\n")),
            ("a secret that became known since", "planted-value\n", "planted-value\n", Some("[redacted:KEY]\n")),
            ("a secret that was taken out", "a [redacted:KEY]\n", "a \n", None),
        ] {
            let place = RalphFilesFixture::new().await;
            fs::write(place.files.folder.mirror("errors.log"), mirror).unwrap();
            place.put("errors.log", content.as_bytes()).await;
            let astray = place.files.sync_and_find_overwritten(&*place.sandbox).await.unwrap();
            assert_eq!(astray, if want.is_some() { vec![] } else { vec!["errors.log"] }, "{case}");
            let held = match want {
                Some(want) => (want.to_owned(), want.to_owned()),
                None => (content.to_owned(), mirror.to_owned()),
            };
            assert_eq!(place.file_and_mirror("errors.log").await, held, "{case}");
            // A second sync finds nothing to do, and a restored file equals its mirror.
            for name in astray {
                place.files.restore_file(&*place.sandbox, name).await.unwrap();
            }
            assert_eq!(
                place.files.sync_and_find_overwritten(&*place.sandbox).await.unwrap(),
                Vec::<&str>::new(),
                "{case}"
            );
            let mirror = want.unwrap_or(mirror).to_owned();
            assert_eq!(place.file_and_mirror("errors.log").await, (mirror.clone(), mirror), "{case}");
        }
    }

    #[tokio::test]
    async fn steps_that_are_done_twice_are_done_once() {
        let place = RalphFilesFixture::new().await;
        let sandbox = &*place.sandbox;
        place.put("errors.log", b"begin\nplanted-value\n").await;
        assert_eq!(place.files.sync_and_find_overwritten(sandbox).await.unwrap(), Vec::<&str>::new());
        let at = place.files.mirror_length("errors.log").unwrap();
        for _ in 0..2 {
            place.files.append_at(sandbox, "errors.log", at, "say planted-value\n").await.unwrap();
            let want = "begin\n[redacted:KEY]\nsay [redacted:KEY]\n".to_owned();
            assert_eq!(place.file_and_mirror("errors.log").await, (want.clone(), want));
        }
        for _ in 0..2 {
            place.files.append_last(sandbox, "activity.log", "planted-value\n").await.unwrap();
            place.files.append_to_mirror("diagnostics.md", "planted-value\n").unwrap();
            let want = "begin\n[redacted:KEY]\n".to_owned();
            assert_eq!(place.file_and_mirror("activity.log").await, (want.clone(), want.clone()));
            assert_eq!(place.file_and_mirror("diagnostics.md").await, ("begin\n".to_owned(), want));
        }
    }

    #[tokio::test]
    async fn what_people_and_agents_note() {
        let place = RalphFilesFixture::new().await;
        place.put("notes.md", b"planted-value\n").await;
        for name in ["notes.md", "guardrails.md"] {
            place.files.append(&*place.sandbox, name, "use planted-value\n").await.unwrap();
        }
        // The agent's own files stay unchanged in its sandbox.
        let want =
            ("planted-value\nuse [redacted:KEY]\n".to_owned(), "[redacted:KEY]\nuse [redacted:KEY]\n".to_owned());
        assert_eq!(place.file_and_mirror("notes.md").await, want);
        let want = "begin\nuse [redacted:KEY]\n".to_owned();
        assert_eq!(place.file_and_mirror("guardrails.md").await, (want.clone(), want));
    }

    #[tokio::test]
    async fn a_sandbox_that_is_taken_over() {
        let place = RalphFilesFixture::new().await;
        for name in APPEND_ONLY.into_iter().chain(AGENT_OWNED) {
            place.put(name, b"planted-value\n").await;
        }
        place.files.recover(&*place.sandbox).await.unwrap();
        assert_eq!(place.files.sync_and_find_overwritten(&*place.sandbox).await.unwrap(), Vec::<&str>::new());
        for name in APPEND_ONLY.into_iter().chain(AGENT_OWNED) {
            assert_eq!(place.file_and_mirror(name).await.1, "[redacted:KEY]\n", "{name}");
        }
        // Once the redactor no longer knows the secret, nothing changes any more.
        let forgot = RalphFilesFixture::files_with_secrets(&place.dir, &[]);
        assert_eq!(forgot.sync_and_find_overwritten(&*place.sandbox).await.unwrap(), Vec::<&str>::new());
    }

    #[tokio::test]
    async fn bytes_that_are_no_text() {
        let place = RalphFilesFixture::new().await;
        for (content, want) in [
            (&b"begin\n\xff\xfe\n"[..], &b"begin\n\xff\xfe\n"[..]),
            (b"begin\n\xff\xfe\nplanted-value\n", "begin\n\u{fffd}\u{fffd}\n[redacted:KEY]\n".as_bytes()),
        ] {
            place.put("errors.log", content).await;
            assert_eq!(place.files.sync_and_find_overwritten(&*place.sandbox).await.unwrap(), Vec::<&str>::new());
            assert_eq!(place.files.read_mirror("errors.log").unwrap(), want);
            assert_eq!(place.sandbox.read(&ralph_path("errors.log"), FILE_CAP).await.unwrap(), want);
        }
    }
}
