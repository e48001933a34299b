//! Tests package managers in the default sandbox with nothing allowed but their preset: the real clients, the real
//! registries.
//!
//! Where this machine has its registry under another name or address, the client's own configuration names it, and
//! exactly that is allowed in addition. No registry is named here: the presets have them.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use ralph_core::egress::address;
use ralph_core::policy::PRESETS;
use tempfile::TempDir;

use crate::secret_search::report_not_run;

/// Asks the egress proxy for a tunnel to each host, and prints the answers.
const ASK: &str = r#"
import socket, sys
for place in sys.argv[1:]:
    proxy = socket.create_connection(("127.0.0.1", 3128), timeout=20)
    proxy.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    print(proxy.makefile("rb").read().decode())
"#;

const REFUSED: &str = "no rule names it, and the network policy is `allowlist`";

/// The configuration of a package client of this machine.
#[derive(Debug)]
pub(crate) struct RegistryClient {
    preset: &'static str,
    /// The URL of its package index.
    index: String,
    /// The file with the certificate authorities it trusts, if it is not its own.
    authorities: Option<PathBuf>,
    /// The variables that set both.
    variables: [&'static str; 2],
    install: &'static str,
}

pub(crate) fn npm() -> RegistryClient {
    RegistryClient {
        preset: "npm",
        index: query_client("npm", &["config", "get", "registry"])
            .unwrap_or_else(|| format!("https://{}/", first_host("npm"))),
        authorities: query_client("npm", &["config", "get", "cafile"]).filter(|file| file != "null").map(PathBuf::from),
        variables: ["npm_config_registry", "npm_config_cafile"],
        install: "npm install --no-audit --no-fund --fetch-retries 0 is-number && \
                  node -e 'console.log(\"installed\", require(\"is-number\")(42))'",
    }
}

fn pip() -> RegistryClient {
    let asked = |name: &str| query_client("python3", &["-m", "pip", "config", "get", name]);
    // The environment takes precedence, under another name.
    let setting = |name: &str| asked(&format!(":env:.{name}")).or_else(|| asked(&format!("global.{name}")));
    RegistryClient {
        preset: "pypi",
        index: setting("index-url").unwrap_or_else(|| format!("https://{}/simple/", first_host("pypi"))),
        authorities: setting("cert").map(PathBuf::from),
        variables: ["PIP_INDEX_URL", "PIP_CERT"],
        install: "python3 -m pip install --disable-pip-version-check --no-cache-dir --retries 1 --target there six && \
                  PYTHONPATH=there python3 -c 'import six; print(\"installed\", six.PY3)'",
    }
}

fn query_client(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !text.is_empty() && text != "undefined").then_some(text)
}

fn hosts(preset: &str) -> &'static [&'static str] {
    PRESETS.iter().find(|one| one.name == preset).expect("a preset").rules
}

fn first_host(preset: &str) -> &'static str {
    hosts(preset).first().expect("a preset has hosts")
}

/// Returns host and port of a URL.
fn host_and_port(url: &str) -> (String, u16) {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let authority = rest.split('/').next().unwrap_or(rest);
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let usual = if scheme == "https" { 443 } else { 80 };
    match authority.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), port.parse().expect("a port")),
        None => (authority.to_owned(), usual),
    }
}

/// A machine whose registries may have unusual addresses, made reachable for ralph.
pub(crate) struct RegistryFixture {
    client: RegistryClient,
    /// What has to be allowed beside the preset.
    rules: Vec<String>,
    /// Names that ralph has to resolve differently: the lines of a hosts file.
    names: String,
    folder: TempDir,
    _relays: tokio::runtime::Runtime,
}

