//! Tests random homes: wherever secrets are, none is visible in a bind.
//!
//! The generator is a few lines with fixed seeds, so a failure names the host that causes it.

use std::fs;
use std::path::Path;

use ralph_core::config::ToolchainSelection;

use super::fake_host::FakeToolchainHost;
use crate::toolchain::{MASK_DEPTH, ToolchainBind, ToolchainSetup};

const SECRET_MARKER: &str = "hunter2";

const FOLDERS: &[&str] = &[
    "~",
    "~/.cargo",
    "~/.cargo/bin",
    "~/.rustup",
    "~/.rustup/toolchains/stable",
    "~/.nvm",
    "~/.nvm/versions/node/v1",
    "~/.nvm/versions/node/v1/bin",
    "~/.nvm/versions/node/v1/etc",
    "~/.pyenv",
    "~/.pyenv/shims",
    "~/.pyenv/versions/3.1",
    "~/.pyenv/versions/3.1/bin",
    "~/.volta/bin",
    "~/.asdf/shims",
    "~/.asdf/installs/nodejs/1",
    "~/.asdf/installs/nodejs/1/bin",
    "~/.local",
    "~/.local/bin",
    "~/.local/share",
    "~/.local/share/mise",
    "~/.local/share/mise/shims",
    "~/.local/share/mise/installs/node/1",
    "~/.local/share/pipx/venvs/x/bin",
    "~/.local/share/uv/tools/x/bin",
    "~/.local/share/pnpm",
    "~/.bun",
    "~/.bun/bin",
    "~/.deno/bin",
    "~/go",
    "~/go/bin",
    "~/.dotnet",
    "~/.dotnet/tools",
    "~/.sdkman/candidates/java/1/bin",
    "~/.ghcup/bin",
    "~/.cabal",
    "~/.cabal/bin",
    "~/.ssh",
    "~/.ssh/bin",
    "~/.config",
    "~/.config/x/bin",
    "~/.aws",
    "~/bin",
    "~/tools",
    "~/tools/x",
    "~/tools/x/bin",
    "/opt",
    "/opt/x",
    "/opt/x/bin",
    "/opt/conda/bin",
    "/opt/conda/conda-meta",
    "/home/other/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/usr/bin",
    "/srv/x/bin",
];

const SECRETS: &[&str] = &[
    "credentials.toml",
    "credentials",
    "config.toml",
    ".npmrc",
    ".netrc",
    ".pypirc",
    "pip.conf",
    "auth.json",
    ".git-credentials",
    ".env",
    "id_rsa",
    "own.pem",
    ".git/config",
    ".ssh/key",
    ".docker/config.json",
    "FETCH_HEAD",
];

const PROGRAMS: &[&str] = &["cargo", "rustup", "node", "python", "go", "tool", "x"];

const VARIABLES: &[&str] = &[
    "CARGO_HOME",
    "RUSTUP_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VOLTA_HOME",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "PNPM_HOME",
    "BUN_INSTALL",
    "GOPATH",
    "DOTNET_ROOT",
    "JAVA_HOME",
    "N_PREFIX",
    "SDKMAN_DIR",
    "UV_TOOL_DIR",
    "PIPX_HOME",
];

pub(in crate::toolchain) struct SeededRng(pub(in crate::toolchain) u64);

