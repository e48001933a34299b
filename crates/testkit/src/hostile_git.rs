//! Creates repositories in which some git command runs a planted program, and commits that no host should accept.
//!
//! Every attack comes with a positive control: what an unguarded git must do for the attack to count. An attack whose
//! control does not fire proves nothing.

use std::path::{Path, PathBuf};

use crate::repo::{TestRepo, make_executable};

/// The file that a successful attack creates, and the program that creates it.
#[derive(Debug)]
pub struct AttackMarker {
    file: PathBuf,
    program: PathBuf,
}

impl AttackMarker {
    pub fn new(folder: &Path) -> Self {
        let (file, program) = (folder.join("sprung"), folder.join("spring"));
        // Reads its input, answers as a filter would, and never blocks.
        let text = format!("#!/bin/sh\ntouch '{}'\ncase \"$1\" in filter) exec cat;; esac\nexit 0\n", file.display());
        std::fs::write(&program, text).expect("a file");
        make_executable(&program);
        Self { file, program }
    }

    pub fn is_triggered(&self) -> bool {
        self.file.exists()
    }

    fn command(&self) -> String {
        self.program.display().to_string()
    }
}

/// One way to make git run a program.
#[derive(Debug, Clone, Copy)]
pub struct GitAttack {
    pub id: &'static str,
    pub name: &'static str,
    install: fn(&TestRepo, &AttackMarker),
    control: fn(&TestRepo),
}

impl GitAttack {
    /// Creates a repository with a commit, an uncommitted change and the attack in it.
    pub fn install(&self) -> (TestRepo, AttackMarker) {
        let repo = TestRepo::with_commit();
        let marker = AttackMarker::new(&repo.home());
        repo.write("data.bin", "one\n");
        repo.write(".gitignore", "ignored\n");
        repo.commit("second");
        (self.install)(&repo, &marker);
        let _ = std::fs::remove_file(&marker.file);
        repo.write("src/lib.rs", "pub fn one() -> u32 {\n    2\n}\n");
        repo.write("data.bin", "two\n");
        repo.write("untracked.txt", "new\n");
        (repo, marker)
    }

    /// Runs what triggers the attack when git is not guarded.
    pub fn trigger(&self, repo: &TestRepo) {
        (self.control)(repo);
    }
}

fn install_hook(repo: &TestRepo, marker: &AttackMarker, folder: &str, name: &str) {
    repo.write_program(&format!("{folder}/{name}"), &format!("#!/bin/sh\nexec '{}'\n", marker.command()));
}

fn set_config(repo: &TestRepo, key: &str, value: &str) {
    repo.git(["config", key, value]);
}

fn run_git(repo: &TestRepo, args: &[&str]) {
    // Many attacks make the command itself fail; only the presence of the marker counts.
    let _ = repo.try_git(args, b"protocol=https\nhost=example.invalid\n\n");
}

/// Commits a `.gitattributes` line, as an agent would.
fn commit_attributes(repo: &TestRepo, line: &str) {
    repo.write(".gitattributes", format!("{line}\n"));
    repo.git(["add", ".gitattributes"]);
    repo.git(["commit", "--quiet", "--no-verify", "-m", "attributes"]);
}