impl RegistryFixture {
    /// Detects what has to be allowed; `None`, with a report, where there is no registry.
    pub(crate) fn detect(client: RegistryClient) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (mut rules, mut names) = (Vec::new(), String::new());
        let configured = host_and_port(&client.index);
        let mut places: Vec<(String, u16)> = Vec::new();
        if !hosts(client.preset).contains(&configured.0.as_str()) || configured.1 != 443 {
            rules.push(format!("{}:{}", configured.0, configured.1));
        }
        places.push(configured.clone());
        places.extend(hosts(client.preset).iter().map(|host| ((*host).to_owned(), 443)));
        places.dedup();
        for (host, port) in places {
            let mut addresses = (host.as_str(), port).to_socket_addrs().into_iter().flatten();
            let reached = addresses.find(|at| TcpStream::connect_timeout(at, Duration::from_secs(5)).is_ok());
            let Some(at) = reached else {
                // A client that is configured for another index may never need this one.
                if host != configured.0 {
                    continue;
                }
                report_not_run(&format!("`{}` was not tried: `{host}` cannot be reached from here", client.preset));
                return None;
            };
            match address::kind(at.ip()) {
                None => (),
                Some(kind) if kind.can_be_allowed() => rules.push(format!("{}:{port}", at.ip())),
                // No rule opens such an address: a relay provides one that a rule can name.
                Some(kind) => {
                    let Some(own) = relay(&runtime, at) else {
                        report_not_run(&format!("`{}` was not tried: `{host}` has {kind}", client.preset));
                        return None;
                    };
                    rules.push(format!("{own}:{port}"));
                    // With the trailing dot that ralph queries with: a hosts file is compared literally.
                    writeln!(names, "{own} {host}. {host}").unwrap();
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::fs::write(folder.path().join("in/ask.py"), ASK).unwrap();
        if let Some(file) = &client.authorities {
            std::fs::copy(file, folder.path().join("in/authorities.pem")).unwrap();
        }
        Some(Self { client, rules, names, folder, _relays: runtime })
    }

    /// What has to be allowed beside the preset.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(String::as_str)
    }

    /// Returns a command for ralph in which the registry can be resolved.
    pub(crate) fn ralph(&self) -> Command {
        let ralph = env!("CARGO_BIN_EXE_ralph");
        if self.names.is_empty() { Command::new(ralph) } else { self.command_with_hosts(ralph) }
    }

    /// Runs a shell line in a sandbox.
    fn run_in_sandbox(&self, rules: &[&str], line: &str) -> (Option<i32>, String) {
        let mut command = self.ralph();
        command.args(["sandbox", "exec", "--copy"]).arg(self.folder.path().join("in"));
        for rule in rules {
            command.args(["--allow-host", rule]);
        }
        let [index, authorities] = self.client.variables;
        let mut script = format!("export {index}={}\n", self.client.index);
        if self.client.authorities.is_some() {
            writeln!(script, "export {authorities}=/workspace/authorities.pem").unwrap();
        }
        command.args(["--", "sh", "-c", &format!("{script}{line}")]);
        command.env("RALPH_STATE_DIR", self.folder.path().join("state")).stdin(Stdio::null());
        let out = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        (out.status.code(), text)
    }

    /// Returns a command that resolves some names differently, in its own mount namespace.
    fn command_with_hosts(&self, program: &str) -> Command {
        let file = self.folder.path().join("hosts");
        let known = std::fs::read_to_string(HOSTS).unwrap_or_default();
        std::fs::write(&file, format!("{}{known}", self.names)).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", "mount --bind \"$1\" \"$2\"; shift 2; exec \"$@\"", "sh"]);
        command.arg(&file).args([HOSTS, program]);
        command
    }
}

const HOSTS: &str = "/etc/hosts";

/// Forwards connections from another loopback address with the same port; `None` when this user may not.
fn relay(runtime: &tokio::runtime::Runtime, to: SocketAddr) -> Option<IpAddr> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let seed = std::process::id().to_le_bytes();
    let free = (1..=250).map(|n| IpAddr::from([127, 1 + seed[0] % 250, 1 + seed[1] % 250, n]));
    let listener = free.into_iter().find_map(|own| std::net::TcpListener::bind((own, to.port())).ok())?;
    let own = listener.local_addr().ok()?.ip();
    listener.set_nonblocking(true).ok()?;
    // Ends with the runtime.
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = tokio::net::TcpStream::connect(to).await {
                    // A client that disconnects needs no more data.
                    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
                }
            });
        }
    });
    Some(own)
}

#[track_caller]
fn check(client: RegistryClient, other: &str) {
    let Some(machine) = RegistryFixture::detect(client) else { return };
    let RegistryClient { preset, install, index, .. } = &machine.client;
    let (host, port) = host_and_port(index);
    let elsewhere = format!("{}:443", first_host(other));

    // Allowed: the client installs, and the package works. Another registry stays unreachable.
    let mut rules = vec![*preset];
    rules.extend(machine.rules.iter().map(String::as_str));
    let (code, text) = machine.run_in_sandbox(&rules, &format!("{install} && python3 ask.py {elsewhere}"));
    assert_eq!(code, Some(0), "{rules:?}: {text}");
    assert!(text.contains("installed true") || text.contains("installed True"), "{text}");
    assert!(text.contains("403 Forbidden") && text.contains(&format!("`{elsewhere}`")), "{text}");
    assert!(text.contains(REFUSED), "{text}");

    // Another preset's rules do not help, and the refusal says how the user can allow it.
    let (code, text) = machine.run_in_sandbox(&[other], &format!("python3 ask.py {host}:{port}; {install}"));
    assert!(code != Some(0) && !text.contains("installed "), "{code:?} {text}");
    assert!(text.contains(&format!("`{host}:{port}` cannot be reached: {REFUSED}")), "{text}");
    assert!(text.contains("; a person can allow it with `ralph run --allow-host "), "{text}");
    assert!(text.matches("403").count() > 1, "the client was not refused: {text}");

    // Without any rule there is no egress proxy.
    let (code, text) = machine.run_in_sandbox(&[], install);
    assert!(code != Some(0) && !text.contains("installed ") && !text.contains("403"), "{code:?} {text}");
}

#[test]
fn npm_with_its_preset() {
    check(npm(), "pypi");
}

#[test]
fn pip_with_its_preset() {
    check(pip(), "npm");
}

#[test]
fn hosts_and_ports_of_urls() {
    for (url, want) in [
        ("https://x.io/", ("x.io", 443)),
        ("http://x.io", ("x.io", 80)),
        ("https://user:word@x.io:8443/simple/", ("x.io", 8443)),
        ("http://192.0.2.7:4873/a/b", ("192.0.2.7", 4873)),
    ] {
        let (host, port) = host_and_port(url);
        assert_eq!((host.as_str(), port), want, "{url}");
    }
}
