//! Creates a git repository in a temporary folder that is the same on every machine: own config, own identity, own
//! clock.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// A repository with a work tree. Git runs in it with everything it is configured to run, which attacks rely on.
#[derive(Debug)]
pub struct TestRepo {
    folder: TempDir,
    clock: AtomicU64,
}

impl Default for TestRepo {
    fn default() -> Self {
        Self::new()
    }
}

impl TestRepo {
    /// Creates an empty repository on branch `main`.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let repo = Self { folder, clock: AtomicU64::new(1_700_000_000) };
        std::fs::create_dir(repo.path()).expect("a folder");
        std::fs::create_dir(repo.home()).expect("a folder");
        repo.git(["init", "--quiet", "--initial-branch=main"]);
        repo
    }

    /// Creates a repository with one commit: a `README.md` and `src/lib.rs`.
    pub fn with_commit() -> Self {
        let repo = Self::new();
        repo.write("README.md", "# Test\n");
        repo.write("src/lib.rs", "pub fn one() -> u32 {\n    1\n}\n");
        repo.commit("first");
        repo
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("repo")
    }

    /// Returns a folder beside the repository, for anything else a test needs.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Runs git and returns what it printed; a failure fails the test.
    #[track_caller]
    pub fn git<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        self.git_with_input(args, b"")
    }

    /// Runs git with input and returns what it printed; a failure fails the test.
    #[track_caller]
    pub fn git_with_input<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &[u8]) -> String {
        let args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let output = self.try_git(&args, input);
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Runs git and returns its output, also when it fails.
    pub fn try_git<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &[u8]) -> Output {
        use std::io::Write as _;
        let now = self.clock.fetch_add(60, Ordering::Relaxed);
        let mut command = hermetic_command("git", &self.home());
        command.args(args).current_dir(self.path());
        command.env("GIT_AUTHOR_DATE", format!("@{now} +0000")).env("GIT_COMMITTER_DATE", format!("@{now} +0000"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("git is installed");
        let mut stdin = child.stdin.take().expect("it was piped");
        // A program that does not read its input may have ended already.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    #[track_caller]
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it is below the repository")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    /// Writes an executable file.
    #[track_caller]
    pub fn write_program(&self, path: &str, text: &str) {
        self.write(path, text);
        make_executable(&self.path().join(path));
    }

    pub fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path().join(path)).ok()
    }

    /// Commits everything and returns the commit's name.
    #[track_caller]
    pub fn commit(&self, message: &str) -> String {
        self.git(["add", "--all"]);
        self.git(["commit", "--quiet", "--allow-empty", "--message", message]);
        self.head()
    }

    #[track_caller]
    pub fn head(&self) -> String {
        self.git(["rev-parse", "HEAD"])
    }

    /// Creates a commit of raw tree entries (`mode type sha<TAB>name`), also with invalid names.
    #[track_caller]
    pub fn commit_entries(&self, parent: &str, entries: &[(&str, &str, &str, &str)]) -> String {
        let mut bytes = Vec::new();
        let mut sorted = entries.to_vec();
        sorted.sort_by_key(|(mode, _, _, name)| if *mode == "40000" { format!("{name}/") } else { (*name).to_owned() });
        for (mode, _, sha, name) in sorted {
            bytes.extend(format!("{mode} {name}\0").bytes());
            bytes.extend((0..sha.len()).step_by(2).map(|at| {
                let digits = sha.get(at..at + 2).expect("a whole byte");
                u8::from_str_radix(digits, 16).expect("hex")
            }));
        }
        let tree = self.git_with_input(["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], &bytes);
        self.git(["commit-tree", "-p", parent, "-m", "made by hand", &tree])
    }

    #[track_caller]
    pub fn blob(&self, bytes: &[u8]) -> String {
        self.git_with_input(["hash-object", "-w", "--stdin", "--no-filters"], bytes)
    }

    /// Writes a bundle of these refs and returns its path.
    #[track_caller]
    pub fn bundle(&self, name: &str, refs: &[&str]) -> PathBuf {
        let path = self.home().join(name);
        let mut args = vec!["bundle", "create", "--quiet", path.to_str().expect("a plain path")];
        args.extend(refs);
        self.git(args);
        path
    }
}

/// Returns a command with no environment variable of this machine except `PATH`.
#[expect(clippy::disallowed_methods, reason = "programs are found on the `PATH` of the test itself")]
pub fn hermetic_command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    command.env("LC_ALL", "C").env("TERM", "xterm");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Test").env(format!("GIT_{role}_EMAIL"), "test@localhost");
    }
    command
}

pub(crate) fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it was just written");
}
