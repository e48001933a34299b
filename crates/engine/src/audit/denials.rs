//! Which refusals and alarms become events of the run: the first of a kind, and every tenfold after that.

use std::collections::{BTreeMap, BTreeSet};

use ralph_core::event::{Event, Level};
use ralph_core::redact::Redactor;
use ralph_proxy::meter::Refusal;
use ralph_proxy::notice::{Alarm, Call, Decided, Exchanged, Told, Why};

use super::told::bounded;

/// So many hosts and ports are counted apart; an agent can make up as many names as it likes.
const APART: usize = 500;
/// So many models that answered in the place of others are told.
const OTHER_MODELS: usize = 50;
/// And so many requests to one of them.
const REQUESTS: usize = 10;
/// The host of the refusals that are counted together.
const OTHERS: &str = "(other hosts)";

/// Counts refusals and says which of them are told.
#[derive(Debug)]
pub struct Denials {
    redactor: Redactor,
    /// By host, port, and what was asked of it: what a call of a model was about, or a request by its method and path.
    counts: BTreeMap<(String, u16, String), u64>,
    alarms: BTreeMap<String, u64>,
    /// The models that were asked, and those that say they answered in their place.
    others: BTreeSet<(String, String)>,
}

impl Denials {
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, counts: BTreeMap::new(), alarms: BTreeMap::new(), others: BTreeSet::new() }
    }

    /// Takes what was told; returns the event it is worth.
    pub fn hear_all(&mut self, told: &Told) -> Option<Event> {
        match told {
            Told::Decided(decided) => self.hear(decided),
            Told::Alarm(alarm) => self.alarm(alarm),
            Told::Spent { route, why, .. } => {
                self.log(&format!("spent {route}"), Level::Warn, &format!("route `{route}`: {why}"))
            }
            Told::Restarted { why } => {
                self.log("restarted", Level::Warn, &format!("the way out was served anew: {why}"))
            }
            Told::Exchanged(exchanged) => self.hear_call(exchanged),
            Told::Calling { .. } | Told::Tunnelled(_) => None,
        }
    }

    fn alarm(&mut self, alarm: &Alarm) -> Option<Event> {
        let Alarm { what, credential, host, port } = alarm;
        // Counted by what an agent cannot make up: new host names must not hide the next alarm.
        let whose = if credential.is_empty() { String::new() } else { format!("`{credential}`, ") };
        self.log(&format!("{what} {credential}"), Level::Error, &format!("alarm: {what} ({whose}{host}:{port})"))
    }

    fn log(&mut self, kind: &str, level: Level, text: &str) -> Option<Event> {
        let text = bounded(&ralph_core::text::plain(text), 300, &self.redactor);
        let count = self.alarms.entry(kind.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        let times = if *count > 1 { format!(", {count} times") } else { String::new() };
        is_power_of_ten(*count).then(|| Event::Log { level, text: format!("{text}{times}") })
    }

    /// Takes one decision; returns the event it is worth.
    pub fn hear(&mut self, decided: &Decided) -> Option<Event> {
        if !is_refusal(decided) {
            return None;
        }
        // Only where the request decided: a host that is refused whatever it is asked for is one thing.
        let about = match &decided.why {
            Why::Request => true,
            Why::Denied(rule) => rule.needs_request(),
            _ => false,
        };
        let request = decided.request.as_ref().filter(|_| about).map(|request| {
            let line = ralph_core::text::plain(&format!("{} {}", request.method, request.path));
            bounded(&line, 300, &self.redactor)
        });
        // One that holds a secret would put it on the screen, and without it, it is no rule.
        let remedy = decided.remedy().filter(|rule| self.redactor.redact(rule) == *rule);
        let about = request.clone().unwrap_or_default();
        self.count(&decided.host, decided.port, about, request, &decided.why.to_string(), remedy)
    }

    /// Takes a request at its end; a refusal for want of money is told in words of its own, and that another protocol is
    /// spoken here is nobody's fault.
    fn hear_call(&mut self, exchanged: &Exchanged) -> Option<Event> {
        let Some(refusal) = exchanged.refused.as_ref() else { return self.hear_other(exchanged.call.as_ref()?) };
        if refusal.is_failure() || matches!(**refusal, Refusal::Budget(_) | Refusal::Upgrade(_)) {
            return None;
        }
        self.count(&exchanged.host, exchanged.port, refusal.kind().to_owned(), None, refusal.why(), None)
    }

    /// Takes a call that another model says it answered. A gateway with names of its own says so with every call, so each
    /// is told once.
    fn hear_other(&mut self, call: &Call) -> Option<Event> {
        let (asked, by) = (call.model.clone(), call.answered_by.clone()?);
        let text = format!(
            "`{asked}` was asked at route `{}`, and `{by}` says it answered; it is charged as `{asked}`, or as the other if \
             a profile has that and it is dearer",
            call.route
        );
        let new = self.others.len() < OTHER_MODELS && self.others.insert((asked, by));
        let text = || bounded(&ralph_core::text::plain(&text), 500, &self.redactor);
        new.then(|| Event::Log { level: Level::Warn, text: text() })
    }

    fn count(
        &mut self,
        host: &str,
        port: u16,
        about: String,
        request: Option<String>,
        why: &str,
        remedy: Option<String>,
    ) -> Option<Event> {
        let host = bounded(host, 255, &self.redactor);
        let of_host = |(other, at, about): &(String, u16, String)| *other == host && *at == port && !about.is_empty();
        let asked = (host.clone(), port, about);
        let crowded = request.is_some() && self.counts.keys().filter(|asked| of_host(asked)).count() >= REQUESTS;
        let (asked, request, remedy) = if self.counts.contains_key(&asked) {
            (asked, request, remedy)
        } else if self.counts.len() >= APART {
            ((OTHERS.to_owned(), 0, String::new()), None, None)
        } else if crowded {
            ((host, port, String::new()), None, None)
        } else {
            (asked, request, remedy)
        };
        let (host, port, _) = asked.clone();
        let count = self.counts.entry(asked).or_insert(0);
        *count = count.saturating_add(1);
        let rule = || bounded(&ralph_core::text::plain(why), 300, &self.redactor);
        let told = is_power_of_ten(*count);
        told.then(|| Event::PolicyDenied { host, port, request, rule: rule(), remedy, count: *count })
    }
}