/// Returns every known attack on git as a program.
pub fn git_attacks() -> Vec<GitAttack> {
    let trap = |id, name, plant, control| GitAttack { id, name, install: plant, control };
    vec![
        trap(
            "GH-01",
            "pre-commit hook",
            |r, m| install_hook(r, m, ".git/hooks", "pre-commit"),
            |r| run_git(r, &["commit", "-am", "x"]),
        ),
        trap(
            "GH-01",
            "post-checkout hook",
            |r, m| install_hook(r, m, ".git/hooks", "post-checkout"),
            |r| {
                run_git(r, &["checkout", "-b", "x"]);
            },
        ),
        trap(
            "GH-01",
            "post-index-change hook",
            |r, m| install_hook(r, m, ".git/hooks", "post-index-change"),
            |r| {
                run_git(r, &["add", "-A"]);
            },
        ),
        trap(
            "GH-01",
            "reference-transaction hook",
            |r, m| install_hook(r, m, ".git/hooks", "reference-transaction"),
            |r| {
                run_git(r, &["branch", "x"]);
            },
        ),
        trap(
            "GH-01",
            "pre-push hook",
            |r, m| install_hook(r, m, ".git/hooks", "pre-push"),
            |r| {
                let other = r.home().join("other.git").display().to_string();
                run_git(r, &["init", "-q", "--bare", &other]);
                run_git(r, &["push", &other, "main"]);
            },
        ),
        trap(
            "GH-02",
            "hooks path in the tree",
            |r, m| {
                install_hook(r, m, "tools/hooks", "reference-transaction");
                set_config(r, "core.hooksPath", "tools/hooks");
            },
            |r| run_git(r, &["branch", "x"]),
        ),
        trap("GH-03", "fsmonitor", |r, m| set_config(r, "core.fsmonitor", &m.command()), |r| run_git(r, &["status"])),
        trap(
            "GH-04",
            "clean filter",
            |r, m| {
                commit_attributes(r, "*.bin filter=x");
                set_config(r, "filter.x.clean", &format!("{} filter", m.command()));
            },
            |r| run_git(r, &["status"]),
        ),
        trap(
            "GH-04",
            "smudge filter",
            |r, m| {
                commit_attributes(r, "*.bin filter=x");
                set_config(r, "filter.x.smudge", &format!("{} filter", m.command()));
            },
            |r| run_git(r, &["checkout", "--", "data.bin"]),
        ),
        trap(
            "GH-04",
            "process filter",
            |r, m| {
                commit_attributes(r, "*.bin filter=a.b");
                set_config(r, "filter.a.b.process", &m.command());
            },
            |r| run_git(r, &["add", "data.bin"]),
        ),
        trap(
            "GH-04",
            "filter by info/attributes",
            |r, m| {
                r.write(".git/info/attributes", "* filter=x\n");
                set_config(r, "filter.x.clean", &format!("{} filter", m.command()));
                set_config(r, "filter.x.required", "true");
            },
            |r| run_git(r, &["diff"]),
        ),
        trap(
            "GH-05",
            "text converter",
            |r, m| {
                commit_attributes(r, "*.bin diff=x");
                set_config(r, "diff.x.textconv", &m.command());
            },
            |r| run_git(r, &["diff"]),
        ),
        trap(
            "GH-05",
            "diff driver",
            |r, m| {
                commit_attributes(r, "*.bin diff=x");
                set_config(r, "diff.x.command", &m.command());
            },
            |r| run_git(r, &["diff"]),
        ),
        trap("GH-05", "external diff", |r, m| set_config(r, "diff.external", &m.command()), |r| run_git(r, &["diff"])),
        trap(
            "GH-06",
            "merge driver",
            |r, m| {
                commit_attributes(r, "README.md merge=x");
                set_config(r, "merge.x.driver", &m.command());
                r.git(["branch", "other"]);
                r.write("README.md", "# Ours\n");
                r.git(["commit", "-qm", "ours", "README.md"]);
                r.git(["checkout", "-q", "other"]);
                r.write("README.md", "# Theirs\n");
                r.git(["commit", "-qm", "theirs", "README.md"]);
                r.git(["checkout", "-q", "main"]);
            },
            |r| {
                run_git(r, &["stash"]);
                run_git(r, &["merge", "other"]);
            },
        ),
        trap("GH-07", "ssh command", |r, m| set_remote(r, "ssh://host.invalid/x", "core.sshCommand", m), run_fetch),
        trap("GH-07", "git proxy", |r, m| set_remote(r, "git://host.invalid/x", "core.gitProxy", m), run_fetch),
        trap(
            "GH-07",
            "upload-pack program",
            |r, m| set_remote(r, "/nowhere", "remote.origin.uploadpack", m),
            run_fetch,
        ),
        trap(
            "GH-07",
            "ext remote",
            |r, m| {
                set_config(r, "protocol.ext.allow", "always");
                set_config(r, "remote.origin.url", &format!("ext::{}", m.command()));
            },
            run_fetch,
        ),
        trap(
            "GH-07",
            "instead of every path",
            |r, m| {
                set_config(r, "protocol.ext.allow", "always");
                set_config(r, &format!("url.ext::{} .insteadOf", m.command()), "/");
                set_config(r, "remote.origin.url", "/srv/x");
            },
            run_fetch,
        ),
        trap(
            "GH-07",
            "credential helper",
            |r, m| set_config(r, "credential.helper", &format!("!{}", m.command())),
            |r| {
                run_git(r, &["credential", "fill"]);
            },
        ),
        trap(
            "GH-07",
            "ask-pass program",
            |r, m| set_config(r, "core.askPass", &m.command()),
            |r| run_git(r, &["credential", "fill"]),
        ),
        trap("GH-09", "editor", |r, m| set_config(r, "core.editor", &m.command()), |r| run_git(r, &["commit", "-a"])),
        trap(
            "GH-09",
            "sequence editor",
            |r, m| set_config(r, "sequence.editor", &m.command()),
            |r| {
                run_git(r, &["stash"]);
                run_git(r, &["rebase", "-i", "HEAD~1"]);
            },
        ),
        trap("GH-09", "alias", |r, m| set_config(r, "alias.st", &format!("!{}", m.command())), |r| run_git(r, &["st"])),
        trap(
            "GH-09",
            "included config",
            |r, m| {
                r.write("tools/config", format!("[core]\n\tfsmonitor = {}\n", m.command()));
                set_config(r, "include.path", "../tools/config");
            },
            |r| run_git(r, &["status"]),
        ),
        trap(
            "GH-09",
            "config included by branch",
            |r, m| {
                r.write("tools/config", format!("[filter \"x\"]\n\tclean = {} filter\n", m.command()));
                commit_attributes(r, "*.bin filter=x");
                set_config(r, "includeIf.onbranch:main.path", "../tools/config");
            },
            |r| run_git(r, &["status"]),
        ),
        trap(
            "GH-10",
            "config of the work tree",
            |r, m| {
                set_config(r, "extensions.worktreeConfig", "true");
                r.write(".git/config.worktree", format!("[core]\n\tfsmonitor = {}\n", m.command()));
            },
            |r| run_git(r, &["status"]),
        ),
        trap(
            "GH-11",
            "signing program",
            |r, m| {
                set_config(r, "gpg.program", &m.command());
                set_config(r, "commit.gpgSign", "true");
                set_config(r, "log.showSignature", "true");
            },
            |r| run_git(r, &["commit", "-am", "x"]),
        ),
        trap(
            "GH-11",
            "refs of alternates",
            |r, m| {
                let other = r.home().join("alternate.git").display().to_string();
                run_git(r, &["clone", "-q", "--bare", ".", &other]);
                r.write(".git/objects/info/alternates", format!("{other}/objects\n"));
                set_config(r, "core.alternateRefsCommand", &m.command());
                set_config(r, "remote.origin.url", &other);
                r.git(["--git-dir", &other, "update-ref", "refs/heads/more", "HEAD"]);
            },
            |r| {
                let other = r.home().join("third").display().to_string();
                run_git(r, &["clone", "-q", ".", &other]);
                run_git(r, &["-C", &other, "commit", "-q", "--allow-empty", "-m", "x"]);
                run_git(r, &["fetch", &other, "main:third"]);
            },
        ),
        trap(
            "GH-12",
            "nested repository",
            |r, m| {
                let nested = r.path().join("vendor/x").display().to_string();
                r.git(["init", "-q", &nested]);
                r.git(["-C", &nested, "commit", "-q", "--allow-empty", "-m", "x"]);
                r.git(["add", "vendor/x"]);
                r.git(["commit", "-qm", "nested"]);
                r.git(["-C", &nested, "config", "core.fsmonitor", &m.command()]);
            },
            |r| run_git(r, &["status"]),
        ),
    ]
}

