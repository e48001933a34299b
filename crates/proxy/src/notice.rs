//! What the way out decided, told to whoever writes it down.
//!
//! Nothing is written here: the engine turns what it is [`Told`] into events and lines of the audit file.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use ralph_core::money::Micros;
use ralph_core::policy::{Mode, Rule, rule_for};
use ralph_core::price::Usage;

use crate::address::Kind;
use crate::meter::Refusal;
use crate::target::{BadTarget, Target};

/// The way by which a connection asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A tunnel asked for by `CONNECT`.
    Connect,
    /// A plain HTTP request in absolute form.
    Http,
    /// A request to one of the sandbox's reverse routes.
    Route,
    Socks,
    /// A connection to a synthetic address.
    Transparent,
    /// A question for a name.
    Dns,
    /// The client was turned away before it said what it wanted.
    Unknown,
}

impl Entry {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Http => "http",
            Self::Route => "route",
            Self::Socks => "socks",
            Self::Transparent => "transparent",
            Self::Dns => "dns",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The request that a decision was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    pub method: String,
    /// Without the query.
    pub path: String,
}

impl Requested {
    pub fn new(method: &str, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Self { method: method.to_owned(), path: path.to_owned() }
    }
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub entry: Entry,
    /// The canonical host; where it has none, what the client wrote, made safe to print; empty where it wrote nothing.
    pub host: String,
    /// 0 where no port was asked for.
    pub port: u16,
    /// The request that was refused; `None` where a connection or a name was judged.
    pub request: Option<Requested>,
    pub allowed: bool,
    pub why: Why,
    /// The address that was judged last: dialled, refused, or given out by DNS.
    pub address: Option<IpAddr>,
}

impl Decided {
    /// Returns the rule that would allow what was refused, where one can.
    pub fn remedy(&self) -> Option<String> {
        let target = Target::new(&self.host, if self.port == 0 { 443 } else { self.port }).ok()?;
        if self.allowed { None } else { self.why.remedy(&target, self.request.as_ref(), self.address) }
    }
}

/// One request that was looked into, at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanged {
    pub entry: Entry,
    pub host: String,
    pub port: u16,
    pub method: String,
    /// Without the query.
    pub path: String,
    /// What the client was answered with; `None` when it hung up before.
    pub status: Option<u16>,
    /// Why it was answered here and not by the host: a refusal of our own, or a host that failed.
    pub refused: Option<Box<Refusal>>,
    /// Bytes of the bodies, towards the world and back.
    pub sent: u64,
    pub received: u64,
    /// The name of the credential that was put in.
    pub credential: Option<String>,
    pub call: Option<Call>,
}

/// A call of a model, as it was charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The same as when it was about to be dialled.
    pub id: u64,
    pub route: String,
    pub model: String,
    /// The model that says it answered, if it is another than was asked.
    pub answered_by: Option<String>,
    pub usage: Usage,
    pub cost: Micros,
    pub charge: Charge,
    /// What the provider says about its rate limits, header by header.
    pub limits: Vec<(String, String)>,
}

/// What a call was charged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// The provider's own count.
    Reported,
    /// Its worst case: nobody saw the count.
    Worst,
    /// Nothing: the provider refused it.
    Nothing,
}

impl Charge {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Worst => "worst",
            Self::Nothing => "nothing",
        }
    }
}

/// Something that must not happen. It was cut, unless what is wrong says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    pub what: Wrong,
    /// The name of the credential; empty where it is about none.
    pub credential: String,
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("a stand-in for a credential was sent to a host it is not for")]
    PhantomAstray,
    #[error("a stand-in that was revoked was used")]
    PhantomRevoked,
    /// It is worth nothing to the model, and cutting every call that repeats it would end an honest session: told once.
    #[error("a stand-in for a credential was written into a call to its own model")]
    PhantomSaid,
    /// It is taken out there, and whoever sent it so wonders why nothing works: told once.
    #[error(
        "a stand-in for a credential was sent to its own host where it is not put in: use a header such as `Authorization`, `X-Api-Key` or `…-Token`"
    )]
    PhantomMisplaced,
    #[error("a real credential came back in an answer")]
    SecretReturned,
    /// Nothing is cut: an upload can be what a run is for. Told once.
    #[error("the run has sent out more than {}", bytes_in_words(*.limit))]
    SentMuch { limit: u64 },
}

/// Writes a number of bytes as people read it, in whole units where it is one.
fn bytes_in_words(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// A tunnel that was carried without being looked into, at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnelled {
    pub entry: Entry,
    pub host: String,
    pub port: u16,
    /// Bytes towards the world and back, those of TLS among them.
    pub sent: u64,
    pub received: u64,
    pub took: Duration,
}

/// Everything the way out has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Decided(Decided),
    Exchanged(Exchanged),
    Tunnelled(Tunnelled),
    /// A call is about to be dialled and may cost so much. What follows is the exchange that says what it did cost.
    Calling {
        /// The same as in the exchange that follows; no two calls of a process share one.
        id: u64,
        route: String,
        model: String,
        cost: Micros,
        tokens: u64,
    },
    Alarm(Alarm),
    /// A call was refused because the budget is spent.
    Spent {
        route: String,
        model: String,
        why: String,
    },
    /// The doors were served anew after whoever served them had died.
    Restarted {
        why: String,
    },
}

/// Receives everything that is told. It is called on the path of the connection, so it must not wait.
pub trait Notice: fmt::Debug + Send + Sync {
    fn tell(&self, told: Told);