/// A host that does not answer, and a sandbox that asks for too much at once, are not refused by a policy.
pub(crate) fn is_refusal(decided: &Decided) -> bool {
    !decided.allowed && !matches!(decided.why, Why::Unresolved | Why::Unreachable | Why::Crowded | Why::Slow)
}

fn is_power_of_ten(mut count: u64) -> bool {
    while count != 0 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

#[cfg(test)]
mod tests {
    use ralph_core::money::Micros;
    use ralph_core::policy::Mode;
    use ralph_core::price::Usage;
    use ralph_core::secret::Secret;
    use ralph_proxy::notice::{Charge, Entry};

    use super::*;

    fn denied(host: &str, port: u16, why: Why) -> Decided {
        let (entry, host) = (Entry::Connect, host.to_owned());
        Decided { entry, host, port, request: None, allowed: false, why, address: None }
    }

    fn told(denials: &mut Denials, decided: &Decided) -> Option<String> {
        denials.hear(decided).map(|event| match event {
            Event::PolicyDenied { host, port, rule, count, .. } => format!("{host}:{port} ({rule}) {count}"),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn alarms_are_told_too() {
        use ralph_proxy::notice::Wrong;
        let mut denials = Denials::new(Redactor::new([]));
        let alarm = |host: &str| {
            Told::Alarm(Alarm {
                what: Wrong::PhantomAstray,
                credential: "KEY".to_owned(),
                host: host.to_owned(),
                port: 443,
            })
        };
        let told: Vec<Event> = (0..10).filter_map(|_| denials.hear_all(&alarm("evil.test"))).collect();
        let text = "alarm: a stand-in for a credential was sent to a host it is not for (`KEY`, evil.test:443)";
        assert_eq!(
            told,
            [
                Event::Log { level: Level::Error, text: text.to_owned() },
                Event::Log { level: Level::Error, text: format!("{text}, 10 times") },
            ]
        );
        assert!(denials.hear_all(&alarm("other.test")).is_none(), "it is the eleventh of its kind");
    }

    #[test]
    fn the_first_and_every_tenfold() {
        let mut denials = Denials::new(Redactor::new([]));
        let one = denied("x.io", 443, Why::NotTls);
        let events: Vec<u64> = (1..=1000_u64).filter(|_| denials.hear(&one).is_some()).collect();
        assert_eq!(events, [1, 10, 100, 1000]);
        assert_eq!(
            told(&mut denials, &denied("x.io", 80, Why::NotTls)).unwrap(),
            "x.io:80 (port 443 carries only TLS) 1"
        );
        assert_eq!(
            told(&mut denials, &denied("y.io", 0, Why::Mode(Mode::Deny))).unwrap(),
            "y.io:0 (no rule names it, and the network policy is `deny`) 1"
        );
    }

    /// What a person is told has the way to allow it, no wider than what was asked for.
    #[test]
    fn the_next_step_is_told() {
        let mut denials = Denials::new(Redactor::new([("KEY".to_owned(), Secret::new("hunter2-hunter2"))]));
        let mut told = |path: Option<&str>, why: Why| {
            let request = path.map(|path| ralph_proxy::notice::Requested::new("POST", path));
            match denials.hear(&Decided { request, ..denied("x.io", 443, why) }) {
                Some(Event::PolicyDenied { request, remedy, count, .. }) => Some((request, remedy, count)),
                other => other.map(|other| panic!("{other:?}")),
            }
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(told(None, Why::Mode(Mode::Deny)), Some((None, some("x.io"), 1)));
        assert_eq!(told(Some("/a"), Why::Request), Some((some("POST /a"), some("POST x.io/a"), 1)));
        assert_eq!(told(Some("/a"), Why::Request), None);
        assert_eq!(told(Some("/*"), Why::Request), Some((some("POST /*"), None, 1)));
        assert_eq!(told(Some("/hunter2-hunter2"), Why::Request), Some((some("POST /[redacted:KEY]"), None, 1)));
        let denied = || Why::Denied(Box::new("POST x.io/b".parse().unwrap()));
        assert_eq!(told(Some("/b"), denied()), Some((some("POST /b"), None, 1)));
        // Plain requests to a host that no rule names are one thing, and made-up paths are not told one by one.
        assert_eq!(told(Some("/c"), Why::Mode(Mode::Deny)), None);
        let apart =
            (0..100).filter(|n| told(Some(&format!("/{n}")), Why::Request).is_some_and(|told| told.0.is_some()));
        assert_eq!(apart.count(), REQUESTS - 4);
    }

    fn refused(refusal: Refusal) -> Told {
        Told::Exchanged(Exchanged {
            entry: Entry::Route,
            host: "api.x.io".to_owned(),
            port: 443,
            method: "POST".to_owned(),
            path: "/v1/files".to_owned(),
            status: Some(403),
            refused: Some(Box::new(refusal)),
            sent: 0,
            received: 0,
            credential: None,
            call: None,
        })
    }

    #[test]
    fn what_a_route_refuses_is_told_by_what_it_is_about() {
        let mut denials = Denials::new(Redactor::new([]));
        let mut told = |refusal| match denials.hear_all(&refused(refusal)) {
            Some(Event::PolicyDenied { host, port, rule, count, .. }) => {
                Some(format!("{host}:{port} ({rule}) {count}"))
            }
            other => other.map(|other| panic!("{other:?}")),
        };
        let endpoint = |n: u32| Refusal::Endpoint(format!("`POST /v1/{n}` is not an endpoint"));
        assert_eq!(told(endpoint(1)).unwrap(), "api.x.io:443 (`POST /v1/1` is not an endpoint) 1");
        assert_eq!(told(endpoint(2)), None, "paths can be made up");
        assert_eq!(told(Refusal::Model("model `m`".to_owned())).unwrap(), "api.x.io:443 (model `m`) 1");
        for none in [
            Refusal::Budget("spent".to_owned()),
            Refusal::Upstream("no answer".to_owned()),
            Refusal::Unavailable("closing".to_owned()),
        ] {
            assert_eq!(told(none), None);
        }
    }

    /// A gateway may answer so every time.
    #[test]
    fn another_model_is_told_once() {
        let mut denials = Denials::new(Redactor::new([]));
        let mut told = |asked: &str, by: Option<&str>| {
            let call = Call {
                id: 1,
                route: "gw".to_owned(),
                model: asked.to_owned(),
                answered_by: by.map(str::to_owned),
                usage: Usage::default(),
                cost: Micros(7),
                charge: Charge::Reported,
                limits: Vec::new(),
            };
            let Told::Exchanged(exchanged) = refused(Refusal::Model(String::new())) else { return None };
            denials.hear_all(&Told::Exchanged(Exchanged { refused: None, call: Some(call), ..exchanged }))
        };
        let text = "`cheap` was asked at route `gw`, and `dear` says it answered; it is charged as `cheap`, or as the other \
                    if a profile has that and it is dearer";
        assert_eq!(told("cheap", Some("dear")), Some(Event::Log { level: Level::Warn, text: text.to_owned() }));
        assert_eq!((0..1000).filter_map(|_| told("cheap", Some("dear"))).count(), 0);
        assert_eq!(told("cheap", None), None);
        assert!(told("other", Some("dear")).is_some());
        assert_eq!((0..1000).filter_map(|n| told("cheap", Some(&format!("m{n}")))).count(), OTHER_MODELS - 2);
    }

    #[test]
    fn what_is_no_refusal() {
        let mut denials = Denials::new(Redactor::new([]));
        for why in [Why::Unresolved, Why::Unreachable, Why::Crowded, Why::Slow] {
            assert_eq!(told(&mut denials, &denied("x.io", 443, why)), None);
        }
        let allowed = Decided { allowed: true, ..denied("x.io", 443, Why::Mode(Mode::Open)) };
        assert_eq!(told(&mut denials, &allowed), None);
    }

    #[test]
    fn made_up_names_are_bounded_and_secrets_are_masked() {
        let mut denials = Denials::new(Redactor::new([("KEY".to_owned(), Secret::new("hunter2-hunter2"))]));
        let secret = told(&mut denials, &denied("hunter2-hunter2.x.io", 443, Why::NotTls)).unwrap();
        assert!(secret.starts_with("[redacted:KEY].x.io:443"), "{secret}");
        let told =
            (0..10_000).filter(|n| denials.hear(&denied(&format!("{n}.x.io"), 443, Why::NotTls)).is_some()).count();
        assert_eq!(told, APART - 1 + 4, "the rest is told together at 1, 10, 100, 1000");
        assert_eq!(denials.counts.len(), APART + 1);
    }
}