fn set_remote(repo: &TestRepo, url: &str, key: &str, marker: &AttackMarker) {
    set_config(repo, "remote.origin.url", url);
    set_config(repo, key, &marker.command());
}

fn run_fetch(repo: &TestRepo) {
    run_git(repo, &["fetch", "origin"]);
}

/// A commit that git itself accepts silently and a strict check must refuse.
#[derive(Debug, Clone, Copy)]
pub struct BadCommit {
    pub id: &'static str,
    pub name: &'static str,
    make: fn(&TestRepo, &str) -> String,
}

impl BadCommit {
    /// Creates the commit on top of `parent` and returns its name.
    pub fn make(&self, repo: &TestRepo, parent: &str) -> String {
        (self.make)(repo, parent)
    }
}

fn commit_gitmodules(repo: &TestRepo, parent: &str, text: &str) -> String {
    let blob = repo.blob(text.as_bytes());
    repo.commit_entries(parent, &[("100644", "blob", &blob, ".gitmodules"), ("160000", "commit", parent, "sub")])
}

fn commit_folder(repo: &TestRepo, parent: &str, name: &str) -> String {
    let hook = repo.blob(b"#!/bin/sh\n");
    let tree = repo.git_with_input(["mktree"], format!("100755 blob {hook}\tpost-checkout\n").as_bytes());
    repo.commit_entries(parent, &[("40000", "tree", &tree, name)])
}