    /// Hears that whoever served the doors has died, before anything of it is cut: whatever fails from then on may fail
    /// for this. [`Told::Restarted`] follows when they are served again.
    fn died(&self) {}

    /// Keeps a call that is about to be dialled ([`Told::Calling`]) where it outlives this process; the error says why
    /// that could not be done, and the call is not made.
    fn keep(&self, calling: Told) -> Keeping<'_> {
        self.tell(calling);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The end of [`Notice::keep`].
pub type Keeping<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Why something was allowed, refused or cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// What allows it.
    #[error("rule `{0}`")]
    Rule(Box<Rule>),
    /// What no other rule overrules.
    #[error("it is denied by rule `{0}` of the network policy")]
    Denied(Box<Rule>),
    /// No rule spoke.
    #[error("no rule names it, and the network policy is `{0}`")]
    Mode(Mode),
    /// The host may be asked for something else.
    #[error("the rules for this host allow other requests, and none allows this one")]
    Request,
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// Only a request can be judged, and a tunnel hides its requests.
    #[error("its rules are about single requests, which cannot be seen inside a tunnel")]
    Inspect,
    #[error("the name has no address")]
    Unresolved,
    #[error("its address is {0}")]
    Inner(Kind),
    #[error("the host does not answer")]
    Unreachable,
    #[error("its certificate could not be verified")]
    Untrusted,
    /// A stand-in for a credential was on its way to the wrong host.
    #[error("the request carries a stand-in for a credential that is not for this host")]
    Astray,
    /// A tunnel to one name asked for another.
    #[error("the TLS hello {}", said(.0.as_deref()))]
    Sni(Option<String>),
    #[error("port 443 carries only TLS")]
    NotTls,
    #[error("the `Host` header does not name the same host, or not exactly once")]
    Host,
    #[error("the address was not given out for a name")]
    Stranger,
    #[error("the request is not well formed: {0}")]
    Malformed(&'static str),
    #[error("too many connections at the same time")]
    Crowded,
    #[error("the client took too long to say what it wants")]
    Slow,
    #[error("the network policy changed")]
    Revoked,
}

impl Why {
    /// Returns the rule that would allow what was refused, where one can.
    pub(crate) fn remedy(
        &self,
        target: &Target,
        request: Option<&Requested>,
        address: Option<IpAddr>,
    ) -> Option<String> {
        let rule = match (self, request) {
            // A rule for the whole host would allow more than those about its requests meant to.
            (Self::Request | Self::Revoked, Some(Requested { method, path })) => {
                return rule_for(&target.rule(), method, path).map(|rule| rule.to_string());
            }
            (Self::Mode(_) | Self::Revoked, _) => target.rule(),
            // Only the address itself opens an inner address, never a name.
            (Self::Inner(kind), _) if kind.may_be_listed() => Target::address(address?, target.port()).rule(),
            _ => return None,
        };
        // A lone word is no rule, but may be the name of a preset.
        rule.parse::<Rule>().is_ok().then_some(rule)
    }
}

fn said(name: Option<&str>) -> String {
    name.map_or_else(|| "names no host".to_owned(), |name| format!("names `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, port: u16, why: Why, address: Option<&str>, want: Option<&str>) {
        check_request(host, port, None, why, address, want);
    }

    #[track_caller]
    fn check_request(
        host: &str,
        port: u16,
        request: Option<Requested>,
        why: Why,
        address: Option<&str>,
        want: Option<&str>,
    ) {
        let (entry, host) = (Entry::Connect, host.to_owned());
        let address = address.map(|address| address.parse().unwrap());
        let decided = Decided { entry, host, port, request, allowed: false, why, address };
        assert_eq!(decided.remedy().as_deref(), want);
        assert_eq!(Decided { allowed: true, ..decided }.remedy(), None);
    }

    #[test]
    fn remedies_are_rules_that_would_help() {
        check("x.io", 443, Why::Mode(Mode::Allowlist), None, Some("x.io"));
        check("x.io", 80, Why::Mode(Mode::Deny), None, Some("x.io:80"));
        check("x.io", 0, Why::Mode(Mode::Deny), None, Some("x.io"));
        check("x.io", 443, Why::Inner(Kind::Private), Some("10.0.0.1"), Some("10.0.0.1"));
        check("x.io", 80, Why::Inner(Kind::Loopback), Some("::1"), Some("[::1]:80"));
        check("x.io", 80, Why::Inner(Kind::Metadata), Some("169.254.169.254"), None);
        check("x.io", 443, Why::Denied(Box::new("x.io".parse().unwrap())), None, None);
        check("a b", 443, Why::Mode(Mode::Deny), None, None);
        check("npm", 443, Why::Mode(Mode::Deny), None, None);
    }

    #[test]
    fn a_request_is_worth_a_rule_for_itself() {
        let push = || Some(Requested::new("POST", "/o/r/git-receive-pack?x=y"));
        let narrow = Some("POST x.io/o/r/git-receive-pack");
        check_request("x.io", 443, push(), Why::Request, None, narrow);
        check_request("x.io", 443, push(), Why::Revoked, None, narrow);
        check_request("x.io", 80, push(), Why::Request, None, Some("POST x.io:80/o/r/git-receive-pack"));
        check_request("x.io", 443, Some(Requested::new("GET", "/*")), Why::Request, None, None);
        // Nothing of the host is allowed yet: one path of it would be of little use.
        check_request("x.io", 80, push(), Why::Mode(Mode::Deny), None, Some("x.io:80"));
    }
}
