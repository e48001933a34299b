//! Selects which refusals and alarms become events of the run: the first of a kind, then one at every power of ten.

use std::collections::{BTreeMap, BTreeSet};

use ralph_core::event::{Event, EventLogLevel};
use ralph_core::redact::Redactor;
use ralph_proxy::egress_events::{
    ChargedCall, DecisionReason, EgressAlarm, EgressDecision, EgressEvent, EgressExchange,
};
use ralph_proxy::meter::GatewayRefusal;

use super::event_to_record::redact_and_truncate;

/// How many hosts and ports are counted separately; an agent can invent any number of names.
const MAX_HOSTS: usize = 500;
/// How many substituted models are reported.
const MAX_OTHER_MODELS: usize = 50;
/// How many requests to one host are counted separately.
const MAX_REQUESTS_PER_HOST: usize = 10;
/// The host name for refusals that are counted together.
const OTHER_HOSTS: &str = "(other hosts)";

/// Counts refusals and selects those to report.
#[derive(Debug)]
pub struct DenialCounter {
    redactor: Redactor,
    /// By host, port and subject: the kind of refusal of a model call, or a request's method and path.
    counts: BTreeMap<(String, u16, String), u64>,
    alarms: BTreeMap<String, u64>,
    /// Requested models with the models that claim to have answered instead.
    substituted_models: BTreeSet<(String, String)>,
}

