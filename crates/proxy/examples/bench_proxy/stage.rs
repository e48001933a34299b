//! Who is measured, and by which ways: everybody is started here and ends with the stage.

use std::fs;

use crate::child::Running;
use crate::client::{Road, Way, trusting};
use crate::options::Options;
use crate::ours::{self, Opened, World};
use crate::peers::{self, LITELLM, MITMPROXY, Mode, NGINX, Places};
use crate::run::Fallible;
use crate::series::DIRECT;
use crate::table::Peer;
use crate::upstream::{LOCAL, NAME, Upstream};

const PATH: &str = "/v1/messages";
pub(crate) const MODEL: &str = "claude-sonnet-4-5";

/// Somebody who may be measured, or the reason why not.
#[derive(Debug)]
pub(crate) struct Candidate<T> {
    pub(crate) name: &'static str,
    pub(crate) way: Result<T, String>,
}

impl<T> Candidate<T> {
    fn new(name: &'static str, way: Result<T, String>) -> Self {
        Self { name, way }
    }
}

/// Everybody, by the kind of way.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) upstream: Upstream,
    /// The base URL of a provider leads to the proxy.
    pub(crate) reverse: Vec<Candidate<Way>>,
    /// A tunnel that nobody looks into.
    pub(crate) splice: Vec<Candidate<Way>>,
    /// A tunnel that the proxy looks into.
    pub(crate) intercept: Vec<Candidate<Way>>,
    /// A plain request in absolute form, without TLS anywhere.
    pub(crate) plain: Vec<Candidate<Way>>,
    pub(crate) hoses: Vec<Candidate<Road>>,
    /// Those of `reverse` whose memory is looked at, by name.
    pub(crate) running: Vec<(&'static str, Running)>,
    pub(crate) peers: Vec<Peer>,
    /// The processes without a name of their own.
    others: Vec<Running>,
    folder: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn set(options: &Options) -> Fallible<Self> {
        let upstream = Upstream::start()?;
        let folder = tempfile::tempdir()?;
        let places = Places::new(options.peers.as_deref(), &options.path);
        let direct = Way {
            road: Road::Straight(upstream.tls),
            tls: Some((LOCAL.to_owned(), trusting(&upstream.ca)?)),
            target: PATH.to_owned(),
            host: LOCAL.to_owned(),
            key: "bench".to_owned(),
            model: MODEL.to_owned(),
        };
        let bare = Way { road: Road::Straight(upstream.plain), tls: None, ..direct.clone() };
        let both = |way: &Way| vec![Candidate::new(DIRECT, Ok(way.clone()))];
        let mut stage = Self {
            reverse: both(&direct),
            splice: both(&direct),
            intercept: both(&direct),
            plain: both(&bare),
            hoses: vec![Candidate::new(DIRECT, Ok(Road::Straight(upstream.hose)))],
            running: Vec::new(),
            peers: Vec::new(),
            upstream,
            others: Vec::new(),
            folder,
        };
        stage.add_ours(&direct, &bare)?;
        stage.add_nginx(&places, &bare);
        stage.add_mitmproxy(&places, &direct, &bare);
        stage.add_litellm(&places, &bare);
        Ok(stage)
    }

    fn add_ours(&mut self, direct: &Way, bare: &Way) -> Fallible<()> {
        let (child, opened) = ours::start(&World::of(&self.upstream))?;
        let Opened { explicit, reverse, intercept } = opened;
        let tunnel = |proxy, port: u16| Road::Tunnel { proxy, target: format!("{NAME}:{port}") };
        let named = Way { host: NAME.to_owned(), ..direct.clone() };
        let reverse = reverse.map(|route| Way {
            road: Road::Straight(route.door),
            target: format!("{}{PATH}", route.base),
            host: route.door.to_string(),
            key: route.key,
            model: route.model,
            ..bare.clone()
        });
        let seen = match intercept {
            Ok(seen) => {
                let tls = Some((NAME.to_owned(), trusting(&seen.ca)?));
                Ok(Way { road: tunnel(seen.door, 443), tls, key: seen.key, ..named.clone() })
            }
            Err(why) => Err(why),
        };
        let unseen = Way {
            road: tunnel(explicit, 443),
            tls: Some((NAME.to_owned(), trusting(&self.upstream.ca)?)),
            ..named.clone()
        };
        let plain = Way {
            road: Road::Straight(explicit),
            target: format!("http://{NAME}{PATH}"),
            host: NAME.to_owned(),
            ..bare.clone()
        };
        self.reverse.push(Candidate::new(ours::NAME, reverse));
        self.splice.push(Candidate::new(ours::NAME, Ok(unseen)));
        self.intercept.push(Candidate::new(ours::NAME, seen));
        self.plain.push(Candidate::new(ours::NAME, Ok(plain)));
        self.hoses.push(Candidate::new(ours::NAME, Ok(tunnel(explicit, ours::HOSE_PORT))));
        self.running.push((ours::NAME, Running::adopt(child)));
        self.peers.push(Peer { name: ours::NAME, version: env!("CARGO_PKG_VERSION").to_owned() });
        Ok(())
    }

    fn add_nginx(&mut self, places: &Places, bare: &Way) {
        let made = self.home("nginx").and_then(|home| peers::nginx(places, &home, &self.upstream));
        self.add_reverse(NGINX, made, bare);
    }

    fn add_litellm(&mut self, places: &Places, bare: &Way) {
        let made = self.home("litellm").and_then(|home| peers::litellm(places, &home, &self.upstream));
        let way = Way { key: peers::KEY.to_owned(), model: peers::MODEL.to_owned(), ..bare.clone() };
        self.add_reverse(LITELLM, made, &way);
    }

    /// Adds a proxy that stands for the provider under its own address.
    fn add_reverse(&mut self, name: &'static str, made: Fallible<(peers::Peer, String)>, way: &Way) {
        let way = match made {
            Ok((peer, version)) => {
                let host = peer.address.to_string();
                let way = Way { road: Road::Straight(peer.address), host, ..way.clone() };
                self.running.push((name, peer.running));
                self.peers.push(Peer { name, version });
                Ok(way)
            }
            Err(error) => {
                self.peers.push(Peer { name, version: format!("NOT MEASURED: {error}") });
                Err(error.to_string())
            }
        };
        self.reverse.push(Candidate::new(name, way));
    }

    fn add_mitmproxy(&mut self, places: &Places, direct: &Way, bare: &Way) {
        let made = self.home("reverse").and_then(|home| peers::mitmproxy(places, &home, &self.upstream, Mode::Reverse));
        self.add_reverse(MITMPROXY, made, bare);
        let port = self.upstream.tls.port();
        let seen = self.home("intercept").and_then(|home| {
            let (peer, _) = peers::mitmproxy(places, &home, &self.upstream, Mode::Intercept)?;
            let roots = trusting(&peers::mitmproxy_ca(&home)?)?;
            let road = Road::Tunnel { proxy: peer.address, target: format!("{LOCAL}:{port}") };
            let seen = Way { road, tls: Some((LOCAL.to_owned(), roots)), ..direct.clone() };
            let target = format!("http://{}{PATH}", self.upstream.plain);
            let host = self.upstream.plain.to_string();
            let plain = Way { road: Road::Straight(peer.address), target, host, ..bare.clone() };
            self.others.push(peer.running);
            Ok((seen, plain))
        });
        let (seen, plain) = match seen {
            Ok((seen, plain)) => (Ok(seen), Ok(plain)),
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        self.intercept.push(Candidate::new(MITMPROXY, seen));
        self.plain.push(Candidate::new(MITMPROXY, plain));
        let unseen = self.home("splice").and_then(|home| {
            let (peer, _) = peers::mitmproxy(places, &home, &self.upstream, Mode::Splice)?;
            let tunnel = |target: String| Road::Tunnel { proxy: peer.address, target };
            let unseen = Way { road: tunnel(format!("{LOCAL}:{port}")), ..direct.clone() };
            let hose = tunnel(self.upstream.hose.to_string());
            self.others.push(peer.running);
            Ok((unseen, hose))
        });
        let (unseen, hose) = match unseen {
            Ok((unseen, hose)) => (Ok(unseen), Ok(hose)),
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        self.splice.push(Candidate::new(MITMPROXY, unseen));
        self.hoses.push(Candidate::new(MITMPROXY, hose));
    }

    /// A folder for one process and everything it writes.
    fn home(&self, name: &str) -> Fallible<std::path::PathBuf> {
        let home = self.folder.path().join(name);
        fs::create_dir(&home)?;
        Ok(home)
    }
}
