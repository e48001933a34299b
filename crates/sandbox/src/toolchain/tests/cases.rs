//! Tests one host per toolchain.

use ralph_core::config::ToolchainSelection;

use super::fake_host::FakeToolchainHost;
use crate::toolchain::ToolchainError;

#[track_caller]
fn check(fake: &FakeToolchainHost, path: &[&str], want: &[&str]) {
    let found = fake.find(&ToolchainSelection::Auto, path).expect("auto never fails");
    assert_eq!(fake.lines(&found), want);
}

fn only(names: &[&str]) -> ToolchainSelection {
    ToolchainSelection::Only(names.iter().map(|name| (*name).to_owned()).collect())
}

#[track_caller]
fn check_only(fake: &FakeToolchainHost, names: &[&str], path: &[&str], want: Result<&[&str], &ToolchainError>) {
    let got = fake.find(&only(names), path).map(|found| fake.lines(&found));
    let got = got.as_ref().map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(got, want.map(<[&str]>::to_vec), "{names:?}");
}

fn rust() -> FakeToolchainHost {
    FakeToolchainHost::new()
        .exes(&["~/.cargo/bin/rustup", "~/.cargo/bin/cargo-nextest"])
        .link("~/.cargo/bin/cargo", "rustup")
        .file("~/.cargo/credentials.toml", "token")
        .exe("~/.rustup/toolchains/stable-x/bin/rustc")
        .exe("~/.rustup/toolchains/nightly-x/bin/rustc")
        .link("~/.rustup/toolchains/1.95.0-x", "~/.rustup/toolchains/stable-x")
        .file(
            "~/.rustup/settings.toml",
            "default_toolchain = \"stable\"\n[overrides]\n\"/home/u/secret\" = \"stable\"\n",
        )
}

#[test]
fn rust_is_shown_with_its_toolchains_and_its_own_home() {
    let want = [
        "bind ~/.rustup/toolchains/stable-x => /home/agent/.rustup/toolchains/1.95.0-x",
        "bind ~/.rustup/toolchains/nightly-x => /home/agent/.rustup/toolchains/nightly-x",
        "bind ~/.rustup/toolchains/stable-x => /home/agent/.rustup/toolchains/stable-x",
        "bind ~/.cargo/bin",
        "path ~/.cargo/bin:/usr/bin",
        "env CARGO_HOME=/home/agent/.cargo",
        "env RUSTUP_HOME=/home/agent/.rustup",
        "file /home/agent/.rustup/settings.toml \
         \"version = \\\"12\\\"\\nprofile = \\\"minimal\\\"\\ndefault_toolchain = \\\"stable-x\\\"\\n\"",
    ];
    check(&rust(), &["~/.cargo/bin", "/usr/bin"], &want);
    check_only(
        &rust(),
        &["rust"],
        &["/usr/bin"],
        Ok(&{
            let mut want = want;
            want[4] = "path /usr/bin:~/.cargo/bin";
            want
        }),
    );
    check_only(&rust(), &["rustup"], &["~/.cargo/bin", "/usr/bin"], Ok(&want));
}

#[test]
fn a_linked_home_is_shown_under_both_names() {
    let fake = FakeToolchainHost::new().exe("/opt/data/cargo/bin/tool").link("~/.cargo", "/opt/data/cargo");
    check(
        &fake,
        &["~/.cargo/bin", "/usr/bin"],
        &[
            "bind /opt/data/cargo/bin => ~/.cargo/bin",
            "bind /opt/data/cargo/bin",
            "path ~/.cargo/bin:/usr/bin",
            "env CARGO_HOME=/home/agent/.cargo",
        ],
    );
    let fake = FakeToolchainHost::new().exe("~/.ssh/bin/tool").link("~/.cargo", "~/.ssh");
    check(
        &fake,
        &["~/.cargo/bin", "/usr/bin"],
        &["path /usr/bin", "note `~/.cargo/bin` is not shown: keys and settings are kept there"],
    );
}