impl DenialCounter {
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, counts: BTreeMap::new(), alarms: BTreeMap::new(), substituted_models: BTreeSet::new() }
    }

    /// Counts an egress event; returns the run event it is worth, if any.
    pub fn observe(&mut self, event: &EgressEvent) -> Option<Event> {
        match event {
            EgressEvent::Decision(decided) => self.observe_decision(decided),
            EgressEvent::Alarm(alarm) => self.alarm(alarm),
            EgressEvent::BudgetSpent { route, why, .. } => {
                self.log(&format!("spent {route}"), EventLogLevel::Warn, &format!("route `{route}`: {why}"))
            }
            EgressEvent::Restarted { why } => {
                self.log("restarted", EventLogLevel::Warn, &format!("the egress proxy restarted: {why}"))
            }
            EgressEvent::Exchange(exchanged) => self.observe_exchange(exchanged),
            EgressEvent::CallReserved { .. } | EgressEvent::Tunnel(_) => None,
        }
    }

    fn alarm(&mut self, alarm: &EgressAlarm) -> Option<Event> {
        let EgressAlarm { what, credential, host, port } = alarm;
        // Counted by what an agent cannot invent: new host names must not hide the next alarm.
        let whose = if credential.is_empty() { String::new() } else { format!("`{credential}`, ") };
        self.log(
            &format!("{what} {credential}"),
            EventLogLevel::Error,
            &format!("alarm: {what} ({whose}{host}:{port})"),
        )
    }

    fn log(&mut self, kind: &str, level: EventLogLevel, text: &str) -> Option<Event> {
        let text = redact_and_truncate(&ralph_core::text::strip_control(text), 300, &self.redactor);
        let redactor = &self.redactor;
        let count = self.alarms.entry(kind.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        let times = if *count > 1 { format!(", {count} times") } else { String::new() };
        is_power_of_ten(*count).then(|| Event::Log { level, text: redactor.mask(&format!("{text}{times}")) })
    }

    /// Counts a decision; returns the event it is worth, if any.
    pub fn observe_decision(&mut self, decided: &EgressDecision) -> Option<Event> {
        if !is_refusal(decided) {
            return None;
        }
        // Only where the request decided: a host refused for every request is one subject.
        let about = match &decided.why {
            DecisionReason::RequestNotAllowed => true,
            DecisionReason::Denied(rule) => rule.needs_request(),
            _ => false,
        };
        let request = decided.request.as_ref().filter(|_| about).map(|request| {
            let line = ralph_core::text::strip_control(&format!("{} {}", request.method, request.path));
            redact_and_truncate(&line, 300, &self.redactor)
        });
        // A rule that contains a secret must not be shown, and with the secret masked it is no valid rule.
        let remedy = decided.suggested_rule().filter(|rule| self.redactor.redact(rule) == *rule);
        let about = request.clone().unwrap_or_default();
        self.count_denial(&decided.host, decided.port, about, request, &decided.why.to_string(), remedy)
    }

    /// Counts a finished request. A refusal for lack of budget has its own event, and an unsupported protocol upgrade
    /// is not worth one.
    fn observe_exchange(&mut self, exchanged: &EgressExchange) -> Option<Event> {
        let Some(refusal) = exchanged.refused.as_ref() else {
            return self.observe_substituted_model(exchanged.call.as_ref()?);
        };
        if refusal.is_failure() || matches!(**refusal, GatewayRefusal::Budget(_) | GatewayRefusal::Upgrade(_)) {
            return None;
        }
        self.count_denial(&exchanged.host, exchanged.port, refusal.kind().to_owned(), None, refusal.why(), None)
    }

    /// Reports a call that another model claims to have answered. A gateway with its own model names does so with
    /// every call, so each pair is reported once.
    fn observe_substituted_model(&mut self, call: &ChargedCall) -> Option<Event> {
        let (asked, by) = (call.model.clone(), call.answered_by.clone()?);
        let text = format!(
            "`{asked}` was requested at route `{}`, and `{by}` says it answered; it is charged as `{asked}`, or as the \
            other if a profile has that model and it is more expensive",
            call.route
        );
        let new = self.substituted_models.len() < MAX_OTHER_MODELS && self.substituted_models.insert((asked, by));
        let text = || redact_and_truncate(&ralph_core::text::strip_control(&text), 500, &self.redactor);
        new.then(|| Event::Log { level: EventLogLevel::Warn, text: self.redactor.mask(&text()) })
    }

    fn count_denial(
        &mut self,
        host: &str,
        port: u16,
        about: String,
        request: Option<String>,
        why: &str,
        remedy: Option<String>,
    ) -> Option<Event> {
        let host = redact_and_truncate(host, 255, &self.redactor);
        let of_host = |(other, at, about): &(String, u16, String)| *other == host && *at == port && !about.is_empty();
        let asked = (host.clone(), port, about);
        let crowded =
            request.is_some() && self.counts.keys().filter(|asked| of_host(asked)).count() >= MAX_REQUESTS_PER_HOST;
        let (asked, request, remedy) = if self.counts.contains_key(&asked) {
            (asked, request, remedy)
        } else if self.counts.len() >= MAX_HOSTS {
            ((OTHER_HOSTS.to_owned(), 0, String::new()), None, None)
        } else if crowded {
            ((host, port, String::new()), None, None)
        } else {
            (asked, request, remedy)
        };
        let (host, port, _) = asked.clone();
        let count = self.counts.entry(asked).or_insert(0);
        *count = count.saturating_add(1);
        let rule = || redact_and_truncate(&ralph_core::text::strip_control(why), 300, &self.redactor);
        let reported = is_power_of_ten(*count);
        reported.then(|| Event::PolicyDenied { host, port, request, rule: rule(), remedy, count: *count })
    }
}

/// Reports whether a policy refused the request. Hosts that do not answer and sandboxes that ask for too much at once
/// are not refused by a policy.
pub(crate) fn is_refusal(decided: &EgressDecision) -> bool {
    !decided.allowed
        && !matches!(
            decided.why,
            DecisionReason::Unresolved
                | DecisionReason::Unreachable
                | DecisionReason::TooManyConnections
                | DecisionReason::ClientTimeout
        )
}