/// Returns commits whose trees would make a checkout dangerous.
pub fn bad_commits() -> Vec<BadCommit> {
    let bad = |id, name, make| BadCommit { id, name, make };
    vec![
        bad("GH-13", "submodule url is an option", |r, p| {
            commit_gitmodules(r, p, "[submodule \"s\"]\n\tpath = sub\n\turl = -u./x\n")
        }),
        bad("GH-13", "submodule url is a program", |r, p| {
            commit_gitmodules(
                r,
                p,
                "[submodule \"s\"]\n\tpath = sub\n\turl = ext::sh -c touch% x\n\tupdate = !touch x\n",
            )
        }),
        bad("GH-13", "submodule name leaves the folder", |r, p| {
            commit_gitmodules(r, p, "[submodule \"../../x\"]\n\tpath = sub\n\turl = https://host.invalid/x\n")
        }),
        bad("GH-13", "submodule path is an option", |r, p| {
            commit_gitmodules(r, p, "[submodule \"s\"]\n\tpath = -x\n\turl = https://host.invalid/x\n")
        }),
        bad("GH-13", "gitmodules is a link", |r, p| {
            let blob = r.blob(b"elsewhere");
            r.commit_entries(p, &[("120000", "blob", &blob, ".gitmodules")])
        }),
        bad("GH-14", "folder named .git", |r, p| commit_folder(r, p, ".git")),
        bad("GH-14", "folder named .GIT", |r, p| commit_folder(r, p, ".GIT")),
        bad("GH-14", "folder named git~1", |r, p| commit_folder(r, p, "git~1")),
        bad("GH-14", "folder named .git with an unseen character", |r, p| commit_folder(r, p, ".g\u{200c}it")),
        bad("GH-15", "folder named ..", |r, p| commit_folder(r, p, "..")),
        bad("GH-15", "name with a slash", |r, p| {
            let blob = r.blob(b"x");
            r.commit_entries(p, &[("100644", "blob", &blob, "../../x")])
        }),
        bad("GH-15", "two entries of one name", |r, p| {
            let (one, two) = (r.blob(b"one"), r.blob(b"two"));
            r.commit_entries(p, &[("100644", "blob", &one, "x"), ("100644", "blob", &two, "x")])
        }),
    ]
}