#[test]
fn only_plain_registries_of_a_cargo_config_are_passed_on() {
    let fake = FakeToolchainHost::new().exe("~/.cargo/bin/cargo").file(
        "~/.cargo/config.toml",
        "[registry]\ntoken = \"secret\"\n[source.crates-io]\nreplace-with = \"near\"\n\
         [source.near]\nregistry = \"sparse+https://near.example/\"\n",
    );
    check(
        &fake,
        &["~/.cargo/bin", "/usr/bin"],
        &[
            "bind ~/.cargo/bin",
            "path ~/.cargo/bin:/usr/bin",
            "env CARGO_HOME=/home/agent/.cargo",
            "file /home/agent/.cargo/config.toml \"[source.crates-io]\\nreplace-with = \\\"near\\\"\\n\
             [source.near]\\nregistry = \\\"sparse+https://near.example/\\\"\\n\"",
            "note the registries of ~/.cargo/config.toml are known inside, and nothing else of it",
        ],
    );
}

#[test]
fn node_is_shown_as_one_version() {
    let nvm = FakeToolchainHost::new()
        .exes(&["~/.nvm/versions/node/v20.1.0/bin/node", "~/.nvm/versions/node/v9.0.0/bin/node"])
        .file("~/.nvm/versions/node/v20.1.0/etc/npmrc", "//x/:_authToken=secret")
        .file("~/.npmrc", "registry=https://near.example/npm/\n//near.example/:_authToken=secret");
    let want = [
        "bind ~/.nvm/versions/node/v20.1.0 without etc/npmrc",
        "path ~/.nvm/versions/node/v20.1.0/bin:/usr/bin",
        "env npm_config_registry=https://near.example/npm/",
        "note `npm_config_registry` is `https://near.example/npm/`, as in ~/.npmrc: the sandbox must be allowed to reach it",
    ];
    check(&nvm, &["~/.nvm/versions/node/v20.1.0/bin", "/usr/bin"], &want);
    check_only(
        &nvm,
        &["node"],
        &["/usr/bin"],
        Ok(&{
            let mut want = want;
            want[1] = "path /usr/bin:~/.nvm/versions/node/v20.1.0/bin";
            want
        }),
    );

    let fnm = FakeToolchainHost::new()
        .exe("~/.local/share/fnm/node-versions/v20.1.0/installation/bin/node")
        .link("/run/fnm_multishells/1", "~/.local/share/fnm/node-versions/v20.1.0/installation");
    check(
        &fnm,
        &["/run/fnm_multishells/1/bin", "/usr/bin"],
        &[
            "bind ~/.local/share/fnm/node-versions/v20.1.0",
            "path ~/.local/share/fnm/node-versions/v20.1.0/installation/bin:/usr/bin",
        ],
    );

    let volta = FakeToolchainHost::new()
        .exes(&["~/.volta/bin/node", "~/.volta/tools/image/node/20.1.0/bin/node"])
        .exe("~/.volta/tools/image/yarn/1.22.0/bin/yarn")
        .file("~/.volta/tools/user/platform.json", r#"{"node":{"runtime":"20.1.0","npm":null},"yarn":"1.22.0"}"#);
    check(
        &volta,
        &["~/.volta/bin", "/usr/bin"],
        &[
            "bind ~/.volta/tools/image/node/20.1.0",
            "bind ~/.volta/tools/image/yarn/1.22.0",
            "path ~/.volta/tools/image/yarn/1.22.0/bin:~/.volta/tools/image/node/20.1.0/bin:/usr/bin",
            "note the shims of volta are replaced by yarn 1.22.0, node 20.1.0",
        ],
    );
    let empty = FakeToolchainHost::new().exe("~/.volta/bin/node").file("~/.volta/tools/user/platform.json", "[");
    check(
        &empty,
        &["~/.volta/bin", "/usr/bin"],
        &["path /usr/bin", "note volta has no default version of node; `volta install node` sets one"],
    );

    let n = FakeToolchainHost::new()
        .exes(&["~/n/bin/node", "~/n/lib/node_modules/npm/cli.js", "~/n/.npmrc"])
        .env("N_PREFIX", "~/n");
    check(&n, &["~/n/bin", "/usr/bin"], &["bind ~/n/bin", "bind ~/n/lib/node_modules", "path ~/n/bin:/usr/bin"]);
}

#[test]
fn shims_are_replaced_by_the_versions_they_choose() {
    let pyenv = FakeToolchainHost::new()
        .exes(&["~/.pyenv/shims/python", "~/.pyenv/bin/pyenv", "~/.pyenv/plugins/virtualenv/shims/x"])
        .exes(&["~/.pyenv/versions/3.11.7/bin/python", "~/.pyenv/versions/3.12.1/bin/python"])
        .file("~/.pyenv/version", "3.11\nsystem\n3.9\n")
        .file("~/.pypirc", "password = secret");
    let path = ["~/.pyenv/plugins/virtualenv/shims", "/usr/bin", "~/.pyenv/shims", "~/.pyenv/bin"];
    check(
        &pyenv,
        &path,
        &[
            "bind ~/.pyenv/versions/3.11.7",
            "path ~/.pyenv/versions/3.11.7/bin:/usr/bin",
            "note pyenv names version `3.9`, which is not installed",
            "note the shims of pyenv are replaced by version 3.11.7",
        ],
    );
    check(
        &pyenv.env("PYENV_VERSION", "3.12.1"),
        &path,
        &[
            "bind ~/.pyenv/versions/3.12.1",
            "path ~/.pyenv/versions/3.12.1/bin:/usr/bin",
            "note the shims of pyenv are replaced by version 3.12.1",
        ],
    );

    let rbenv = FakeToolchainHost::new()
        .exes(&["/opt/rbenv/shims/ruby", "/opt/rbenv/versions/3.3.0/bin/ruby"])
        .file("/opt/rbenv/version", "3.3.0")
        .env("RBENV_ROOT", "/opt/rbenv");
    check(
        &rbenv,
        &["/opt/rbenv/shims", "/usr/bin"],
        &[
            "bind /opt/rbenv/versions/3.3.0",
            "path /opt/rbenv/versions/3.3.0/bin:/usr/bin",
            "env GEM_HOME=/home/agent/.gem",
            "note the shims of rbenv are replaced by version 3.3.0",
        ],
    );

    let asdf = FakeToolchainHost::new()
        .exes(&["~/.asdf/shims/node", "~/.asdf/installs/nodejs/20.1.0/bin/node"])
        .exes(&["~/.asdf/installs/nodejs/18.0.0/bin/node", "~/.asdf/installs/golang/1.22/bin/go"])
        .file("~/.tool-versions", "nodejs 18.0.0 # old\n");
    check(
        &asdf,
        &["~/.asdf/shims", "/usr/bin"],
        &[
            "bind ~/.asdf/installs/golang/1.22",
            "bind ~/.asdf/installs/nodejs/18.0.0",
            "path ~/.asdf/installs/golang/1.22/bin:~/.asdf/installs/nodejs/18.0.0/bin:/usr/bin",
            "env GOPATH=/home/agent/go",
            "note the shims of asdf are replaced by golang 1.22, nodejs 18.0.0",
        ],
    );
    check_only(
        &asdf,
        &["node"],
        &["~/.asdf/shims", "/usr/bin"],
        Ok(&[
            "bind ~/.asdf/installs/nodejs/18.0.0",
            "path ~/.asdf/installs/nodejs/18.0.0/bin:/usr/bin",
            "note the shims of asdf are replaced by nodejs 18.0.0",
        ]),
    );

    let mise = FakeToolchainHost::new()
        .exes(&["~/.local/share/mise/shims/node", "~/.local/share/mise/installs/node/20.1.0/bin/node"])
        .exes(&["~/.local/share/mise/installs/node/22.0.0/bin/node", "~/.local/share/mise/installs/jq/1.7/jq"])
        .link("~/.local/share/mise/installs/node/latest", "22.0.0")
        .file("~/.config/mise/config.toml", "[tools]\nnode = \"20\"\n");
    check(
        &mise,
        &["~/.local/share/mise/shims", "/usr/bin"],
        &[
            "bind ~/.local/share/mise/installs/jq/1.7",
            "bind ~/.local/share/mise/installs/node/20.1.0",
            "path ~/.local/share/mise/installs/jq/1.7:~/.local/share/mise/installs/node/20.1.0/bin:/usr/bin",
            "note the shims of mise are replaced by jq 1.7, node 20.1.0",
        ],
    );
    check(
        &mise,
        &["~/.local/share/mise/installs/node/latest/bin", "/usr/bin"],
        &[
            "bind ~/.local/share/mise/installs/node/22.0.0",
            "bind ~/.local/share/mise/installs/node/22.0.0 => ~/.local/share/mise/installs/node/latest",
            "path ~/.local/share/mise/installs/node/latest/bin:/usr/bin",
        ],
    );
}

#[test]
fn link_targets_of_programs_are_shown() {
    let fake = FakeToolchainHost::new()
        .exe("~/.local/bin/uv")
        .exe("~/.local/share/uv/python/cpython-3.12/bin/python3.12")
        .link("~/.local/bin/python3.12", "~/.local/share/uv/python/cpython-3.12/bin/python3.12")
        .exe("~/.local/share/pipx/venvs/black/bin/black")
        .file("~/.local/share/pipx/venvs/black/pyvenv.cfg", "home = x")
        .link("~/.local/share/pipx/venvs/black/bin/python", "~/.pyenv/versions/3.11.7/bin/python")
        .exe("~/.pyenv/versions/3.11.7/bin/python")
        .link("~/.local/bin/black", "~/.local/share/pipx/venvs/black/bin/black")
        .exe("~/.local/lib/node_modules/tsc/bin/tsc")
        .link("~/.local/bin/tsc", "../lib/node_modules/tsc/bin/tsc")
        .exe("~/secret/tool")
        .link("~/.local/bin/tool", "~/secret/tool")
        .link("~/.local/bin/sh", "/usr/bin/sh")
        .link("~/.local/bin/gone", "/nowhere");
    check(
        &fake,
        &["~/.local/bin", "/usr/bin"],
        &[
            "bind ~/.local/bin",
            "bind ~/.local/lib/node_modules",
            "bind ~/.local/share/pipx/venvs/black",
            "bind ~/.local/share/uv/python/cpython-3.12",
            "bind ~/.pyenv/versions/3.11.7",
            "path ~/.local/bin:/usr/bin",
            "note in `~/.local/bin` these programs link to folders that are not shown: tool; \
             name those folders in `sandbox.toolchains` to show them",
        ],
    );
}

#[test]
fn other_toolchains_are_shown_with_what_they_need() {
    let conda = FakeToolchainHost::new()
        .exes(&["/opt/conda/bin/python", "/opt/conda/conda-meta/history"])
        .file("/opt/conda/.condarc", "channels: [https://x/t/secret]");
    check(
        &conda,
        &["/opt/conda/bin", "/usr/bin"],
        &["bind /opt/conda without .condarc", "path /opt/conda/bin:/usr/bin"],
    );

    let go = FakeToolchainHost::new()
        .exes(&["~/sdk/go1.22/bin/go", "~/sdk/go1.22/VERSION", "~/go/bin/gopls", "~/go/pkg/mod/x/y"])
        .env("GOROOT", "~/sdk/go1.22")
        .env("GOPROXY", "https://near.example/go,direct");
    check(
        &go,
        &["~/sdk/go1.22/bin", "~/go/bin", "/usr/bin"],
        &[
            "bind ~/go/bin",
            "bind ~/sdk/go1.22",
            "path ~/sdk/go1.22/bin:~/go/bin:/usr/bin",
            "env GOPATH=/home/agent/go",
            "env GOPROXY=https://near.example/go,direct",
            "env GOROOT=~/sdk/go1.22",
            "note `GOPROXY` is `https://near.example/go,direct`, as in the environment: \
             the sandbox must be allowed to reach it",
        ],
    );

    let bun = FakeToolchainHost::new().exes(&[
        "~/.bun/bin/bun",
        "~/.bun/install/cache/x",
        "~/.deno/bin/deno",
        "~/.deno/.npmrc",
    ]);
    check(
        &bun,
        &["~/.bun/bin", "~/.deno/bin", "/usr/bin"],
        &["bind ~/.bun/bin", "bind ~/.deno/bin", "path ~/.bun/bin:~/.deno/bin:/usr/bin"],
    );

    let java = FakeToolchainHost::new()
        .exe("~/.sdkman/candidates/java/21/bin/java")
        .link("~/.sdkman/candidates/java/current", "~/.sdkman/candidates/java/21");
    check(
        &java,
        &["~/.sdkman/candidates/java/current/bin", "/usr/bin"],
        &[
            "bind ~/.sdkman/candidates/java",
            "path ~/.sdkman/candidates/java/current/bin:/usr/bin",
            "env JAVA_HOME=~/.sdkman/candidates/java/current",
        ],
    );
    let jdk = FakeToolchainHost::new().exe("/opt/jdk-21/bin/java").env("JAVA_HOME", "/opt/jdk-21");
    check(&jdk, &["/usr/bin"], &["bind /opt/jdk-21", "path /usr/bin", "env JAVA_HOME=/opt/jdk-21"]);

    let haskell = FakeToolchainHost::new()
        .exes(&["~/.ghcup/ghc/9.4/bin/ghc", "~/.ghcup/cache/x", "~/.cabal/bin/hlint", "~/.cabal/config"])
        .link("~/.ghcup/bin/ghc", "../ghc/9.4/bin/ghc");
    check(
        &haskell,
        &["~/.ghcup/bin", "~/.cabal/bin", "/usr/bin"],
        &["bind ~/.cabal/bin", "bind ~/.ghcup/bin", "bind ~/.ghcup/ghc", "path ~/.ghcup/bin:~/.cabal/bin:/usr/bin"],
    );

    let brew = FakeToolchainHost::new()
        .exes(&["/home/linuxbrew/.linuxbrew/Cellar/jq/1/bin/jq", "/home/linuxbrew/.linuxbrew/var/postgres/x"])
        .link("/home/linuxbrew/.linuxbrew/bin/jq", "../Cellar/jq/1/bin/jq");
    check(
        &brew,
        &["/home/linuxbrew/.linuxbrew/bin", "/usr/bin"],
        &[
            "bind /home/linuxbrew/.linuxbrew/Cellar",
            "bind /home/linuxbrew/.linuxbrew/bin",
            "path /home/linuxbrew/.linuxbrew/bin:/usr/bin",
        ],
    );

    let nix = FakeToolchainHost::new()
        .exes(&["/nix/store/abc-profile/bin/jq", "/nix/var/nix/daemon-socket/socket"])
        .link("~/.nix-profile", "/nix/store/abc-profile");
    check(&nix, &["~/.nix-profile/bin", "/usr/bin"], &["bind /nix/store", "path /nix/store/abc-profile/bin:/usr/bin"]);

    let dotnet = FakeToolchainHost::new().exes(&["~/.dotnet/dotnet", "~/.dotnet/corefx/cryptography/x509stores/my/x"]);
    check(
        &dotnet,
        &["~/.dotnet", "/usr/bin"],
        &["bind ~/.dotnet without corefx", "path ~/.dotnet:/usr/bin", "env DOTNET_ROOT=~/.dotnet"],
    );
}

#[test]
fn an_unclaimed_directory_is_shown_alone_or_not_at_all() {
    let fake = FakeToolchainHost::new()
        .exes(&["~/bin/x", "~/tools/y/bin/y", "~/tools/y/lib/y.so", "~/.ssh/x", "~/keys/id_rsa"])
        .file("~/bin/.git/config", "url = https://u:secret@x")
        .exes(&["/opt/z/bin/z", "/opt/z/auth.json", "/opt/bin/w", "/srv/v/bin/v", "/home/other/bin/u"])
        .mode("~/open", 0o777)
        .link("~/alias", "/usr/bin");
    let path = [
        "~/bin",
        "~/tools/y/bin",
        "~/.ssh",
        "~",
        "~/keys",
        "~/open",
        "~/gone",
        "bin",
        "/opt/z/bin",
        "/opt/bin",
        "/srv/v/bin",
        "/home/other/bin",
        "~/alias",
        "/usr/bin",
    ];
    check(
        &fake,
        &path,
        &[
            "bind ~/bin without .git",
            "bind ~/tools/y/bin",
            "bind /opt/bin",
            "bind /opt/z without auth.json",
            "path ~/bin:~/tools/y/bin:/opt/z/bin:/opt/bin:/usr/bin",
            "note only `~/tools/y/bin` is shown; if its programs need more, `sandbox.toolchains` can name `~/tools/y`",
            "note `~/.ssh` is not shown: keys and settings are kept there",
            "note `~` of the PATH is not shown: it contains credentials",
            "note `~/keys` of the PATH is not shown: it contains credentials",
            "note `~/open` is not shown: every user may write there",
            "note `bin` of the PATH is not shown: it is a relative path",
            "note `/srv/v/bin` of the PATH is not shown: it is not a system folder; `sandbox.toolchains` can name it",
            "note `/home/other/bin` of the PATH is not shown: it is not a system folder; `sandbox.toolchains` can name it",
        ],
    );
    check(
        &FakeToolchainHost::new(),
        &["~", "/", "/usr/bin"],
        &[
            "path /usr/bin",
            "note `~` is not shown: it contains the home folder",
            "note `` of the PATH is not shown: it is not a system folder; `sandbox.toolchains` can name it",
        ],
    );
}

#[test]
fn named_toolchains_are_shown_or_an_error() {
    let fake = || {
        FakeToolchainHost::new().exes(&[
            "~/tools/y/bin/y",
            "~/tools/.env",
            "~/.bun/bin/bun",
            "/usr/bin/node",
            "~/.ssh/x",
        ])
    };
    check_only(
        &fake(),
        &["bun", "node", "~/tools"],
        &["/usr/bin", "~/.bun/bin", "~/tools/y/bin"],
        Ok(&["bind ~/.bun/bin", "bind ~/tools without .env", "path ~/tools:/usr/bin:~/.bun/bin"]),
    );
    check_only(
        &fake(),
        &["~/tools/y"],
        &["/usr/bin", "~/.bun/bin"],
        Ok(&["bind ~/tools/y", "path ~/tools/y/bin:/usr/bin"]),
    );
    check_only(&fake(), &["deno"], &["/usr/bin"], Err(&ToolchainError::Missing { name: "deno".to_owned() }));
    check_only(&fake(), &["rst"], &[], Err(&ToolchainError::Unknown { name: "rst".to_owned(), meant: Some("rust") }));
    let host = fake();
    let ssh = ToolchainError::Refused { path: host.at("~/.ssh"), why: "keys and settings are kept there" };
    check_only(&host, &["~/.ssh"], &[], Err(&ssh));
    check_only(
        &host,
        &["~"],
        &[],
        Err(&ToolchainError::Refused { path: host.home(), why: "it contains the home folder" }),
    );
    check_only(&host, &["~/x"], &[], Err(&ToolchainError::NoDirectory { path: host.at("~/x") }));
    let found = rust().env("JAVA_HOME", "/opt/x").find(&ToolchainSelection::None, &["~/.cargo/bin", "/usr/bin"]);
    let found = found.expect("none never fails");
    assert_eq!((found.binds.len(), found.path.len(), found.env.len(), found.notes.len()), (0, 1, 0, 0));
}

#[test]
fn the_sandboxs_caches_are_layered_over_the_hosts() {
    let fake = rust()
        .file("~/.cargo/registry/cache/x/a.crate", "x")
        .file("~/.cargo/git/db/x-1/FETCH_HEAD", "https://u:secret@x")
        .file("~/.npm/_cacache/index/x", "x")
        .file("~/.npm/_logs/x", "secret");
    let found = fake.find(&ToolchainSelection::Auto, &["~/.cargo/bin", "/usr/bin"]).expect("auto never fails");
    assert_eq!(
        fake.caches(&found),
        [
            "cargo-registry ~/.cargo/registry => /home/agent/.cargo/registry",
            "cargo-git ~/.cargo/git => /home/agent/.cargo/git without db/x-1/FETCH_HEAD",
            "npm ~/.npm/_cacache => /home/agent/.npm/_cacache",
        ]
    );
    let fake = FakeToolchainHost::new().exe("~/.cargo/bin/cargo");
    let found = fake.find(&only(&["rust"]), &["/usr/bin"]).expect("it is there");
    assert_eq!(fake.caches(&found), ["cargo-registry /home/agent/.cargo/registry", "cargo-git /home/agent/.cargo/git"]);
}

#[test]
fn hints_name_a_fix() {
    let check = |error: &ToolchainError, want: &str| assert_eq!(error.hint().as_deref(), Some(want), "{error}");
    check(&ToolchainError::Unknown { name: "rst".to_owned(), meant: Some("rust") }, "did you mean `rust`?");
    check(
        &ToolchainError::Missing { name: "deno".to_owned() },
        "install `deno`, or remove it from `sandbox.toolchains`",
    );
}