fn is_power_of_ten(mut count: u64) -> bool {
    while count != 0 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

#[cfg(test)]
mod tests {
    use ralph_core::money::MicroUsd;
    use ralph_core::policy::PolicyMode;
    use ralph_core::price::TokenUsage;
    use ralph_core::secret::Secret;
    use ralph_proxy::egress_events::{ChargeBasis, EgressEntry};

    use super::*;

    fn denied(host: &str, port: u16, why: DecisionReason) -> EgressDecision {
        let (entry, host) = (EgressEntry::Connect, host.to_owned());
        EgressDecision { entry, host, port, request: None, allowed: false, why, address: None }
    }

    fn event_text(denials: &mut DenialCounter, decided: &EgressDecision) -> Option<String> {
        denials.observe_decision(decided).map(|event| match event {
            Event::PolicyDenied { host, port, rule, count, .. } => format!("{host}:{port} ({rule}) {count}"),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn alarms_become_events() {
        use ralph_proxy::egress_events::AlarmKind;
        let mut denials = DenialCounter::new(Redactor::new([]));
        let alarm = |host: &str| {
            EgressEvent::Alarm(EgressAlarm {
                what: AlarmKind::PhantomMisdirected,
                credential: "KEY".to_owned(),
                host: host.to_owned(),
                port: 443,
            })
        };
        let events: Vec<Event> = (0..10).filter_map(|_| denials.observe(&alarm("evil.test"))).collect();
        let text = "alarm: a phantom credential was sent to a host it is not for (`KEY`, evil.test:443)";
        assert_eq!(
            events,
            [
                Event::Log { level: EventLogLevel::Error, text: Redactor::new([]).mask(text) },
                Event::Log { level: EventLogLevel::Error, text: Redactor::new([]).mask(&format!("{text}, 10 times")) },
            ]
        );
        assert!(denials.observe(&alarm("other.test")).is_none(), "it is the eleventh of its kind");
    }

    #[test]
    fn first_and_every_power_of_ten_are_reported() {
        let mut denials = DenialCounter::new(Redactor::new([]));
        let one = denied("x.io", 443, DecisionReason::NotTls);
        let events: Vec<u64> = (1..=1000_u64).filter(|_| denials.observe_decision(&one).is_some()).collect();
        assert_eq!(events, [1, 10, 100, 1000]);
        assert_eq!(
            event_text(&mut denials, &denied("x.io", 80, DecisionReason::NotTls)).unwrap(),
            "x.io:80 (port 443 carries only TLS) 1"
        );
        assert_eq!(
            event_text(&mut denials, &denied("y.io", 0, DecisionReason::Mode(PolicyMode::Deny))).unwrap(),
            "y.io:0 (no rule names it, and the network policy is `deny`) 1"
        );
    }

    /// The event carries the rule that would allow the request, no wider than what was requested.
    #[test]
    fn remedy_is_in_the_event() {
        let mut denials = DenialCounter::new(Redactor::new([("KEY".to_owned(), Secret::new("hunter2-hunter2"))]));
        let mut report = |path: Option<&str>, why: DecisionReason| {
            let request = path.map(|path| ralph_proxy::egress_events::RequestSummary::new("POST", path));
            match denials.observe_decision(&EgressDecision { request, ..denied("x.io", 443, why) }) {
                Some(Event::PolicyDenied { request, remedy, count, .. }) => Some((request, remedy, count)),
                other => other.map(|other| panic!("{other:?}")),
            }
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(report(None, DecisionReason::Mode(PolicyMode::Deny)), Some((None, some("x.io"), 1)));
        assert_eq!(
            report(Some("/a"), DecisionReason::RequestNotAllowed),
            Some((some("POST /a"), some("POST x.io/a"), 1))
        );
        assert_eq!(report(Some("/a"), DecisionReason::RequestNotAllowed), None);
        assert_eq!(report(Some("/*"), DecisionReason::RequestNotAllowed), Some((some("POST /*"), None, 1)));
        assert_eq!(
            report(Some("/hunter2-hunter2"), DecisionReason::RequestNotAllowed),
            Some((some("POST /[redacted:KEY]"), None, 1))
        );
        let denied = || DecisionReason::Denied(Box::new("POST x.io/b".parse().unwrap()));
        assert_eq!(report(Some("/b"), denied()), Some((some("POST /b"), None, 1)));
        // Plain requests to a host that no rule names are one subject, and invented paths are not reported one by one.
        assert_eq!(report(Some("/c"), DecisionReason::Mode(PolicyMode::Deny)), None);
        let apart = (0..100).filter(|n| {
            report(Some(&format!("/{n}")), DecisionReason::RequestNotAllowed)
                .is_some_and(|reported| reported.0.is_some())
        });
        assert_eq!(apart.count(), MAX_REQUESTS_PER_HOST - 4);
    }

    fn refused(refusal: GatewayRefusal) -> EgressEvent {
        EgressEvent::Exchange(EgressExchange {
            entry: EgressEntry::Route,
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
    fn route_refusals_are_counted_by_kind() {
        let mut denials = DenialCounter::new(Redactor::new([]));
        let mut report = |refusal| match denials.observe(&refused(refusal)) {
            Some(Event::PolicyDenied { host, port, rule, count, .. }) => {
                Some(format!("{host}:{port} ({rule}) {count}"))
            }
            other => other.map(|other| panic!("{other:?}")),
        };
        let endpoint = |n: u32| GatewayRefusal::Endpoint(format!("`POST /v1/{n}` is not an endpoint"));
        assert_eq!(report(endpoint(1)).unwrap(), "api.x.io:443 (`POST /v1/1` is not an endpoint) 1");
        assert_eq!(report(endpoint(2)), None, "paths can be made up");
        assert_eq!(report(GatewayRefusal::Model("model `m`".to_owned())).unwrap(), "api.x.io:443 (model `m`) 1");
        for none in [
            GatewayRefusal::Budget("spent".to_owned()),
            GatewayRefusal::Upstream("no answer".to_owned()),
            GatewayRefusal::Unavailable("closing".to_owned()),
        ] {
            assert_eq!(report(none), None);
        }
    }

    /// A gateway may substitute the model in every answer.
    #[test]
    fn substituted_model_is_reported_once() {
        let mut denials = DenialCounter::new(Redactor::new([]));
        let mut report = |asked: &str, by: Option<&str>| {
            let call = ChargedCall {
                id: 1,
                route: "gw".to_owned(),
                model: asked.to_owned(),
                answered_by: by.map(str::to_owned),
                usage: TokenUsage::default(),
                cost: MicroUsd(7),
                charge: ChargeBasis::Reported,
                limits: Vec::new(),
            };
            let EgressEvent::Exchange(exchanged) = refused(GatewayRefusal::Model(String::new())) else { return None };
            denials.observe(&EgressEvent::Exchange(EgressExchange { refused: None, call: Some(call), ..exchanged }))
        };
        let text = "`cheap` was requested at route `gw`, and `dear` says it answered; it is charged as `cheap`, or as \
        the other if a profile has that model and it is more expensive";
        assert_eq!(
            report("cheap", Some("dear")),
            Some(Event::Log { level: EventLogLevel::Warn, text: Redactor::new([]).mask(text) })
        );
        assert_eq!((0..1000).filter_map(|_| report("cheap", Some("dear"))).count(), 0);
        assert_eq!(report("cheap", None), None);
        assert!(report("other", Some("dear")).is_some());
        assert_eq!((0..1000).filter_map(|n| report("cheap", Some(&format!("m{n}")))).count(), MAX_OTHER_MODELS - 2);
    }

    #[test]
    fn failures_are_not_refusals() {
        let mut denials = DenialCounter::new(Redactor::new([]));
        for why in [
            DecisionReason::Unresolved,
            DecisionReason::Unreachable,
            DecisionReason::TooManyConnections,
            DecisionReason::ClientTimeout,
        ] {
            assert_eq!(event_text(&mut denials, &denied("x.io", 443, why)), None);
        }
        let allowed = EgressDecision { allowed: true, ..denied("x.io", 443, DecisionReason::Mode(PolicyMode::Open)) };
        assert_eq!(event_text(&mut denials, &allowed), None);
    }

    #[test]
    fn invented_names_are_bounded_and_secrets_are_masked() {
        let mut denials = DenialCounter::new(Redactor::new([("KEY".to_owned(), Secret::new("hunter2-hunter2"))]));
        let secret = event_text(&mut denials, &denied("hunter2-hunter2.x.io", 443, DecisionReason::NotTls)).unwrap();
        assert!(secret.starts_with("[redacted:KEY].x.io:443"), "{secret}");
        let reported = (0..10_000)
            .filter(|n| denials.observe_decision(&denied(&format!("{n}.x.io"), 443, DecisionReason::NotTls)).is_some())
            .count();
        assert_eq!(reported, MAX_HOSTS - 1 + 4, "the rest is reported together at 1, 10, 100, 1000");
        assert_eq!(denials.counts.len(), MAX_HOSTS + 1);
    }
}
