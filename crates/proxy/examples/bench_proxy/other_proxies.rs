//! Finds and starts the other proxies, configured to do the same work.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ralph_testkit::bench::BenchResult;

use crate::proxy_process::{ProxyProcess, free_port};
use crate::upstream::{BenchUpstream, LOCAL};

pub(crate) const MITMPROXY: &str = "mitmproxy";
pub(crate) const LITELLM: &str = "LiteLLM";
pub(crate) const NGINX: &str = "nginx";
/// LiteLLM's name for the upstream's model, and the key that it requires.
pub(crate) const MODEL: &str = "bench";
pub(crate) const KEY: &str = "sk-bench";

/// Where programs are searched: in the directory filled by `--install`, then in the user's path.
#[derive(Debug, Clone)]
pub(crate) struct ProgramPaths {
    folders: Vec<PathBuf>,
}

impl ProgramPaths {
    pub(crate) fn new(peers: Option<&Path>, path: &str) -> Self {
        let below = ["root/usr/sbin", "root/usr/bin", "mitmproxy/bin", "litellm/bin"];
        // Programs are started in directories of their own, where a relative path would be wrong.
        let peers = peers.and_then(|peers| std::path::absolute(peers).ok());
        let ours = peers.iter().flat_map(|peers| below.map(|name| peers.join(name)));
        Self { folders: ours.chain(std::env::split_paths(path)).collect() }
    }

    fn find(&self, name: &str) -> BenchResult<PathBuf> {
        let found = self.folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        Ok(found.ok_or_else(|| format!("`{name}` is not here: cargo xtask bench proxy --install"))?)
    }

    /// Returns a command that sees none of the user's own settings.
    fn command(&self, program: &Path, home: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", home).current_dir(home);
        if let Ok(path) = std::env::join_paths(&self.folders) {
            command.env("PATH", path);
        }
        command
    }
}

/// Another proxy that runs.
#[derive(Debug)]
pub(crate) struct RunningPeer {
    pub(crate) running: ProxyProcess,
    pub(crate) address: SocketAddr,
}

/// Starts a plain reverse proxy that reuses its connections to the upstream and passes every byte on at once.
pub(crate) fn nginx(
    places: &ProgramPaths,
    home: &Path,
    upstream: &BenchUpstream,
) -> BenchResult<(RunningPeer, String)> {
    let program = places.find("nginx")?;
    let address = free_port()?;
    let ca = write_file(home, "ca.pem", &upstream.ca)?;
    let folder = home.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name};\n"))
        .concat();
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let (ca, to) = (ca.display(), upstream.tls);
    let text = format!(
        "{user}daemon off;\nworker_processes auto;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
         events {{ worker_connections 8192; }}\nhttp {{\n  access_log off;\n{temporary}  keepalive_requests 100000000;\n  \
         upstream up {{ server {to}; keepalive 64; keepalive_requests 100000000; }}\n  server {{\n    listen {address} \
         backlog=4096;\n    location / {{\n      proxy_pass https://up;\n      proxy_http_version 1.1;\n      \
         proxy_set_header Connection \"\";\n      proxy_set_header Host {LOCAL};\n      proxy_ssl_name {LOCAL};\n      \
         proxy_ssl_server_name on;\n      proxy_ssl_verify on;\n      proxy_ssl_trusted_certificate {ca};\n      \
         proxy_buffering off;\n    }}\n  }}\n}}\n"
    );
    let config = write_file(home, "nginx.conf", &text)?;
    let mut command = places.command(&program, home);
    command.arg("-p").arg(home).arg("-e").arg(home.join("error.log")).arg("-c").arg(config);
    let running = ProxyProcess::start(command, address, &home.join("log"))?;
    let version = version_line(&mut places.command(&program, home), "-v");
    Ok((RunningPeer { running, address }, version))
}

/// The mode of mitmproxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MitmproxyMode {
    Reverse,
    /// Inspects tunnels with a certificate authority of its own.
    Intercept,
    /// Relays everything without inspection.
    Splice,
}

pub(crate) fn mitmproxy(
    places: &ProgramPaths,
    home: &Path,
    upstream: &BenchUpstream,
    mode: MitmproxyMode,
) -> BenchResult<(RunningPeer, String)> {
    let program = places.find("mitmdump")?;
    let address = free_port()?;
    let ca = write_file(home, "ca.pem", &upstream.ca)?;
    // Without this it holds a stream back until its end.
    let streams = "def responseheaders(flow):\n    kind = flow.response.headers.get('content-type', '')\n    \
        flow.response.stream = 'event-stream' in kind\n";
    let script = write_file(home, "streams.py", streams)?;
    let mut command = places.command(&program, home);
    command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &address.port().to_string()]);
    command.arg("--set").arg(format!("confdir={}", home.display()));
    command.arg("--set").arg(format!("ssl_verify_upstream_trusted_ca={}", ca.display()));
    match mode {
        MitmproxyMode::Reverse => {
            command.args(["--mode", &format!("reverse:https://{LOCAL}:{}", upstream.tls.port())]);
            command.arg("--scripts").arg(script);
        }
        MitmproxyMode::Intercept => {
            command.arg("--scripts").arg(script);
        }
        MitmproxyMode::Splice => {
            command.args(["--ignore-hosts", ".*"]);
        }
    }
    let running = ProxyProcess::start(command, address, &home.join("log"))?;
    let version = version_line(&mut places.command(&program, home), "--version");
    Ok((RunningPeer { running, address }, version))
}

/// Reads the certificate that mitmproxy has created for itself.
pub(crate) fn mitmproxy_ca(home: &Path) -> BenchResult<String> {
    let file = home.join("mitmproxy-ca-cert.pem");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match fs::read_to_string(&file) {
            Ok(text) => return Ok(text),
            Err(error) if Instant::now() > until => return Err(format!("it has no certificate: {error}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

pub(crate) fn litellm(
    places: &ProgramPaths,
    home: &Path,
    upstream: &BenchUpstream,
) -> BenchResult<(RunningPeer, String)> {
    let program = places.find("litellm")?;
    let address = free_port()?;
    let ca = write_file(home, "ca.pem", &upstream.ca)?;
    let config = serde_json::json!({
        "model_list": [{
            "model_name": MODEL,
            "litellm_params": {
                "model": "anthropic/claude-sonnet-4-5",
                "api_key": "bench",
                "api_base": format!("https://{LOCAL}:{}", upstream.tls.port()),
            },
        }],
        "litellm_settings": {"num_retries": 0, "request_timeout": 60},
        "general_settings": {"master_key": KEY},
    });
    // JSON is valid YAML.
    let config = write_file(home, "config.yaml", &config.to_string())?;
    let mut command = places.command(&program, home);
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_TELEMETRY", "False").env("LITELLM_LOG", "ERROR");
    command.env("SSL_CERT_FILE", ca);
    command.arg("--config").arg(config).args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--num_workers", "1"]);
    let running = ProxyProcess::start(command, address, &home.join("log"))?;
    let version = version_line(&mut places.command(&program, home), "--version");
    Ok((RunningPeer { running, address }, version))
}

fn write_file(folder: &Path, name: &str, text: &str) -> BenchResult<PathBuf> {
    let file = folder.join(name);
    fs::write(&file, text)?;
    Ok(file)
}

/// Returns the first line of a program's output that contains a version number.
fn version_line(command: &mut Command, word: &str) -> String {
    let Ok(output) = command.arg(word).stdin(Stdio::null()).output() else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit())).unwrap_or_default().trim().to_owned()
}
