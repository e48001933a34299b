//! Starts everything that is measured, and stops it when the setup is dropped.

use std::fs;

use ralph_testkit::bench::{BenchArguments, BenchOption, BenchPeer, BenchResult};

use crate::client::{ClientPath, ClientSetup, trusting};
use crate::other_proxies::{self, LITELLM, MITMPROXY, MitmproxyMode, NGINX, ProgramPaths};
use crate::proxy_process::ProxyProcess;
use crate::ralph_proxy_process::{self, BenchListeners, UpstreamAddresses};
use crate::upstream::{BenchUpstream, LOCAL, NAME};

/// The series without any proxy; the others are compared with it.
pub(crate) const DIRECT: &str = "direct";
const PATH: &str = "/v1/messages";
pub(crate) const MODEL: &str = "claude-sonnet-4-5";

/// A proxy that may be measured, or the reason why not.
#[derive(Debug)]
pub(crate) struct ProxyCandidate<T> {
    pub(crate) name: &'static str,
    pub(crate) way: Result<T, String>,
}

impl<T> ProxyCandidate<T> {
    fn new(name: &'static str, way: Result<T, String>) -> Self {
        Self { name, way }
    }
}

/// All proxies, by the kind of setup.
#[derive(Debug)]
pub(crate) struct ProxyBenchSetup {
    pub(crate) upstream: BenchUpstream,
    /// The base URL of a provider leads to the proxy.
    pub(crate) reverse: Vec<ProxyCandidate<ClientSetup>>,
    /// A tunnel without inspection.
    pub(crate) splice: Vec<ProxyCandidate<ClientSetup>>,
    /// A tunnel that the proxy inspects.
    pub(crate) intercept: Vec<ProxyCandidate<ClientSetup>>,
    /// A plain request in absolute form, without TLS anywhere.
    pub(crate) plain: Vec<ProxyCandidate<ClientSetup>>,
    pub(crate) throughput: Vec<ProxyCandidate<ClientPath>>,
    /// Those of `reverse` whose memory is measured, by name.
    pub(crate) running: Vec<(&'static str, ProxyProcess)>,
    pub(crate) peers: Vec<BenchPeer>,
    /// The other processes, which are not measured by name.
    others: Vec<ProxyProcess>,
    folder: tempfile::TempDir,
}

impl ProxyBenchSetup {
    pub(crate) fn new(arguments: &BenchArguments) -> BenchResult<Self> {
        let upstream = BenchUpstream::start()?;
        let folder = tempfile::tempdir()?;
        let peers = arguments.path(&BenchOption::PEERS);
        let places = ProgramPaths::new(peers.as_deref(), arguments.search_path());
        let direct = ClientSetup {
            path: ClientPath::Direct(upstream.tls),
            tls: Some((LOCAL.to_owned(), trusting(&upstream.ca)?)),
            target: PATH.to_owned(),
            host: LOCAL.to_owned(),
            key: "bench".to_owned(),
            model: MODEL.to_owned(),
        };
        let bare = ClientSetup { path: ClientPath::Direct(upstream.plain), tls: None, ..direct.clone() };
        let both = |way: &ClientSetup| vec![ProxyCandidate::new(DIRECT, Ok(way.clone()))];
        let mut setup = Self {
            reverse: both(&direct),
            splice: both(&direct),
            intercept: both(&direct),
            plain: both(&bare),
            throughput: vec![ProxyCandidate::new(DIRECT, Ok(ClientPath::Direct(upstream.throughput)))],
            running: Vec::new(),
            peers: Vec::new(),
            upstream,
            others: Vec::new(),
            folder,
        };
        setup.add_ours(&direct, &bare)?;
        setup.add_nginx(&places, &bare);
        setup.add_mitmproxy(&places, &direct, &bare);
        setup.add_litellm(&places, &bare);
        Ok(setup)
    }