impl SeededRng {
    fn below(&mut self, sides: usize) -> usize {
        // A linear congruential generator is random enough to choose names.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    pub(in crate::toolchain) fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn host(dice: &mut SeededRng) -> FakeToolchainHost {
    let mut fake = FakeToolchainHost::new();
    for _ in 0..dice.below(25) + 5 {
        let folder = dice.pick(FOLDERS);
        let (name, content) = match dice.below(3) {
            0 => (dice.pick(PROGRAMS), "#!"),
            _ => (dice.pick(SECRETS), "-----BEGIN PRIVATE KEY-----\nregistry=https://u:hunter2@x/\n"),
        };
        let name = format!("{folder}/{name}");
        let path = fake.at(&name);
        let free = path.ancestors().skip(1).all(|above| !above.exists() || above.is_dir());
        // The system's program directory is not a place for secrets.
        if free && !path.exists() && !(folder == "/usr/bin" && content.contains(SECRET_MARKER)) {
            fake = fake.file(&name, content);
        }
    }
    for _ in 0..dice.below(4) {
        let (from, to) = (dice.pick(FOLDERS), dice.pick(FOLDERS));
        let name = format!("{from}/{}", dice.pick(&["link", "bin", "current", "cargo"]));
        let path = fake.at(&name);
        if from != "/usr/bin" && path.symlink_metadata().is_err() && path.ancestors().skip(1).all(|at| !at.is_file()) {
            fake = fake.link(&name, to);
        }
    }
    for _ in 0..dice.below(3) {
        fake = fake.env(dice.pick(VARIABLES), dice.pick(FOLDERS));
    }
    fake
}

/// Returns the marked files that are readable below a bind, down to the guaranteed depth.
fn unmasked_secrets(bind: &ToolchainBind, below: &Path, depth: usize, seen: &mut Vec<String>) {
    if depth > MASK_DEPTH || bind.mask.iter().any(|mask| below == mask.below) {
        return;
    }
    let path = bind.source.join(below);
    let kind = path.symlink_metadata().expect("it is there").file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(&path).expect("ours") {
            unmasked_secrets(bind, &below.join(entry.expect("ours").file_name()), depth + 1, seen);
        }
    } else if kind.is_file() && is_known(&path) && fs::read_to_string(&path).expect("ours").contains(SECRET_MARKER) {
        seen.push(path.display().to_string());
    }
}

/// `config.toml` is a secret only in certain folders.
fn is_known(path: &Path) -> bool {
    let name = path.file_name().is_some_and(|name| name != "config.toml");
    name || path.parent().is_some_and(|dir| dir.ends_with(".cargo"))
}

fn check(fake: &FakeToolchainHost, found: &ToolchainSetup, what: &str) {
    let home = fake.home();
    let lowers = found.caches.iter().filter_map(|cache| cache.lower.as_ref());
    for bind in found.binds.iter().chain(lowers) {
        let context = format!("{what}: {bind:?}");
        assert_eq!(bind.source.canonicalize().ok().as_ref(), Some(&bind.source), "{context}");
        assert!(!home.starts_with(&bind.source), "{context}");
        for secret in [".ssh", ".config", ".aws"] {
            let secret = home.join(secret);
            assert!(!bind.source.starts_with(&secret) && !secret.starts_with(&bind.source), "{context}");
        }
        assert!(!bind.source.starts_with(fake.at("/home/other")), "{context}");
        let mut seen = Vec::new();
        unmasked_secrets(bind, Path::new(""), 0, &mut seen);
        assert_eq!(seen, Vec::<String>::new(), "{context}");
    }
    for dir in &found.path {
        let shown = dir.starts_with(fake.at("/usr")) || found.binds.iter().any(|bind| dir.starts_with(&bind.target));
        assert!(shown, "{what}: {}", dir.display());
    }
    let printed = format!("{:?} {:?} {:?} {:?}", found.path, found.env, found.files, found.notes);
    assert!(!printed.contains(SECRET_MARKER), "{what}: {printed}");
}

#[test]
fn no_secret_is_ever_shown() {
    let mut binds = 0;
    let mut masks = 0;
    for seed in 0..64 {
        let mut dice = SeededRng(seed);
        let fake = host(&mut dice);
        let there: Vec<&str> = FOLDERS.iter().copied().filter(|folder| fake.at(folder).is_dir()).collect();
        let mut path: Vec<&str> = (0..=dice.below(8)).map(|_| dice.pick(&there)).collect();
        path.push("/usr/bin");
        let asked = match dice.below(4) {
            0 => ToolchainSelection::Only(vec![dice.pick(&there).to_owned()]),
            1 => ToolchainSelection::Only(vec![dice.pick(&["rust", "node", "python"]).to_owned()]),
            _ => ToolchainSelection::Auto,
        };
        // A named folder may be refused; then nothing is shown at all.
        let Ok(found) = fake.find(&asked, &path) else { continue };
        check(&fake, &found, &format!("seed {seed}"));
        binds += found.binds.len();
        masks += found.binds.iter().map(|bind| bind.mask.len()).sum::<usize>();
    }
    // A search that finds nothing would pass every check.
    assert!(binds > 50 && masks > 25, "{binds} binds, {masks} masks");
}