    fn add_ours(&mut self, direct: &ClientSetup, bare: &ClientSetup) -> BenchResult<()> {
        let (child, opened) = ralph_proxy_process::start(&UpstreamAddresses::of(&self.upstream))?;
        let BenchListeners { explicit, reverse, intercept } = opened;
        let tunnel = |proxy, port: u16| ClientPath::Tunnel { proxy, target: format!("{NAME}:{port}") };
        let named = ClientSetup { host: NAME.to_owned(), ..direct.clone() };
        let reverse = reverse.map(|route| ClientSetup {
            path: ClientPath::Direct(route.address),
            target: format!("{}{PATH}", route.base),
            host: route.address.to_string(),
            key: route.key,
            model: route.model,
            ..bare.clone()
        });
        let seen = match intercept {
            Ok(seen) => {
                let tls = Some((NAME.to_owned(), trusting(&seen.ca)?));
                Ok(ClientSetup { path: tunnel(seen.address, 443), tls, key: seen.key, ..named.clone() })
            }
            Err(why) => Err(why),
        };
        let unseen = ClientSetup {
            path: tunnel(explicit, 443),
            tls: Some((NAME.to_owned(), trusting(&self.upstream.ca)?)),
            ..named.clone()
        };
        let plain = ClientSetup {
            path: ClientPath::Direct(explicit),
            target: format!("http://{NAME}{PATH}"),
            host: NAME.to_owned(),
            ..bare.clone()
        };
        self.reverse.push(ProxyCandidate::new(ralph_proxy_process::NAME, reverse));
        self.splice.push(ProxyCandidate::new(ralph_proxy_process::NAME, Ok(unseen)));
        self.intercept.push(ProxyCandidate::new(ralph_proxy_process::NAME, seen));
        self.plain.push(ProxyCandidate::new(ralph_proxy_process::NAME, Ok(plain)));
        self.throughput.push(ProxyCandidate::new(
            ralph_proxy_process::NAME,
            Ok(tunnel(explicit, ralph_proxy_process::THROUGHPUT_PORT)),
        ));
        self.running.push((ralph_proxy_process::NAME, ProxyProcess::adopt(child)));
        self.peers.push(BenchPeer {
            name: ralph_proxy_process::NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        Ok(())
    }

    fn add_nginx(&mut self, places: &ProgramPaths, bare: &ClientSetup) {
        let made = self.home("nginx").and_then(|home| other_proxies::nginx(places, &home, &self.upstream));
        self.add_reverse(NGINX, made, bare);
    }

    fn add_litellm(&mut self, places: &ProgramPaths, bare: &ClientSetup) {
        let made = self.home("litellm").and_then(|home| other_proxies::litellm(places, &home, &self.upstream));
        let way =
            ClientSetup { key: other_proxies::KEY.to_owned(), model: other_proxies::MODEL.to_owned(), ..bare.clone() };
        self.add_reverse(LITELLM, made, &way);
    }

    /// Adds a proxy that serves as the provider at its own address.
    fn add_reverse(
        &mut self,
        name: &'static str,
        made: BenchResult<(other_proxies::RunningPeer, String)>,
        way: &ClientSetup,
    ) {
        let way = match made {
            Ok((peer, version)) => {
                let host = peer.address.to_string();
                let way = ClientSetup { path: ClientPath::Direct(peer.address), host, ..way.clone() };
                self.running.push((name, peer.running));
                self.peers.push(BenchPeer { name: name.to_owned(), version });
                Ok(way)
            }
            Err(error) => {
                self.peers.push(BenchPeer { name: name.to_owned(), version: format!("NOT MEASURED: {error}") });
                Err(error.to_string())
            }
        };
        self.reverse.push(ProxyCandidate::new(name, way));
    }

    fn add_mitmproxy(&mut self, places: &ProgramPaths, direct: &ClientSetup, bare: &ClientSetup) {
        let made = self
            .home("reverse")
            .and_then(|home| other_proxies::mitmproxy(places, &home, &self.upstream, MitmproxyMode::Reverse));
        self.add_reverse(MITMPROXY, made, bare);
        let port = self.upstream.tls.port();
        let seen = self.home("intercept").and_then(|home| {
            let (peer, _) = other_proxies::mitmproxy(places, &home, &self.upstream, MitmproxyMode::Intercept)?;
            let roots = trusting(&other_proxies::mitmproxy_ca(&home)?)?;
            let road = ClientPath::Tunnel { proxy: peer.address, target: format!("{LOCAL}:{port}") };
            let seen = ClientSetup { path: road, tls: Some((LOCAL.to_owned(), roots)), ..direct.clone() };
            let target = format!("http://{}{PATH}", self.upstream.plain);
            let host = self.upstream.plain.to_string();
            let plain = ClientSetup { path: ClientPath::Direct(peer.address), target, host, ..bare.clone() };
            self.others.push(peer.running);
            Ok((seen, plain))
        });
        let (seen, plain) = match seen {
            Ok((seen, plain)) => (Ok(seen), Ok(plain)),
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        self.intercept.push(ProxyCandidate::new(MITMPROXY, seen));
        self.plain.push(ProxyCandidate::new(MITMPROXY, plain));
        let unseen = self.home("splice").and_then(|home| {
            let (peer, _) = other_proxies::mitmproxy(places, &home, &self.upstream, MitmproxyMode::Splice)?;
            let tunnel = |target: String| ClientPath::Tunnel { proxy: peer.address, target };
            let unseen = ClientSetup { path: tunnel(format!("{LOCAL}:{port}")), ..direct.clone() };
            let hose = tunnel(self.upstream.throughput.to_string());
            self.others.push(peer.running);
            Ok((unseen, hose))
        });
        let (unseen, hose) = match unseen {
            Ok((unseen, hose)) => (Ok(unseen), Ok(hose)),
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        self.splice.push(ProxyCandidate::new(MITMPROXY, unseen));
        self.throughput.push(ProxyCandidate::new(MITMPROXY, hose));
    }

    /// Creates a directory for one process and everything it writes.
    fn home(&self, name: &str) -> BenchResult<std::path::PathBuf> {
        let home = self.folder.path().join(name);
        fs::create_dir(&home)?;
        Ok(home)
    }
}
